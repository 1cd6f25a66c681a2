"""All mutants. Each check takes those that it must notice."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest

from tests.mutants import consuming, delivering, growing, journal, publishing, rights, sagas
from tests.mutants.mutant import Mutant
from tests.promises import TESTS_BY_PROMISE

SAMPLED_OF_EACH = 2

MUTANTS: tuple[Mutant, ...] = (
    *journal.MUTANTS,
    *consuming.MUTANTS,
    *delivering.MUTANTS,
    *growing.MUTANTS,
    *publishing.MUTANTS,
    *sagas.MUTANTS,
    *rights.MUTANTS,
)
FOR_TESTS = tuple(mutant for mutant in MUTANTS if mutant.tests)
FOR_SIMULATION = tuple(mutant for mutant in MUTANTS if mutant.simulated)
FOR_CRASH_POINTS = tuple(mutant for mutant in MUTANTS if mutant.crash_point)


def choose_sample() -> Iterator[Mutant]:
    """Two mutants of each promise, those first that the promise's own quick tests find."""
    for promise, files in TESTS_BY_PROMISE.items():
        of_promise = [mutant for mutant in FOR_TESTS if mutant.promise == promise]
        # Sorting keeps the order of the catalogue, so the same ones are chosen in every run.
        yield from sorted(of_promise, key=lambda m: m.tests not in files)[:SAMPLED_OF_EACH]


# What is tried where there is no time for all.
SAMPLE = tuple(choose_sample())


def as_parameters(mutants: Sequence[Mutant], sample: Collection[Mutant]) -> list[Any]:
    """All of them for the proof, and those of the sample for every run."""
    return [
        pytest.param(
            mutant,
            id=f"{mutant.promise}: {mutant.name}",
            marks=[] if mutant in sample else pytest.mark.proof,
        )
        for mutant in mutants
    ]
