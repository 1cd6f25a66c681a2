"""Azure on one machine as a child process, and the addresses it tells when it is ready."""

import json
import selectors
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.children import Child
from demo.control import Control

READY_SECONDS_MAX = 120.0
SECONDARY_DELAY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Stack:
    """A running local cloud: its contract, and the child that is it."""

    contract: Mapping[str, Any]
    child: Child

    @property
    def control(self) -> Control:
        """The control endpoint."""
        return Control(self.contract["control"], self.contract["queue"])

    @property
    def regions(self) -> tuple[str, str]:
        """The primary and the secondary region: the primary's copies come first."""
        primary, secondary = self.contract["servicebus"]
        return primary, secondary

    @property
    def cosmos_connection(self) -> str:
        """The connection string of the Cosmos account."""
        cosmos = self.contract["cosmos"]
        return f"AccountEndpoint={cosmos['endpoint']};AccountKey={cosmos['key']};"


@contextmanager
def stack(data: Path, logs: Path) -> Iterator[Stack]:
    """Run the local cloud over a directory; raises ChildFailed when it does not become ready."""
    setting = f"LOCKSTEP_SECONDARY_DELAY_SECONDS={SECONDARY_DELAY_SECONDS}"
    command = [sys.executable, "-m", "local", "serve", "--until-stdin-ends"]
    command += ["--data", str(data), "--logs", str(logs), "--setting", setting]
    with Child(command, log=logs / "local.log", is_piped=True) as child:
        yield Stack(announced(child), child)


def announced(child: Child) -> dict[str, Any]:
    """Return what a child says on its one line when it is ready; ChildFailed when it never is."""
    with selectors.DefaultSelector() as selector:
        selector.register(child.output, selectors.EVENT_READ)
        line = child.output.readline() if selector.select(READY_SECONDS_MAX) else b""
    if not line:
        child.stop()
        raise child.failure("it did not start")
    said: dict[str, Any] = json.loads(line)
    return said
