"""A system on a local cloud consumes in one region what was put into its queue before.

The primary region's queue is loaded while nothing consumes; then the consumer starts. What counts
is the time between the first messages settled and the last: starting up is not part of it.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from operator import sub
from pathlib import Path

from local.testing.children import Child, read_cpu_seconds
from local.testing.cloud import CloudProcess
from local.testing.patience import wait_until
from proof.bench.load import make_statuses, send
from proof.bench.systems import System
from proof.testbed.cloud import ROOT, running_cloud
from proof.testbed.command import RunFailed

# A small load is over in a third of a second, and the last look is late by half of this on average.
LOOK_SECONDS = 0.02
RUN_SECONDS_MAX = 300.0
WRITES = ("create", "upsert", "replace", "delete", "patch", "batch")
READS = ("read", "query")

# The process id of a consumer, None until it has one.
type ProcessId = Callable[[], int | None]


@dataclass(frozen=True, slots=True)
class Shape:
    sessions: int
    each: int

    @property
    def messages(self) -> int:
        return self.sessions * self.each


@dataclass(frozen=True, slots=True)
class Latencies:
    """The milliseconds that each write and read of a store and each settlement waits."""

    write_ms: float = 0.0
    read_ms: float = 0.0
    settle_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages settled in a stretch of time, and the processor time of both sides meanwhile."""

    messages: int
    seconds: float
    consumer_seconds: float
    cloud_seconds: float

    def since(self, before: "Rate") -> "Rate":
        return Rate(*map(sub, astuple(self), astuple(before)))

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds


@dataclass(slots=True)
class Consumption:
    """A local cloud with one consumer that is not running; `settled` is what it settled so far."""

    cloud: CloudProcess
    queue: str
    settled: int = 0
    loads: int = 0

    @property
    def region(self) -> str:
        return str(next(iter(self.cloud.contract["servicebus"])))

    @property
    def connection(self) -> str:
        return str(self.cloud.contract["servicebus"][self.region])

    def put_at_a_distance(self, latencies: Latencies) -> None:
        """Let the stores and the broker answer as late as these say, from now on."""
        bus, cosmos = f"servicebus.{self.region}", "cosmos"
        places = [(bus, "complete", latencies.settle_ms)]
        # A system without a store has no such component.
        if self.cloud.contract["containers"]:
            places += [(cosmos, name, latencies.write_ms) for name in WRITES]
            places += [(cosmos, name, latencies.read_ms) for name in READS]
        for component, operation, ms in places:
            if ms:
                fault = {"component": component, "operation": operation, "action": "delay"}
                self.cloud.control.arm(fault | {"seconds": ms / 1000})

    def load(self, shape: Shape) -> None:
        self.loads += 1
        names = (f"load{self.loads}-{n}" for n in range(shape.sessions))
        messages = [make_statuses(name, range(shape.each)) for name in names]
        send(self.connection, self.queue, messages)

    def drain(self, shape: Shape, pid: ProcessId) -> Rate:
        """Watch the consumer settle the load; raises RunFailed where that is too quick to see."""
        begun = self.watch(pid, 1)
        ended = self.watch(pid, shape.messages)
        self.settled += shape.messages
        if begun.messages >= shape.messages:
            raise RunFailed(f"{shape.messages} messages are too few to time")
        return ended.since(begun)

    def watch(self, process: ProcessId, enough: int) -> Rate:
        """Wait for so many messages; then how many there are, the clock, and the processor time."""

        def look() -> Rate | None:
            settled = self.cloud.control.count_completed(self.region) - self.settled
            now, pid = time.monotonic(), process()
            if settled < enough or pid is None:
                return None
            # A host's functions run in its worker; the cloud's own children are the hosts.
            consumer = read_cpu_seconds(pid, with_children=True)
            return Rate(settled, now, consumer, read_cpu_seconds(self.cloud.child.pid))

        return wait_until(
            look,
            seconds=RUN_SECONDS_MAX,
            what=f"fewer than {enough} messages were settled",
            error=RunFailed,
            poll_seconds=LOOK_SECONDS,
        )


@contextmanager
def running_system(system: System, app: Path | None) -> Iterator[Consumption]:
    """Run a system's cloud, with an app for the host of its primary region, or without any host."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        config = directory / system.config.name
        document = json.loads(system.config.read_text())
        # A host in the first region only.
        del document["Hosts"]["Regions"][1:]
        config.write_text(json.dumps(document))
        arguments = ["--config", str(config), *(["--app", str(app)] if app else ["--no-hosts"])]
        logs = directory / "logs"
        with running_cloud(*arguments, logs=logs, settings=system.settings) as cloud:
            made = Consumption(cloud, system.queue)
            if app:
                cloud.control.act(made.region, "stop")
            yield made


@contextmanager
def with_host(consumption: Consumption) -> Iterator[ProcessId]:
    """Let the region's host consume until the end of the block; one that fails to start is told."""
    with ThreadPoolExecutor(1) as thread:
        starting = thread.submit(consumption.cloud.control.act, consumption.region, "start")

        def pid() -> int | None:
            if starting.done():
                starting.result()
            found: int | None = consumption.cloud.control.read_hosts()[consumption.region]["pid"]
            return found

        try:
            yield pid
        finally:
            wait([starting])
            consumption.cloud.control.act(consumption.region, "stop")


@contextmanager
def with_bare_receiver(consumption: Consumption) -> Iterator[ProcessId]:
    """Let a bare receiver consume, in a process of its own, until the end of the block."""
    command = [sys.executable, "-m", "proof.bench.throughput.bare"]
    command += [consumption.connection, consumption.queue]
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as logs,
        Child(command, log=Path(logs) / "bare.log", cwd=ROOT) as child,
    ):
        yield lambda: child.pid
