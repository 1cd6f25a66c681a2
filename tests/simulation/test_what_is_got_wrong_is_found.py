"""The simulation is worth what it finds: each way of getting it wrong shows within some seeds."""

import pytest

from simulation.run import simulate
from simulation.weather import CLIMATES
from tests.simulation.detection import EVERY_MUTATION, seeds_to_detection
from tests.simulation.mutations import Mutation, applied

# The others need more seeds than a test has time for; `python -m tests.simulation` is patient.
QUICK = [mutation for mutation in EVERY_MUTATION if not mutation.is_rare]


@pytest.mark.parametrize("mutation", QUICK, ids=lambda m: f"{m.promise}: {m.name}")
def test_the_mutation_is_found(mutation: Mutation) -> None:
    assert seeds_to_detection(mutation) is not None


def test_every_promise_is_broken_by_some_mutation() -> None:
    assert {mutation.promise for mutation in QUICK} == {f"P{number}" for number in range(1, 10)}


def test_a_mutation_leaves_nothing_behind() -> None:
    healthy = simulate(0, CLIMATES["rough"])

    for mutation in EVERY_MUTATION:
        with applied(mutation):
            pass

    assert simulate(0, CLIMATES["rough"]) == healthy
    assert not healthy.violations


def test_a_mutation_that_does_not_fit_the_code_any_more_is_refused() -> None:
    stale = Mutation("stale", "P1", "shared.domain.journal", "no such text", "")

    with pytest.raises(ValueError, match="fits 0 places"), applied(stale):
        pass
