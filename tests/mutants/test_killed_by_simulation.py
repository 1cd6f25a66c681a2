"""The simulation is worth what it finds: each mutant shows within some seeds."""

import pytest

from proof.simulation.run import simulate
from proof.simulation.world.faults import PROFILES
from tests.mutants.__main__ import seeds_to_detection
from tests.mutants.catalogue import FOR_SIMULATION, as_parameters
from tests.mutants.loading import applied
from tests.mutants.mutant import Mutant
from tests.sizes import IS_PROOF

pytestmark = pytest.mark.slow


# The others need more seeds than a test has time for; `python -m tests.mutants` is patient.
QUICK = [one for one in FOR_SIMULATION if one.simulated and not one.simulated.is_rare]
# One of each promise.
SAMPLE = list({mutant.promise: mutant for mutant in reversed(QUICK)}.values())


@pytest.mark.parametrize("mutant", as_parameters(QUICK, SAMPLE))
def test_the_mutant_is_found(mutant: Mutant) -> None:
    assert seeds_to_detection(mutant) is not None


def test_every_promise_is_broken_by_some_mutant() -> None:
    assert {mutant.promise for mutant in QUICK} == {f"P{number}" for number in range(1, 10)}


def test_a_mutant_leaves_nothing_behind() -> None:
    healthy = simulate(0, PROFILES["rough"])

    for mutant in FOR_SIMULATION if IS_PROOF else FOR_SIMULATION[::8]:
        with applied(mutant):
            pass

    assert simulate(0, PROFILES["rough"]) == healthy
    assert not healthy.violations
