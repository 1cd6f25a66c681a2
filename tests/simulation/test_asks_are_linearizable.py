"""Clients ask sessions in both regions under rough faults: some order explains what they hear."""

import os

import pytest

from proof.simulation.__main__ import failure
from proof.simulation.campaign import run_seeds
from proof.simulation.run import simulate
from proof.simulation.work.diaries import PROMISE
from proof.simulation.work.scenarios import asks
from proof.simulation.world.faults import ROUGH
from tests.mutants.catalogue import FOR_SIMULATION
from tests.mutants.loading import applied
from tests.sizes import FIRST_SEED

SEEDS = 10
# A stale read, which breaks no other promise, and a double effect.
PLANTED = (
    "answer from an old state where that stays as it is",
    "overwrite the proof of an un-numbered message",
)


def test_some_order_explains_what_clients_hear() -> None:
    """Other seeds in each run; the report's first lines and a failure say which ones."""
    first = int(os.environ[FIRST_SEED])

    totals = run_seeds("asks", ROUGH.name, range(first, first + SEEDS))

    assert not totals.failed, "\n".join(failure(report) for report in totals.failed)
    assert totals.outcomes["ask Answered"] > SEEDS


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_is_found_in_what_clients_hear(planted: str) -> None:
    (mutant,) = (one for one in FOR_SIMULATION if one.name == planted)
    assert mutant.simulated

    with applied(mutant):
        runs = (simulate(seed, ROUGH, scenario=asks) for seed in range(mutant.simulated.seeds_max))
        found = any(one.promise == PROMISE for report in runs for one in report.violations)

    assert found


@pytest.mark.proof
def test_everything_happens_to_clients() -> None:
    totals = run_seeds("asks", ROUGH.name, range(100))

    replies = ("Answered", "Failed", "Waiting", "Conflicting", "without a reply")
    assert {f"ask {reply}" for reply in replies} | {"state read"} <= set(totals.outcomes)
    assert {"host killed", "namespace silent", "write region fails over"} <= set(totals.faults)
