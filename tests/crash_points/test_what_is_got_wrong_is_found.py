"""The search is worth what it finds: a broken engine comes to another end, and says after what."""

import pytest

from tests.crash_points.search import ONE_PAIR_IN, search, starts
from tests.simulation.catalogue import MUTATIONS
from tests.simulation.mutations import applied

FOUND_IN = {
    "take an unknown commit for a success": "in turn",
    "take anybody's entry for our own": "gapped",
    "let the next entry's outputs overtake": "in turn",
    "go on paying after a failure": "made again",
    "let no fault halt its session": "corrected",
}


@pytest.mark.parametrize(("mutation", "work"), FOUND_IN.items())
def test_the_mutation_is_found(mutation: str, work: str) -> None:
    healthy = starts(work)
    (chosen,) = [one for one in MUTATIONS if one.name == mutation]

    with applied(chosen):
        is_found = any(search(start, ONE_PAIR_IN).failures for start in healthy)

    assert is_found
    assert not search(healthy[0], ONE_PAIR_IN).failures
