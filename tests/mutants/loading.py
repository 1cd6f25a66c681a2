"""Run the engine with a mutant in it, in this process.

A changed function gets its new code in place, so that whoever imported it has that, too. A changed
value takes the place of the old one in every module that imported it by its name.
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

from tests.mutants.mutant import Mutant
from tests.mutants.syntax import MutantDoesNotFit, changed


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The engine with the change, until the end of the block. Raises MutantDoesNotFit."""
    place, tree, definition = changed(mutant)
    module = importlib.import_module(place.module)
    with ExitStack() as changes:
        if isinstance(definition, ast.Assign | ast.AnnAssign):
            exchange_value(module, place.qualified_name, definition, changes)
        else:
            code = compile(tree, place.path, "exec", dont_inherit=True)
            exchange_code(module, place.qualified_name, code, changes)
        yield


def exchange_code(module: ModuleType, name: str, changed: CodeType, changes: ExitStack) -> None:
    """Give the functions of a definition the code that they have in the changed module."""
    codes = codes_by_name(changed)
    is_changed = False
    for function in functions_of(module, name):
        healthy, broken = function.__code__, codes[function.__qualname__]
        is_changed |= broken != healthy
        changes.callback(setattr, function, "__code__", healthy)
        function.__code__ = broken
    if not is_changed:
        raise MutantDoesNotFit(f"no code of {name} changes in {module.__name__}")


def codes_by_name(code: CodeType) -> Mapping[str, CodeType]:
    """The code of every function below a piece of code, by qualified name."""
    found = {code.co_qualname: code}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= codes_by_name(inner)
    return found


def functions_of(module: ModuleType, qualified_name: str) -> list[FunctionType]:
    """The function of this name, or that in which it stands; of a class all methods."""
    found: Any = module
    for name in qualified_name.split("."):
        found = inspect.getattr_static(found, name)
        function = plain_function(found)
        if function is not None:
            return [function]
    methods = (plain_function(value) for value in vars(found).values())
    return [method for method in methods if method and method.__module__ == module.__name__]


def plain_function(value: Any) -> FunctionType | None:
    """The function in whatever wraps it; None where there is none that somebody wrote."""
    if isinstance(value, property | cached_property):
        value = value.fget if isinstance(value, property) else value.func
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    value = inspect.unwrap(value) if callable(value) else value
    # What dataclasses write has no file.
    is_written = isinstance(value, FunctionType) and value.__code__.co_filename != "<string>"
    return value if is_written else None


def exchange_value(module: ModuleType, name: str, assignment: ast.stmt, changes: ExitStack) -> None:
    """Assign again, and give the value to each module that imported the old one by its name."""
    if "." in name:
        raise MutantDoesNotFit(f"{name} is assigned in a class: name the class's function instead")
    namespace = dict(vars(module))
    old = namespace[name]
    code = compile(ast.Module([assignment], []), module.__file__ or "", "exec", dont_inherit=True)
    exec(code, namespace)
    for holder in list(sys.modules.values()):
        if getattr(holder, name, None) is old:
            changes.enter_context(patch.object(holder, name, namespace[name]))
