"""A Bicep file as data: what it declares, and the syntax tree under each declaration.

The tree is tree-sitter's. Nothing here knows what a resource type means: types and properties are
a compiler's business.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

INFRA = Path(__file__).parents[2] / "infra"


class Kind(StrEnum):
    """What a declaration declares, under the grammar's name for it."""

    PARAMETER = "parameter_declaration"
    VARIABLE = "variable_declaration"
    RESOURCE = "resource_declaration"
    MODULE = "module_declaration"
    OUTPUT = "output_declaration"


@dataclass(frozen=True, slots=True)
class Declaration:
    """One named statement, with the decorators in front of it."""

    kind: Kind
    name: str
    node: Node = field(repr=False)
    decorators: dict[str, Node | None] = field(repr=False)

    @property
    def target(self) -> str:
        """The quoted text after the name: a resource's type and version, or a module's path."""
        return text(child(self.node, "string")).strip("'")

    @property
    def expression(self) -> Node | None:
        """What stands right of the equals sign; None for a parameter that must be given."""
        kinds = [part.type for part in self.node.children]
        if "=" not in kinds:
            return None
        return self.node.children[kinds.index("=") + 1]


@dataclass(frozen=True, slots=True)
class Bicep:
    """One parsed file. Its tree may hold errors: ask `tests.infra.rules.readable`."""

    path: Path
    source: str = field(repr=False)
    root: Node = field(repr=False)
    declarations: tuple[Declaration, ...]

    def of(self, *kinds: Kind) -> dict[str, Declaration]:
        return {found.name: found for found in self.declarations if found.kind in kinds}


@cache
def read(name: str) -> Bicep:
    path = INFRA / name
    return parse(path.read_text(encoding="utf-8"), path)


def parse(source: str, path: Path) -> Bicep:
    """Parse source as if it stood in path. Never fails: errors become nodes of the tree."""
    root = Parser(Language(tree_sitter_bicep.language())).parse(source.encode()).root_node
    return Bicep(path, source, root, tuple(declarations(root)))


def declarations(root: Node) -> Iterator[Declaration]:
    pending: dict[str, Node | None] = {}
    for statement in root.named_children:
        if statement.type == "decorators":
            pending = dict(map(decorator, statement.named_children))
        elif statement.type in Kind:
            name = text(child(statement, "identifier"))
            yield Declaration(Kind(statement.type), name, statement, pending)
            pending = {}


def decorator(node: Node) -> tuple[str, Node | None]:
    """Name and first argument, as in `@minLength(3)`."""
    call = child(node, "call_expression")
    arguments = child(call, "arguments").named_children
    return text(child(call, "identifier")), arguments[0] if arguments else None


def child(node: Node, kind: str) -> Node:
    return next(part for part in node.children if part.type == kind)


def text(node: Node) -> str:
    return node.text.decode() if node.text is not None else ""


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, in source order."""
    yield node
    for part in node.children:
        yield from walk(part)
