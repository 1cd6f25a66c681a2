"""Find a definition by its name, and exchange a piece of its code that is given as a snippet.

Snippets are compared as syntax trees. They may hold placeholders, written `_A_` or `_HEAD_`:

- as an expression or an identifier, a placeholder stands for any expression or identifier; the
  same placeholder twice stands for the same code twice;
- as the last statement of a body, it stands for all statements that are left in that body;
- `*_A_` and `**_A_` in a call stand for all arguments that are left. Keyword arguments may come in
  any order.

In the new code a placeholder is replaced by what it stood for in the old code.
"""

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "functions")
PLACEHOLDER = re.compile(r"_[A-Z][A-Z_]*_")
# Fields that say how a node is used or how it was written, not what it means.
IGNORED_FIELDS = {"ctx", "kind", "type_comment"}

# What each placeholder stands for: an expression, an identifier, or the rest of a list.
type Bindings = dict[str, Any]


class MutantDoesNotFit(Exception):
    """The code that a mutant changes is not there, or stands there more than once."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a definition stands: its file and its qualified name there."""

    path: Path
    qualified_name: str

    @property
    def module(self) -> str:
        """The dotted name of the module."""
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    def is_meant_by(self, name: str) -> bool:
        """Whether this is the qualified name, or the end of the module's name followed by it."""
        module = name.removesuffix(f".{self.qualified_name}")
        return name == self.qualified_name or (
            module != name and f".{self.module}".endswith(f".{module}")
        )


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Where the old code stands: a node's field, or part of it where the field is a list."""

    parent: ast.AST
    field: str
    part: slice | None
    bindings: Bindings

    def exchange(self, new: Sequence[ast.AST]) -> None:
        """Put new code there, with the line numbers of the old."""
        current = getattr(self.parent, self.field)
        anchor = current if self.part is None else current[self.part][0]
        filled: list[ast.AST] = []
        for template in deepcopy(new):
            for node in ast.walk(template):
                ast.copy_location(node, anchor)
            result = Filler(self.bindings).visit(template)
            filled += result if isinstance(result, list) else [result]
        if self.part is None:
            (only,) = filled
            setattr(self.parent, self.field, only)
        else:
            current[self.part] = filled
            if self.field == "body" and not current:
                current.append(ast.copy_location(ast.Pass(), anchor))


def changed(mutant: Mutant) -> tuple[Place, ast.Module, ast.AST]:
    """Where the mutant's definition stands, and its module and itself with the change.

    Raises MutantDoesNotFit.
    """
    place = place_of(mutant.definition)
    tree = ast.parse(place.path.read_text("utf-8"), place.path)
    definition = dict(definitions(tree))[place.qualified_name]
    old, new = snippets(mutant)
    unknown = names_in(*new) - names_in(*new, is_read=False) - names_in(tree) - {*dir(builtins)}
    if unknown:
        raise MutantDoesNotFit(f"{mutant.name!r} uses {sorted(unknown)}, unknown in {place.path}")
    found = list(occurrences(old, definition))
    if len(found) <= (mutant.occurrence or 0) or (mutant.occurrence is None and len(found) > 1):
        raise MutantDoesNotFit(f"{mutant.name!r} fits {mutant.definition} {len(found)} times")
    found[mutant.occurrence or 0].exchange(new)
    return place, tree, definition


def place_of(definition: str) -> Place:
    """The only place of a definition; its name may begin with the name of its module.

    Raises MutantDoesNotFit for a name that is defined nowhere, or in several modules.
    """
    found = [place for place in places() if place.is_meant_by(definition)]
    if len(found) != 1:
        raise MutantDoesNotFit(f"{definition!r} is defined {len(found)} times: {found}")
    return found[0]


@cache
def places() -> Sequence[Place]:
    """Where every definition stands."""
    return [
        Place(path, name)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, _ in definitions(ast.parse(path.read_text("utf-8")))
    ]


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Functions, classes and assigned names below a node, each with its qualified name."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield prefix + name, child
                yield from definitions(child, f"{prefix}{name}.")
            case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield prefix + name, child
            case ast.stmt():
                yield from definitions(child, prefix)


def snippets(mutant: Mutant) -> tuple[Sequence[ast.AST], Sequence[ast.AST]]:
    """The old and the new code: one expression each where both are expressions, else statements."""
    old, new = (ast.parse(dedent(text)).body for text in (mutant.old, mutant.new))
    match old, new:
        case [ast.Expr(before)], [ast.Expr(after)]:
            return [before], [after]
    return old, new


def names_in(*nodes: ast.AST, is_read: bool | None = None) -> set[str]:
    """The names that are used or bound anywhere in the code, but for placeholders."""
    names: set[str] = set()
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        match node:
            case ast.Name(name, ctx) if is_read in (None, isinstance(ctx, ast.Load)):
                names.add(name)
            case ast.arg(name):
                names.add(name)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                names.add(name)
            case ast.alias(name, alias):
                names.add(alias or name.partition(".")[0])
    return {name for name in names if not PLACEHOLDER.fullmatch(name)}


def occurrences(old: Sequence[ast.AST], node: ast.AST) -> Iterator[Occurrence]:
    """Where the old code stands below a node: an expression anywhere, statements in a row."""
    for field, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for place, child in enumerate(children):
            if not isinstance(child, ast.AST):
                continue
            bindings: Bindings = {}
            part = slice(place, place + len(old)) if isinstance(value, list) else None
            if unify_lists(old, children[part] if part else [child], bindings):
                yield Occurrence(node, field, part, bindings)
            yield from occurrences(old, child)


def unify(old: object, code: object, bindings: Bindings) -> bool:
    """Whether the code is what the pattern says; placeholders are bound on the way."""
    match old:
        case ast.Name(name) if PLACEHOLDER.fullmatch(name):
            return isinstance(code, ast.expr) and bind(name, code, bindings)
        case str(name) if PLACEHOLDER.fullmatch(name):
            return isinstance(code, str) and bind(name, code, bindings)
        case list():
            return isinstance(code, list) and unify_lists(old, code, bindings)
        case ast.AST():
            return type(old) is type(code) and all(
                unify(value, getattr(code, field), bindings)
                for field, value in ast.iter_fields(old)
                if field not in IGNORED_FIELDS
            )
    return type(old) is type(code) and old == code


def unify_lists(old: Sequence[Any], code: Sequence[Any], bindings: Bindings) -> bool:
    """Whether two lists are alike; the last of the old ones may stand for all that is left."""
    rest = rest_placeholder(old[-1]) if old else None
    left = list(code)
    for wanted in old[:-1] if rest else old:
        place = 0
        if isinstance(wanted, ast.keyword):
            names = [keyword.arg for keyword in left]
            place = names.index(wanted.arg) if wanted.arg in names else len(left)
        if place >= len(left) or not unify(wanted, left.pop(place), bindings):
            return False
    return bind(rest, left, bindings) if rest else not left


def rest_placeholder(node: object) -> str | None:
    """The placeholder that stands for the rest of a list, if the node is one."""
    match node:
        case (
            ast.Expr(ast.Name(name))
            | ast.Starred(ast.Name(name))
            | ast.keyword(None, ast.Name(name))
        ) if PLACEHOLDER.fullmatch(name):
            return name
    return None


def bind(name: str, code: Any, bindings: Bindings) -> bool:
    """Whether the placeholder can stand for this code, as it stands for no other."""
    known = bindings.setdefault(name, code)
    return known is code or unify(known, code, {})


class Filler(ast.NodeTransformer):
    """Put in place of each placeholder what it stands for."""

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings

    def visit(self, node: ast.AST) -> Any:
        """The node with its placeholders replaced; a list for one that stands for a rest."""
        rest = rest_placeholder(node)
        if rest in self.bindings and isinstance(self.bindings[rest], list):
            return deepcopy(self.bindings[rest])
        if isinstance(node, ast.Name) and node.id in self.bindings:
            return in_context(deepcopy(self.bindings[node.id]), node.ctx)
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and value in self.bindings:
                setattr(node, field, self.bindings[value])
        return self.generic_visit(node)


def in_context(code: ast.expr, context: ast.expr_context) -> ast.expr:
    """An expression as it is read, assigned or deleted."""
    if isinstance(code, ast.Name | ast.Attribute | ast.Subscript | ast.Starred):
        code.ctx = context
    return code
