"""The price of one request: request units of everything that is awaited for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Spending:
    """Request units that the journal's account charged so far."""

    request_units: float = 0.0


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
