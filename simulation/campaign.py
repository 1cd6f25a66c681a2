"""Many seeds, on several cores, and what they came to."""

import gc
import logging
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Thread

from simulation.faults import CLIMATES
from simulation.run import Report, shrunk, simulate
from simulation.scenarios import PLAYS

SEEDS_AT_ONCE = 25


@dataclass
class Totals:
    """What many runs came to. Times are virtual seconds."""

    runs: int = 0
    messages: int = 0
    entries: int = 0
    virtual_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failed: list[Report] = field(default_factory=list)

    def add(self, report: Report) -> None:
        """Count one run."""
        self.runs += 1
        self.messages += report.messages
        self.entries += report.entries
        self.virtual_seconds += report.virtual_seconds
        self.faults += report.faults
        self.outcomes += report.outcomes
        if report.violations:
            self.failed.append(report)

    def include(self, other: "Totals") -> None:
        """Add what other runs came to."""
        self.runs += other.runs
        self.messages += other.messages
        self.entries += other.entries
        self.virtual_seconds += other.virtual_seconds
        self.faults += other.faults
        self.outcomes += other.outcomes
        self.failed += other.failed


def run_seeds(play: str, climate: str, seeds: range) -> Totals:
    """Run seeds one after another."""
    totals = Totals()
    with in_silence():
        for seed in seeds:
            totals.add(simulate(seed, CLIMATES[climate], prepare=PLAYS[play]))
    return totals


@contextmanager
def in_silence() -> Iterator[None]:
    """Log nothing of what goes wrong, which is the purpose here, and collect garbage at the end."""
    logger = logging.getLogger("lockstep")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    gc.disable()
    try:
        yield
    finally:
        logger.setLevel(before)
        gc.enable()
        gc.collect()


def campaign(play: str, climate: str, seeds: range, jobs: int) -> Iterator[Totals]:
    """What every few seeds came to, in no order; with one job in this process."""
    chunks = [seeds[at : at + SEEDS_AT_ONCE] for at in range(0, len(seeds), SEEDS_AT_ONCE)]
    if jobs == 1:
        yield from (run_seeds(play, climate, chunk) for chunk in chunks)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=watch_parent)
    try:
        run = partial(run_seeds, play, climate)
        yield from pool.map(run, chunks)
    finally:
        pool.shutdown(cancel_futures=True)


def watch_parent() -> None:
    """See to it that this process ends with the one that started it, however that ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        Thread(target=end_with, args=(parent,), daemon=True).start()


def end_with(parent: multiprocessing.process.BaseProcess) -> None:
    """Wait for a process, and end."""
    parent.join()
    os._exit(1)


def smallest(report: Report) -> Report:
    """The report of a failed seed with as few misfortunes as can be found."""
    prepare = PLAYS[report.play]
    return shrunk(
        report,
        lambda allowed: simulate(report.seed, report.climate, allowed=allowed, prepare=prepare),
    )
