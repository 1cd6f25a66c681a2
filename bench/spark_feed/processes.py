"""Measured child processes: what they print, and the time and memory they take."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import psutil

from testbed.children import ROOT
from testbed.command import RunFailed

SAMPLE_SECONDS = 0.5
# How often the last line of a child's log is repeated, for those who wait.
NEWS_SECONDS = 30.0
MIB = 2**20


@dataclass(frozen=True, slots=True)
class ProcessCosts:
    """A child that ended well: its output, and what it and those beside it needed together."""

    output: str
    seconds: float
    busy_seconds: float
    memory_bytes: int


@dataclass(slots=True)
class TreeUsage:
    """What processes and their children used: `memory_bytes` is the most they held together.

    `busy` is the processor time of each, but for what it used after the last look.
    """

    memory_bytes: int = 0
    busy: dict[int, float] = field(default_factory=dict)


def measure(
    module: str, words: Sequence[str], environment: Mapping[str, str], log: Path
) -> ProcessCosts:
    """Run `python -m module` to its end; raises RunFailed when that is not a good one."""
    return measure_together([(module, words)], environment, log)[0]


def measure_together(
    programs: Sequence[tuple[str, Sequence[str]]], environment: Mapping[str, str], log: Path
) -> list[ProcessCosts]:
    began = monotonic()
    with log.open("ab") as errors:
        children = [
            subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", module, *words],
                env=os.environ | environment,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            for module, words in programs
        ]
        with watched([child.pid for child in children], log) as usage:
            outputs = [child.communicate()[0] for child in children]
    seconds = monotonic() - began
    for child, (module, _) in zip(children, programs, strict=True):
        if child.returncode:
            raise RunFailed(f"{module} ended with {child.returncode}, see {log}")
    busy = sum(usage.busy.values())
    return [ProcessCosts(output, seconds, busy, usage.memory_bytes) for output in outputs]


@contextmanager
def watched(roots: Sequence[int], log: Path) -> Iterator[TreeUsage]:
    """Look at processes now and then, and show on stderr what was logged last, less often."""
    usage, ended = TreeUsage(), threading.Event()

    def watch() -> None:
        news_at = monotonic() + NEWS_SECONDS
        while not ended.wait(SAMPLE_SECONDS):
            if monotonic() > news_at:
                news_at += NEWS_SECONDS
                last_line = (log.read_text(errors="replace").splitlines() or [""])[-1]
                sys.stderr.write(f"  {last_line}\n")
            look(roots, usage)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield usage
    finally:
        ended.set()
        thread.join()


def look(roots: Sequence[int], usage: TreeUsage) -> None:
    held = 0
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(root)
            for process in (parent, *parent.children(recursive=True)):
                # One that goes meanwhile keeps the time it was seen with.
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    usage.busy[process.pid] = times.user + times.system
                    held += read_held_bytes(process.pid)
    usage.memory_bytes = max(usage.memory_bytes, held)


def read_held_bytes(pid: int) -> int:
    """The proportional set size of a process."""
    return int(psutil.Process(pid).memory_full_info().pss)
