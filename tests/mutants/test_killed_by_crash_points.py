"""The search is worth what it finds: a broken engine comes to another end, and says after what."""

import pytest

from tests.crash_points.search import ONE_PAIR_IN, search, starts
from tests.mutants.catalogue import FOR_CRASH_POINTS
from tests.mutants.loading import applied
from tests.mutants.mutant import Mutant

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mutant", FOR_CRASH_POINTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_found(mutant: Mutant) -> None:
    healthy = starts(str(mutant.crash_point))

    with applied(mutant):
        is_found = any(search(start, ONE_PAIR_IN).failures for start in healthy)

    assert is_found
    assert not search(healthy[0], ONE_PAIR_IN).failures
