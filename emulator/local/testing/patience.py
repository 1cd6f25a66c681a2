"""Waiting for processes on a machine that others use as well.

A limit of wall time says as much about the machine as about what is waited for. Here limits count
fair time: wall time without the time in which the waiting process and those that it started were
ready to run and stood in the queue for a processor. Linux counts that for each thread, see the
second field of /proc/PID/task/TID/schedstat. Elsewhere fair time is wall time.
"""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from local.testing.control import ControlRefused

# Threads that queue side by side are added up, which can make fair time stand still. A wait is over
# for good when so many times its limit has passed by the wall's clock.
HARD_STOP = 20
NANOSECONDS = 1e9
POLL_SECONDS = 0.05
PROCESSES = Path("/proc")
# A poll of a test may ask for what is not there yet: a key, a file, a process that does not listen
# yet, an answer that says something else. Whether it ever comes is for the limit to say.
NOT_YET = (AssertionError, LookupError, OSError, ValueError, ControlRefused)
TEST_POLL_SECONDS = 0.01


class PatienceExhausted(AssertionError):
    """A wait for something that did not happen in time; it may have been about to."""


class Patience:
    """A limit in seconds of fair time, which begins when this is made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began, self._queued = time.monotonic(), read_queued_seconds()
        self._ends_at = self._began + HARD_STOP * seconds
        self._look_at = self._began + seconds

    def is_over(self) -> bool:
        now = time.monotonic()
        if now < self._look_at:
            return False
        queued = max(0.0, read_queued_seconds() - self._queued)
        left = self._began + self.seconds + queued - now
        # Fair time is never faster than wall time, so this cannot be over any sooner.
        self._look_at = min(now + max(left, POLL_SECONDS), self._ends_at)
        return left <= 0 or now >= self._ends_at


def wait_until[T](
    ask: Callable[[], T | None],
    *,
    seconds: float,
    what: str,
    error: type[Exception] = PatienceExhausted,
    poll_seconds: float = POLL_SECONDS,
    not_yet: tuple[type[Exception], ...] = (),
) -> T:
    """Ask until the answer is truthy, and return it.

    An asking that raises one of `not_yet` counts as no. When the fair time is over this raises
    `error` with `what`, the limit and the last answer, or because of the last exception.
    """
    patience = Patience(seconds)
    while True:
        try:
            last, raised = ask(), None
        except not_yet as caught:
            last, raised = None, caught
        if last:
            return last
        if patience.is_over():
            said = f": {raised or last!r}" if raised or last is not False else ""
            raise error(f"{what} within {seconds:g} s{said}") from raised
        time.sleep(poll_seconds)


def eventually[T](ask: Callable[[], T], *, seconds: float = 60.0, what: str = "it") -> T:
    """Ask until the answer is truthy, and return it.

    What an asking raises because something is not there yet counts as no. When the time is over
    this raises PatienceExhausted with the last answer, or because of the last error.
    """
    return wait_until(
        ask,
        seconds=seconds,
        what=f"{what} did not happen",
        poll_seconds=TEST_POLL_SECONDS,
        not_yet=NOT_YET,
    )


def until(condition: Callable[[], bool], *, what: str, seconds: float = 120.0) -> None:
    """Wait for a condition; raises PatienceExhausted with its name when the time is over."""
    eventually(condition, seconds=seconds, what=what)


def run_patiently(
    command: Sequence[str | Path],
    *,
    seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and capture what it prints, as text.

    Raises PatienceExhausted, with what it has printed, when it takes longer; it is killed then.
    """
    with subprocess.Popen(  # noqa: S603 - the caller's own programs, no shell
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        out, errors = read_to_end(process, seconds=seconds)
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def read_to_end[Output: (str, bytes)](
    process: subprocess.Popen[Output], *, seconds: float
) -> tuple[Output, Output]:
    """Return what a process prints until it ends: standard output, and errors if that is a pipe.

    Raises PatienceExhausted, with what it has printed, when it takes longer; it is killed then.
    """
    patience = Patience(seconds)
    while True:
        try:
            return process.communicate(timeout=POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if patience.is_over():
                process.kill()
                said = process.communicate()
                raise PatienceExhausted(f"{process.args!r} ran {seconds} s: {said}") from None


def wait_for_end(process: subprocess.Popen[Any], *, seconds: float) -> int:
    """Return the exit status of a process that prints nothing more; raises PatienceExhausted."""
    wait_until(
        lambda: process.poll() is not None,
        seconds=seconds,
        what=f"{process.args!r} did not end",
        poll_seconds=POLL_SECONDS,
    )
    return int(process.returncode)


def read_queued_seconds() -> float:
    """Return how long this process and those below it have queued for a processor so far."""
    if not (PROCESSES / "self" / "schedstat").exists():
        return 0.0
    return sum(map(read_queued_of, find_tree())) / NANOSECONDS


def find_tree() -> list[int]:
    """Return the ids of this process and of all that it started, and of those that they started."""
    children: dict[int, list[int]] = {}
    for folder in PROCESSES.glob("[0-9]*"):
        # A process that has ended meanwhile has no folder any more.
        with suppress(OSError):
            # Behind the name, which may hold anything, stand the state and the parent's id.
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(folder.name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, ())
    return found


def read_queued_of(pid: int) -> int:
    """Return the nanoseconds that the threads of a process have queued for a processor."""
    queued = 0
    with suppress(OSError):
        for task in (PROCESSES / str(pid) / "task").iterdir():
            with suppress(OSError):
                queued += int((task / "schedstat").read_text().split()[1])
    return queued
