"""The search is worth what it finds: a broken engine comes to another end, and says after what."""

import pytest

from tests.crash_points.search import ONE_PAIR_IN, search, starts
from tests.mutants.catalogue import FOR_CRASH_POINTS, as_parameters
from tests.mutants.loading import applied
from tests.mutants.mutant import Mutant

pytestmark = pytest.mark.slow


# Found by more pairs of failures than a sample has.
RARE = ("take anybody's entry for our own",)


@pytest.mark.parametrize(
    "mutant",
    as_parameters(FOR_CRASH_POINTS, [one for one in FOR_CRASH_POINTS if one.name not in RARE]),
)
def test_the_mutant_is_found(mutant: Mutant) -> None:
    healthy = starts(str(mutant.crash_point))

    with applied(mutant):
        is_found = any(search(start, ONE_PAIR_IN).failures for start in healthy)

    assert is_found
    assert not search(healthy[0], ONE_PAIR_IN).failures
