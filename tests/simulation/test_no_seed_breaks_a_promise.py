"""Hundreds of runs, most of them with rough faults: every promise holds."""

import os

import pytest

from proof.simulation.__main__ import failure
from proof.simulation.campaign import CampaignTotals, run_seeds
from proof.simulation.world.faults import ON_WRITES, PROFILES
from tests.sizes import FIRST_SEED, IS_PROOF, SEEDS_IN_A_ROW

pytestmark = pytest.mark.slow


# The same seeds in every run, of which the first 25 have every kind of fault and end, and so many
# others.
SEEDS = 100 if IS_PROOF else 30
PARTS = {"rough": 17, "fair": 3} if IS_PROOF else {"rough": 1}
OTHERS = {"rough": 60, "fair": 10}

# What the rough profile must have injected, or it was not rough.
EXPECTED_FAULTS = {
    *(fault.value for fault in ON_WRITES),
    *("duplicate", "reorder", "lost settlement", "session lock lost", "half a batch"),
    *("stale read", "feed repeats", "feed skips"),
    *("namespace down", "write region fails over", "host killed", "host frozen"),
    *("turn lost", "activity twice", "activity's answer lost", "activity's answer late"),
    *("event late", "event twice", "timer late", "task hub down", "task hub lost"),
}


def test_every_profile_is_tried() -> None:
    assert OTHERS.keys() == PROFILES.keys() >= PARTS.keys()
    assert max(OTHERS.values()) <= SEEDS_IN_A_ROW


@pytest.mark.parametrize("profile", PROFILES)
def test_no_seed_of_this_run_breaks_a_promise(profile: str) -> None:
    """Other seeds in each run; the report's first lines and a failure say which ones."""
    first = int(os.environ[FIRST_SEED])
    totals = run_seeds("any", profile, range(first, first + OTHERS[profile]))

    assert not totals.failed, "\n".join(failure(report) for report in totals.failed)
    assert totals.runs == OTHERS[profile]


@pytest.mark.parametrize(
    ("profile", "part"), [(c, n) for c, parts in PARTS.items() for n in range(parts)]
)
def test_no_seed_breaks_a_promise(profile: str, part: int) -> None:
    totals = run_seeds("any", profile, range(part * SEEDS, (part + 1) * SEEDS))

    assert not totals.failed, "\n".join(failure(report) for report in totals.failed)
    assert totals.runs == SEEDS
    assert_eventful(totals, profile)


def assert_eventful(totals: CampaignTotals, profile: str) -> None:
    """All sorts of ends occurred, and with the rough profile all sorts of faults."""
    ends = {"Processed", "AlreadyDone", "Parked", "Claimed", "Faulted", "Conflicting", "Expired"}
    assert ends | {"PassedThrough"} <= set(totals.outcomes)
    assert {"saga completed", "saga compensated"} <= set(totals.outcomes)
    if profile == "rough":
        assert not EXPECTED_FAULTS - set(totals.faults)
    if profile == "fair":
        assert not totals.faults
