"""Measuring one kind of operation: how fast, and who pays for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.local.emulator import Emulator


@dataclass(slots=True)
class Row:
    """One kind of operation: how many, and the seconds spent on the clock and by both sides."""

    name: str
    count: int = 0
    seconds: float = 0.0
    client_cpu_seconds: float = 0.0
    emulator_cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.count / self.seconds if self.seconds else 0.0

    @property
    def emulator_share(self) -> float:
        """The emulator's part of all processor time."""
        both = self.client_cpu_seconds + self.emulator_cpu_seconds
        return self.emulator_cpu_seconds / both if both else 0.0

    def line(self) -> str:
        """The row as it is printed."""
        client, emulator = (
            spent / max(self.count, 1) * 1e6
            for spent in (self.client_cpu_seconds, self.emulator_cpu_seconds)
        )
        return (
            f"{self.name:<38}{self.rate:>9.0f}{client:>12.0f}{emulator:>12.0f}"
            f"{self.emulator_share:>10.0%}"
        )


HEAD = f"{'':<38}{'per s':>9}{'client us':>12}{'emulator us':>12}{'emulator':>10}"


@contextmanager
def measured(row: Row, emulator: Emulator, count: int) -> Iterator[None]:
    """Add what happens inside to a row, as so many operations."""
    emulator_before, client_before = emulator.cpu_seconds(), time.process_time()
    began = time.perf_counter()
    yield
    row.seconds += time.perf_counter() - began
    row.client_cpu_seconds += time.process_time() - client_before
    row.emulator_cpu_seconds += emulator.cpu_seconds() - emulator_before
    row.count += count
