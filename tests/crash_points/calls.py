"""Where the engine calls the store and the bus, by its source and while it runs."""

import ast
import os
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.ports import Bus
from shared.testkit.injected_faults import CallFault, FaultPlan
from shared.testkit.intercepted import CALLS, COMPOSED

ENGINE = Path(__file__).parents[2] / "shared" / "engine"
PREFIX = f"{ENGINE}{os.sep}"
METHODS = CALLS | COMPOSED | {name for name in vars(Bus) if not name.startswith("_")}
# What the engine names them.
NAMES = {"journal", "bus"}

# A file and a line.
type CallSite = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PortCall:
    """A call of a port's method, and the lines it spans."""

    file: str
    first: int
    last: int
    method: str

    def __str__(self) -> str:
        return f"{self.file}:{self.first} {self.method}"

    def is_at(self, site: CallSite) -> bool:
        file, line = site
        return file == self.file and self.first <= line <= self.last


def port_calls() -> list[PortCall]:
    return [call for path in sorted(ENGINE.rglob("*.py")) for call in port_calls_in(path)]


def port_calls_in(path: Path) -> Iterator[PortCall]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=method, value=ast.Name(id=port) | ast.Attribute(attr=port))
            ) if method in METHODS and port in NAMES:
                file = str(path).removeprefix(PREFIX)
                yield PortCall(file, node.lineno, node.end_lineno or node.lineno, method)


class TracedFaultPlan(FaultPlan):
    """A fault plan that notes which line of the engine made each of the calls that it counts."""

    def __init__(self, at: Mapping[int, CallFault] | None = None) -> None:
        super().__init__(at)
        self.call_sites: list[CallSite] = []

    def next_fault(self, operation: str) -> CallFault | None:
        """Note who makes the call, and how it goes wrong."""
        if not self.is_over:
            self.call_sites.append(call_site())
        return super().next_fault(operation)


def call_site() -> CallSite:
    """The line of the engine that awaits the current call; no line where none does."""
    for frame, line in traceback.walk_stack(None):
        name = frame.f_code.co_filename
        if name.startswith(PREFIX):
            return name.removeprefix(PREFIX), line
    return "", 0
