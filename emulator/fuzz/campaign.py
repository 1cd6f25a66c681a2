"""A campaign: cases from a seed, sent to a cloud of its own, and what must hold meanwhile."""

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from random import Random
from typing import Any, Protocol

import psutil
from azure.core.exceptions import AzureError

from local.testing.cloud import CloudProcess, running_cloud
from local.testing.failures import CloudFailed
from local.testing.raw_amqp import require

CHECK_CASES = 50  # so often the well-behaved client has its turn
WARM_UP_CASES = 1000
GROWTH_BYTES_MAX = 100 * 2**20
HANDLES_MORE_MAX = 8  # files and threads, over those of the beginning
PROTON_LINE = re.compile(r"^\[0x\w+\]:.*\n+", re.MULTILINE)  # what it says about what it was told


class Service[Case](Protocol):
    """A service of a running cloud. What its methods raise is found."""

    config: dict[str, Any]  # of the cloud
    make: Callable[[Random], Case]

    def __init__(self, cloud: CloudProcess) -> None: ...

    def send(self, case: Case) -> None:
        """Send a case, and judge what is answered."""

    def check(self) -> None:
        """Let the well-behaved client do its work."""


def make_case[Case](service: type[Service[Case]], seed: int, number: int) -> Case:
    return service.make(Random(f"{seed} {number}"))  # noqa: S311 - to be repeated, not secret


def run_campaign(
    kind: type[Service[Any]], seed: int, numbers: Iterable[int], seconds: float
) -> tuple[str, str]:
    """Send cases until they or the time are over, or something is found.

    Returns what was done, and what was found, if anything.
    """
    found, cases, number, case, began = "", 0, 0, None, time.monotonic()
    with start_cloud(kind.config) as cloud:
        watch = Watch(cloud)
        try:
            service = kind(cloud)
            service.check()
            for number in numbers:
                case = make_case(kind, seed, number)
                service.send(case)
                cases += 1
                watch.look(cases)
                if cases % CHECK_CASES == 0:
                    service.check()
                if time.monotonic() - began >= seconds:
                    break
            service.check()
            watch.finish()
        except (AzureError, CloudFailed, EOFError, HTTPException, OSError, psutil.Error) as error:
            found = f"case {number}, or one of the {CHECK_CASES} before it: {error!r}"
            found += "" if cloud.child.is_running else ", and the emulator has ended"
            found += f"\n{watch.read_log()}\n{case}"
    grown = f"memory grew by {watch.grown_bytes / 2**20:.1f} MiB after the warm-up"
    return f"{cases} cases in {time.monotonic() - began:.0f} s, {grown}", found


@contextmanager
def start_cloud(config: dict[str, Any]) -> Iterator[CloudProcess]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "local.config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        # With one empty app all is there that `serve` asks for.
        with running_cloud("--no-hosts", "--config", str(path), "--app", folder) as cloud:
            yield cloud


class Watch:
    """The process from outside: its log, its memory, its files and threads."""

    def __init__(self, cloud: CloudProcess) -> None:
        self._child = cloud.child
        self._process = psutil.Process(cloud.child.pid)
        self._handles = self._count_handles()
        self._warm_bytes = self._log_bytes = self.grown_bytes = 0

    def look(self, cases: int) -> None:
        """Require that the process goes on, has logged nothing and has not grown too much."""
        require(self._child.is_running, "the emulator has ended")
        if self._child.log.stat().st_size != self._log_bytes:
            self._log_bytes = self._child.log.stat().st_size
            require(not self.read_log(), "the emulator has logged something")
        size = int(self._process.memory_info().rss)
        self._warm_bytes = size if cases <= WARM_UP_CASES else self._warm_bytes
        self.grown_bytes = size - self._warm_bytes
        require(self.grown_bytes <= GROWTH_BYTES_MAX, f"memory grew by {self.grown_bytes} bytes")

    def finish(self) -> None:
        """Require that no files or threads are left of cases that are over."""
        left = self._count_handles() - self._handles
        require(left <= HANDLES_MORE_MAX, f"{left} files and threads are left")

    def read_log(self) -> str:
        text = self._child.log.read_text(encoding="utf-8", errors="replace")
        return PROTON_LINE.sub("", text).strip()

    def _count_handles(self) -> int:
        return int(self._process.num_fds() + self._process.num_threads())
