"""Sessions that end while messages and copies are under way: what comes late is refused by name."""

import pytest

from proof.simulation.__main__ import failure
from proof.simulation.campaign import run_seeds
from tests.sizes import IS_PROOF

pytestmark = pytest.mark.slow

SEEDS = {"rough": 400, "fair": 100} if IS_PROOF else {"rough": 12}


@pytest.mark.parametrize("profile", SEEDS)
def test_no_seed_breaks_a_promise(profile: str) -> None:
    totals = run_seeds("endings", profile, range(SEEDS[profile]))

    assert not totals.failed, "\n".join(failure(report) for report in totals.failed)
    assert totals.runs == SEEDS[profile]
    assert totals.outcomes["Refused"] > 0
