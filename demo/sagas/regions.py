"""Two regions, each with a host and a task hub of its own, over one journal."""

import json
import os
import re
import selectors
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.children import ROOT, Child
from demo.stack import Stack
from local.durable.backend import DurableBackend

REGIONS = ("east", "west")
# So long one region leaves a saga to the other.
LEASE_SECONDS = 5
READY_SECONDS_MAX = 120.0


class Host(Child):
    """A region's Functions host."""

    def kill(self) -> None:
        """End it with SIGKILL, as a power cut would."""
        os.killpg(self._process.pid, signal.SIGKILL)


@dataclass
class Regions:
    """What runs. A host that is killed leaves its task hub as it is."""

    stack: Stack
    logs: Path
    hubs: dict[str, DurableBackend]
    running: ExitStack
    hosts: dict[str, Host] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)

    def start(self, region: str) -> None:
        """Start a region's host; returns when it is ready. Raises ChildFailed."""
        command = [sys.executable, "-m", "local.functions_host", "--app", str(ROOT)]
        host = Host(
            [*command, "--region", region],
            log=self.logs / f"host-{region}.log",
            environment=self.settings(region),
            is_piped=True,
        )
        self.hosts[region] = self.running.enter_context(host)
        self.urls[region] = announced(host)["url"]

    def kill(self, region: str) -> None:
        """Kill a region's host."""
        self.hosts[region].kill()

    def settings(self, region: str) -> dict[str, str]:
        """The app settings of a region's host: the config's, with its own task hub."""
        values = json.loads((ROOT / "local.config.json").read_text())["Hosts"]["Values"]
        known = {
            "region": region,
            "cosmos": self.stack.cosmos_connection,
            "durable": self.hubs[region].address,
        }
        buses = self.stack.contract["servicebus"].items()
        known |= {f"servicebus.{name}": connection for name, connection in buses}
        filled = {name: fill(value, known) for name, value in values.items()}
        return filled | {"LOCKSTEP_LEASE_SECONDS": str(LEASE_SECONDS)}


def fill(text: str, known: dict[str, str]) -> str:
    """A setting with its placeholders replaced."""
    return re.sub(r"\{([^{}]+)\}", lambda match: known[match[1]], text)


@contextmanager
def regions(logs: Path) -> Iterator[Regions]:
    """Run the cloud and both regions for one `with` block; raises ChildFailed."""
    command = [sys.executable, "-m", "local", "serve", "--no-hosts", "--until-stdin-ends"]
    with ExitStack() as running:
        cloud = running.enter_context(Child(command, log=logs / "local.log", is_piped=True))
        hubs = {region: DurableBackend() for region in REGIONS}
        for hub in hubs.values():
            hub.start()
            running.callback(hub.stop)
        both = Regions(Stack(announced(cloud), cloud), logs, hubs, running)
        for region in REGIONS:
            both.start(region)
        yield both


def announced(child: Child) -> dict[str, Any]:
    """What a child says on its one line when it is ready; raises ChildFailed when it never is."""
    with selectors.DefaultSelector() as selector:
        selector.register(child.output, selectors.EVENT_READ)
        line = child.output.readline() if selector.select(READY_SECONDS_MAX) else b""
    if not line:
        child.stop()
        raise child.failure("it did not start")
    said: dict[str, Any] = json.loads(line)
    return said
