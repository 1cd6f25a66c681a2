"""Two thousand stories, most of them in rough weather: every promise holds."""

import pytest

from simulation.__main__ import failure
from simulation.campaign import Totals, run_seeds
from simulation.faults import CLIMATES, ON_WRITES

SEEDS = 100
PARTS = {"rough": 14, "mild": 3, "fair": 3}

# What a rough climate must have done, or it was not rough.
HAPPENED = {
    *(misfortune.value for misfortune in ON_WRITES),
    *("duplicate", "reorder", "lost settlement", "session lock lost", "half a batch"),
    *("stale read", "feed repeats", "feed skips"),
    *("namespace down", "write region fails over", "host killed", "host frozen"),
    *("turn lost", "activity twice", "activity's answer lost", "activity's answer late"),
    *("event late", "event twice", "timer late", "task hub down", "task hub lost"),
}


def test_every_climate_is_tried() -> None:
    assert PARTS.keys() == CLIMATES.keys()


@pytest.mark.parametrize(
    ("climate", "part"), [(c, n) for c, parts in PARTS.items() for n in range(parts)]
)
def test_no_seed_breaks_a_promise(climate: str, part: int) -> None:
    totals = run_seeds("any", climate, range(part * SEEDS, (part + 1) * SEEDS))

    assert not totals.failed, "\n".join(failure(report) for report in totals.failed)
    assert totals.runs == SEEDS
    assert_eventful(totals, climate)


def assert_eventful(totals: Totals, climate: str) -> None:
    """All sorts of ends were met; and in rough weather all sorts of faults."""
    ends = {"Processed", "AlreadyDone", "Parked", "Claimed", "Faulted", "Conflicting", "Expired"}
    assert ends | {"PassedThrough"} <= set(totals.outcomes)
    assert {"saga completed", "saga compensated"} <= set(totals.outcomes)
    if climate == "rough":
        assert not HAPPENED - set(totals.faults)
    if climate == "fair":
        assert not totals.faults
