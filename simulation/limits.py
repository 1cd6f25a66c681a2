"""Limits of the engine made small for a run, so that a short run meets them."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from shared.domain import producer
from shared.engine.consume import fold
from shared.engine.operate import compact
from shared.storage import documents, limits

type Limit = tuple[ModuleType, str, int]

SMALL: tuple[Limit, ...] = (
    (documents, "MILESTONE_EVERY", 5),
    # Shorter than a pause, so that a slow attempt finds its stages gone.
    (documents, "STAGED_SECONDS", 20),
    (compact, "REMOVED_AT_ONCE", 4),
    (fold, "INLINE_BYTES_MAX", 1_600),
    (limits, "INLINE_BYTES_MAX", 1_600),
    (limits, "STAGED_BYTES_MAX", 1_400),
    (producer, "REMEMBERED_MAX", 4),
)


@contextmanager
def small_limits(*, wanted: bool) -> Iterator[None]:
    """The small limits, where wanted, until the end of the block."""
    limits = SMALL if wanted else ()
    usual = [(module, name, getattr(module, name)) for module, name, _ in limits]
    for module, name, value in limits:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in usual:
            setattr(module, name, value)
