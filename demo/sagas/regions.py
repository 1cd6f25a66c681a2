"""Two regions, each with a host, a namespace and a task hub of its own, over one journal."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from demo.children import Child
from demo.stack import Stack, announced

REGIONS = ("east", "west")
# So long one region leaves a saga to the other.
LEASE_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Regions:
    """What runs. A region that is killed is out of reach, with what is in its queues and hub."""

    stack: Stack
    cut_off: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def urls(self) -> Mapping[str, str]:
        """Where each region's host answers, whenever it runs."""
        urls: Mapping[str, str] = self.stack.contract["hosts"]
        return urls

    def kill(self, region: str) -> None:
        """Kill a region's host, and cut off its namespace and its task hub."""
        control = self.stack.control
        namespace = control.kill_region(region)
        hub = control.arm({"component": f"durable.{region}", "action": "down"})
        self.cut_off[region] = (namespace, hub)

    def start(self, region: str) -> None:
        """Bring back a region that was killed; returns when its host is ready."""
        namespace, hub = self.cut_off.pop(region)
        self.stack.control.lift(hub)
        self.stack.control.restore_region(region, namespace)


@contextmanager
def regions(logs: Path) -> Iterator[Regions]:
    """Run the cloud with both regions for one `with` block; raises ChildFailed."""
    command = [sys.executable, "-m", "local", "serve", "--until-stdin-ends", "--logs", str(logs)]
    command += ["--setting", f"LOCKSTEP_LEASE_SECONDS={LEASE_SECONDS}"]
    with Child(command, log=logs / "local.log", is_piped=True) as cloud:
        yield Regions(Stack(announced(cloud), cloud))
