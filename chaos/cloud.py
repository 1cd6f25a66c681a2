"""The local cloud as a child that is killed and started again, on the same ports and data."""

import os
import random
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from chaos.app.composing import compose_app
from chaos.names import RUNS_SETTING
from chaos.options import Cardinality, Options
from chaos.places import Places
from demo.children import Child, ChildFailed
from demo.control import Control, ControlRefused
from demo.stack import SECONDARY_DELAY_SECONDS, Stack, announced

# How old an entry is before it may be compacted, and how often that is done: P8 in minutes.
RETENTION_SECONDS = 30
COMPACT_SECONDS = 10
DAY_SECONDS = 24 * 3600
# Ports for all that listens, below those that the system gives to clients.
PORTS = 16
PORT_BASES = range(20_000, 30_000)
START_TRIES = 5
AGAIN_SECONDS = 1.0


def settings(cardinality: Cardinality, runs: Path) -> Mapping[str, str]:
    """App settings of every host: leases, lags and retention short enough for minutes."""
    days = f"{RETENTION_SECONDS / DAY_SECONDS:.9f}"
    return {
        "LOCKSTEP_SECONDARY_DELAY_SECONDS": str(SECONDARY_DELAY_SECONDS),
        "LOCKSTEP_GAP_WAIT_SECONDS": "2",
        "LOCKSTEP_LEASE_SECONDS": "10",
        "LOCKSTEP_SWEEP_SCHEDULE": "*/5 * * * * *",
        "LOCKSTEP_COMPACT_SCHEDULE": f"*/{COMPACT_SECONDS} * * * * *",
        "LOCKSTEP_WINDOW_DAYS": days,
        "LOCKSTEP_RETENTION_DAYS": days,
        "LOCKSTEP_CARDINALITY": cardinality,
        RUNS_SETTING: str(runs),
    }


@dataclass
class Cloud:
    """The local cloud with a host per region. `stack` is the one that runs, or ran last."""

    command: tuple[str, ...]
    logs: Path
    starts: Iterator[int]
    stack: Stack

    @property
    def control(self) -> Control:
        """The control endpoint; its address outlives a kill."""
        return self.stack.control

    @property
    def regions(self) -> tuple[str, str]:
        """Both regions, the preferred one first."""
        return self.stack.regions

    def kill(self) -> None:
        """SIGKILL the cloud and its hosts, which are processes of their own."""
        hosts = self.host_processes()
        self.stack.child.kill()
        self.stack.child.stop()
        for process in hosts:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def host_processes(self) -> list[int]:
        """The process ids of the hosts that run; none where nobody can say."""
        try:
            hosts = self.control.hosts().values()
        except ControlRefused:
            return []
        return [int(host["pid"]) for host in hosts if host["pid"]]

    def start(self) -> None:
        """Start it on what it left; raises ChildFailed when it does not come up."""
        for tried in range(1, START_TRIES + 1):
            try:
                self.stack = launched(self.command, self.logs / f"cloud-{next(self.starts)}.log")
                return
            except ChildFailed:
                # A port may be held for a moment by what is still ending.
                if tried == START_TRIES:
                    raise
                time.sleep(AGAIN_SECONDS)


@contextmanager
def running_cloud(options: Options, places: Places) -> Iterator[Cloud]:
    """Run the cloud and its hosts for one `with` block; raises ChildFailed."""
    compose_app(places.app)
    command = [sys.executable, "-m", "local", "serve", "--until-stdin-ends"]
    command += ["--app", str(places.app), "--data", str(places.cloud)]
    command += ["--logs", str(places.logs), "--port-base", str(free_base())]
    for name, value in settings(options.cardinality, places.runs).items():
        command += ["--setting", f"{name}={value}"]
    starts = count(1)
    first = launched(tuple(command), places.logs / f"cloud-{next(starts)}.log")
    cloud = Cloud(tuple(command), places.logs, starts, first)
    try:
        yield cloud
    finally:
        cloud.stack.child.stop()


def launched(command: tuple[str, ...], log: Path) -> Stack:
    """Start a cloud and wait until it is ready."""
    child = Child(command, log=log, is_piped=True)
    try:
        return Stack(announced(child), child)
    except BaseException:
        child.stop()
        raise


def free_base() -> int:
    """A port that is free, as are those above it that a cloud takes."""
    bases = random.sample(PORT_BASES, 100)
    for base in bases:
        if all(map(is_free, range(base, base + PORTS))):
            return base
    raise OSError("no row of free ports was found")


def is_free(port: int) -> bool:
    """Whether nobody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
