"""Azure on one machine as a process of its own, and what it uses of the machine."""

import json
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processor import seconds_used

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "local.config.json"
STOP_SECONDS_MAX = 30.0
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running process; `contract` is the line it printed when it was ready."""

    contract: dict[str, Any]
    process: subprocess.Popen[bytes]
    start_seconds: float

    def cpu_seconds(self) -> float:
        """Processor time used so far, in steps of a clock tick (mostly 10 ms)."""
        return seconds_used(self.process.pid)

    def memory_bytes(self) -> int:
        """Resident memory now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def stop(self) -> float:
        """SIGTERM; returns how many seconds it took to end."""
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_SECONDS_MAX)
        return time.perf_counter() - began

    def open_ports(self) -> list[int]:
        """Those of its ports that can be connected to."""
        return [port for port in self.ports() if is_open(port)]

    def ports(self) -> list[int]:
        """Where it listens, by the line it printed."""
        words = json.dumps(self.contract).replace("/", " ").replace(";", " ").split()
        numbers = (word.partition(":")[2].strip('",}') for word in words if HOST in word)
        return [int(number) for number in numbers if number.isdigit()]


def is_open(port: int) -> bool:
    """Whether something listens."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def running(data: Path | None = None, *, profile: Path | None = None) -> Iterator[Emulator]:
    """Serve the sample config without hosts; what still runs at the end is killed.

    With `profile` it is sampled, and where its time went is written there when it stops.
    """
    program = ["-m", "bench.local.sampling", str(profile)] if profile else ["-m", "local"]
    options = ["serve", "--no-hosts", "--config", str(CONFIG)]
    options += ["--data", str(data)] if data else []
    began = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, *program, *options],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else b""
            if not line:
                raise SystemExit("the emulator did not start")
            yield Emulator(json.loads(line), process, time.perf_counter() - began)
        finally:
            process.kill()


def containers(contract: dict[str, Any]) -> Sequence[str]:
    """The names of the containers it has."""
    return tuple(contract["containers"])
