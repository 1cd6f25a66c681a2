"""Azure on one machine as a child process, and the addresses it tells when it is ready."""

import json
import selectors
import sys
import time
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
        yield Stack(json.loads(_first_line(child)), child)


def _first_line(child: Child) -> str:
    deadline = time.monotonic() + READY_SECONDS_MAX
    with selectors.DefaultSelector() as selector:
        selector.register(child.output, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if selector.select(timeout=0.2):
                break
    line = child.output.readline() if time.monotonic() < deadline else b""
    if not line:
        child.stop()
        raise child.failure("the local cloud did not start")
    return line.decode()
