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

from proof.simulation.run import RunReport, simulate
from proof.simulation.work.scenarios import SCENARIOS
from proof.simulation.world.faults import PROFILES

SEEDS_AT_ONCE = 25


@dataclass
class CampaignTotals:
    """The totals of many runs. Times are virtual seconds."""

    runs: int = 0
    messages: int = 0
    entries: int = 0
    virtual_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failed: list[RunReport] = field(default_factory=list)

    def add(self, report: RunReport) -> None:
        self.runs += 1
        self.messages += report.messages
        self.entries += report.entries
        self.virtual_seconds += report.virtual_seconds
        self.faults.update(fault.kind for fault in report.faults)
        self.outcomes += report.outcomes
        self.failed += [report] if report.violations else []

    def include(self, other: "CampaignTotals") -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def run_seeds(scenario: str, profile: str, seeds: range) -> CampaignTotals:
    totals = CampaignTotals()
    with quiet_run():
        for seed in seeds:
            totals.add(simulate(seed, PROFILES[profile], scenario=SCENARIOS[scenario]))
    return totals


@contextmanager
def quiet_run() -> Iterator[None]:
    """Log nothing of the faults, which are injected on purpose, and collect garbage at the end."""
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


def run_campaign(scenario: str, profile: str, seeds: range, jobs: int) -> Iterator[CampaignTotals]:
    """Yield the totals of every few seeds, in no order. One job runs in this process."""
    chunks = [seeds[at : at + SEEDS_AT_ONCE] for at in range(0, len(seeds), SEEDS_AT_ONCE)]
    if jobs == 1:
        yield from (run_seeds(scenario, profile, chunk) for chunk in chunks)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=watch_parent)
    try:
        run = partial(run_seeds, scenario, profile)
        yield from pool.map(run, chunks)
    finally:
        pool.shutdown(cancel_futures=True)


def watch_parent() -> None:
    """End this process with the one that started it, however that ends."""
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=end_with_parent, daemon=True).start()
