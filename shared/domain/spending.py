"""The price of one request: request units of everything that is awaited for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf


@dataclass(slots=True)
class Spending:
    """Request units that the journal's account charged so far, and how many it may.

    Once they are spent, a search ends with what it has found. What is asked for then is answered
    still, so it may come to one answer more for each search that is under way.
    """

    request_units: float = 0.0
    units_max: float = inf

    @property
    def is_spent(self) -> bool:
        return self.request_units >= self.units_max


# Tasks that a request starts have the same one: the context is copied, not what it holds.
CURRENT: ContextVar[Spending | None] = ContextVar("lockstep_spending", default=None)


@contextmanager
def count_spending() -> Iterator[Spending]:
    """Count what the work inside costs; work that outlives it goes on counting, unseen."""
    spending = Spending()
    token = CURRENT.set(spending)
    try:
        yield spending
    finally:
        CURRENT.reset(token)


def limit_spending(units_max: float) -> Spending:
    """Let the request that is counted here cost so much, and return what it has cost."""
    spending = CURRENT.get() or Spending()
    spending.units_max = units_max
    return spending
