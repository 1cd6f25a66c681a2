"""Where the use cases call the store and the bus, read from their source."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from shared.ports import Bus, Journal
from tests.crash_points.strikes import USE_CASES, CallSite

METHODS = {name for port in (Journal, Bus) for name in vars(port) if not name.startswith("_")}
# What the use cases name the ports.
PORTS = {"journal", "store", "bus"}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a port's method, and the lines it spans."""

    file: str
    first: int
    last: int
    method: str

    def __str__(self) -> str:
        """Where people find it."""
        return f"{self.file}:{self.first} {self.method}"

    def is_at(self, site: CallSite) -> bool:
        """Whether it is made there."""
        file, line = site
        return file == self.file and self.first <= line <= self.last


def calls() -> list[Call]:
    """Every call of a port in a use case."""
    return [call for path in sorted(USE_CASES.glob("*.py")) for call in calls_in(path.name)]


def calls_in(name: str) -> Iterator[Call]:
    """The calls in one file."""
    for node in ast.walk(ast.parse((USE_CASES / name).read_text("utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=method, value=ast.Name(id=port) | ast.Attribute(attr=port))
            ) if method in METHODS and port in PORTS:
                yield Call(name, node.lineno, node.end_lineno or node.lineno, method)
