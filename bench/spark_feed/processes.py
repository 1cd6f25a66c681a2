"""Measured child processes: what they print, and the time and memory they take."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from testbed.children import ROOT, ProcessUsage, read_usage
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


def measure(
    module: str, words: Sequence[str], environment: Mapping[str, str], log: Path
) -> ProcessCosts:
    """Run `python -m module` to its end; raises RunFailed when that is not a good one."""
    return measure_together([(module, words)], environment, log)[0]


def measure_together(
    programs: Sequence[tuple[str, Sequence[str]]], environment: Mapping[str, str], log: Path
) -> list[ProcessCosts]:
    """Run several at once."""
    began = monotonic()
    with log.open("ab") as errors:
        children = [
            start(module, words, environment, errors.fileno()) for module, words in programs
        ]
        watch = ProcessWatch([child.pid for child in children], log)
        with watch:
            outputs = [child.communicate()[0] for child in children]
    seconds = monotonic() - began
    for child, (module, _) in zip(children, programs, strict=True):
        if child.returncode:
            raise RunFailed(f"{module} ended with {child.returncode}, see {log}")
    return [
        ProcessCosts(output, seconds, watch.busy_seconds, watch.memory_bytes) for output in outputs
    ]


def start(
    module: str, words: Sequence[str], environment: Mapping[str, str], errors: int
) -> "subprocess.Popen[str]":
    """Start one."""
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", module, *words],
        env=os.environ | environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


class ProcessWatch:
    """Looks at processes and their children, now and then, while in the context.

    What was logged last is told on stderr, less often. `memory_bytes` is the most they held
    together; `busy` what processor time each has used, but for what it used after the
    last look.
    """

    def __init__(self, roots: Sequence[int], log: Path) -> None:
        self.roots = roots
        self.log = log
        self.memory_bytes = 0
        self.busy: dict[int, float] = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    @property
    def busy_seconds(self) -> float:
        """Processor time of all of them."""
        return sum(self.busy.values())

    def watch(self) -> None:
        """Look until it is over."""
        news_at = monotonic() + NEWS_SECONDS
        while not self.ended.wait(SAMPLE_SECONDS):
            if monotonic() > news_at:
                news_at += NEWS_SECONDS
                sys.stderr.write(f"  {last_line(self.log)}\n")
            tree = read_tree(self.roots)
            self.busy |= {pid: seen.seconds for pid, seen in tree.items() if seen.seconds}
            self.memory_bytes = max(self.memory_bytes, sum(map(held_bytes, tree)))


def last_line(log: Path) -> str:
    """What was logged last."""
    return (log.read_text(errors="replace").splitlines() or [""])[-1]


def read_tree(roots: Sequence[int]) -> dict[int, ProcessUsage]:
    """The processes that are there of these and all their children."""
    names = (folder.name for folder in Path("/proc").glob("[0-9]*"))
    every = {pid: read_or_nothing(pid) for pid in map(int, names)}
    tree, more = set(roots), set(roots)
    while more:
        more = {pid for pid, each in every.items() if each.parent in more} - tree
        tree |= more
    return {pid: every[pid] for pid in tree if pid in every}


def read_or_nothing(pid: int) -> ProcessUsage:
    """What the kernel says of a process; nothing of one that has gone."""
    try:
        return read_usage(pid)
    except OSError:
        return ProcessUsage(0, 0.0)


def held_bytes(pid: int) -> int:
    """The proportional set size of a process; 0 for one that has gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
