"""What the source says where there is no table to import: texts that calls give or compare."""

import ast
from collections.abc import Iterator
from inspect import getsource
from textwrap import dedent
from typing import Any

from pages.pages import ROOT


def texts_given_to(function: str, *sources: Any) -> set[str]:
    """The texts in the arguments of the calls of a function."""
    return {
        text
        for source in sources
        for call in calls_in(ast.parse(dedent(getsource(source))), function)
        for argument in call.args
        for text in constants_in(argument)
        if isinstance(text, str)
    }


def first_texts(function: str, source: Any) -> dict[str, str]:
    """The first text that a function is given, by the key of a dictionary that holds the call."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(dedent(getsource(source)))):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                match key, value:
                    case ast.Constant(str(name)), ast.Call(args=[ast.Constant(str(text)), *_]):
                        found |= {name: text} if [*calls_in(value, function)] else {}
    return found


def texts_of(package: str) -> set[str]:
    """Every text in the modules of a package."""
    found = {text for tree in trees_of(package) for text in constants_in(tree)}
    return {text for text in found if isinstance(text, str)}


def numbers_given_as(keyword: str, package: str) -> set[int]:
    """The numbers that calls in the modules of a package give under a name."""
    return {
        number
        for tree in trees_of(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == keyword
        for number in constants_in(node.value)
        if isinstance(number, int)
    }


def trees_of(package: str) -> Iterator[ast.AST]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield ast.parse(path.read_text("utf-8"))


def calls_in(tree: ast.AST, function: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(name)) | ast.Call(func=ast.Attribute(attr=name)):
                if name == function:
                    yield node


def constants_in(tree: ast.AST) -> Iterator[Any]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            yield node.value
