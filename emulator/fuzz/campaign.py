"""A campaign: cases from a seed, sent to a cloud of its own, and what must hold meanwhile."""

import json
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

import psutil

from local.testing.cloud import CloudProcess, running_cloud
from local.testing.failures import CloudFailed

CHECK_CASES = 20  # so often the well-behaved client has its turn
WARM_UP_CASES = 1000
GROWTH_BYTES_MAX = 100 * 2**20
HANDLES_MORE_MAX = 8  # files and threads, over those of the beginning
PROTON_LINE = re.compile(r"^\[0x\w+\]:.*\n+", re.MULTILINE)
# A case alone is tried thrice: what arrives together may differ.
SHRINK_SIZES = (1, 1, 1, 4, 16, 64)


class Found(Exception):
    """Something that the emulator must not do; the message says what."""


class Case(Protocol):
    def describe(self) -> str:
        """Tell a person what is sent."""
        ...


class Target[C: Case](Protocol):
    """A service of a running cloud. Each method raises Found, CloudFailed, EOFError or OSError."""

    def send(self, case: C) -> None:
        """Send a case, and judge what is answered."""

    def check(self) -> None:
        """Let the well-behaved client do its work."""

    def finish(self) -> None:
        """Check that nothing is left of it and of the cases."""


@dataclass(frozen=True, slots=True)
class Fuzzed[C: Case]:
    """A service: the configuration of its cloud, what makes a case, and what connects."""

    config: dict[str, Any]
    make: Callable[[Random], C]
    connect: Callable[[CloudProcess], Target[C]]

    def generate(self, seed: int) -> Iterator[tuple[int, C]]:
        """Cases with their numbers, without end; all follows from the seed."""
        rng = Random(seed)  # noqa: S311 - to be repeated, not to be secret
        number = 0
        while True:
            number += 1
            yield number, self.make(rng)


@dataclass(slots=True)
class Outcome[C: Case]:
    """A campaign that is over: its cases, and what it found."""

    cases: int = 0
    seconds: float = 0.0
    grown_bytes: int = 0
    found: str = ""
    recent: deque[tuple[int, C]] = field(default_factory=lambda: deque(maxlen=SHRINK_SIZES[-1]))


def run_campaign[C: Case](
    fuzzed: Fuzzed[C], cases: Iterable[tuple[int, C]], seconds: float
) -> Outcome[C]:
    """Send cases until they or the time are over, or something is found."""
    outcome = Outcome[C]()
    began = time.monotonic()
    with start_cloud(fuzzed.config) as cloud:
        watch = Watch(cloud)
        try:
            target = fuzzed.connect(cloud)
            target.check()
            for number, case in cases:
                outcome.recent.append((number, case))
                target.send(case)
                outcome.cases += 1
                watch.look(outcome.cases)
                if outcome.cases % CHECK_CASES == 0:
                    target.check()
                if time.monotonic() - began >= seconds:
                    break
            target.check()
            target.finish()
            watch.look(outcome.cases)
            watch.finish()
        except Found as found:
            outcome.found = str(found)
        except (CloudFailed, EOFError, OSError) as error:
            outcome.found = f"the well-behaved client was disturbed: {error!r}"
        if outcome.found:
            outcome.found += f"\n{watch.read_log()}"
        outcome.grown_bytes = watch.grown_bytes
    outcome.seconds = time.monotonic() - began
    return outcome


def shrink[C: Case](fuzzed: Fuzzed[C], outcome: Outcome[C]) -> Outcome[C] | None:
    """The fewest of the last cases that show something in a new cloud; None if none do."""
    for size in SHRINK_SIZES:
        again = run_campaign(fuzzed, list(outcome.recent)[-size:], float("inf"))
        if again.found:
            return again
    return None


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
        self._log = cloud.child.log
        self._child = cloud.child
        self._process = psutil.Process(cloud.child.pid)
        self._handles = self._count_handles()
        self._warm_bytes = self._log_bytes = 0
        self._logged = ""

    def look(self, cases: int) -> None:
        """Raise Found if the process has ended, has logged anything, or has grown too much."""
        if not self._child.is_running:
            raise Found("the emulator has ended")
        if self.read_log():
            raise Found("the emulator has logged something")
        if cases == WARM_UP_CASES:
            self._warm_bytes = self._process.memory_info().rss
        if cases % 100 == 0 and self.grown_bytes > GROWTH_BYTES_MAX:
            raise Found(f"memory has grown by {self.grown_bytes} bytes since case {WARM_UP_CASES}")

    @property
    def grown_bytes(self) -> int:
        """Growth since the warm-up; 0 before its end, and when the process is gone."""
        if not self._warm_bytes or not self._child.is_running:
            return 0
        return int(self._process.memory_info().rss) - self._warm_bytes

    def finish(self) -> None:
        """Raise Found if files or threads are left of cases that are over."""
        left = self._count_handles() - self._handles
        if left > HANDLES_MORE_MAX:
            raise Found(f"{left} files and threads are left")

    def read_log(self) -> str:
        """Return what was logged, without what Proton says about what it was told."""
        size = self._log.stat().st_size
        if size != self._log_bytes:
            self._log_bytes = size
            self._logged = PROTON_LINE.sub("", self._log.read_text(errors="replace")).strip()
        return self._logged

    def _count_handles(self) -> int:
        return int(self._process.num_fds() + self._process.num_threads())
