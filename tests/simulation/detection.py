"""How many seeds it takes to find a mutation."""

from simulation.plays import PLAYS
from simulation.run import simulate
from simulation.weather import CLIMATES
from tests.simulation.catalogue import MUTATIONS
from tests.simulation.mutations import Mutation, applied
from tests.simulation.saga_catalogue import SAGA_MUTATIONS

EVERY_MUTATION = (*MUTATIONS, *SAGA_MUTATIONS)


def seeds_to_detection(mutation: Mutation) -> tuple[int, str] | None:
    """How many seeds were needed, and what showed; None where none of them found it."""
    climate, prepare = CLIMATES[mutation.climate], PLAYS[mutation.play]
    with applied(mutation):
        for seed in range(mutation.seeds_max):
            report = simulate(seed, climate, prepare=prepare)
            if report.violations:
                return seed + 1, ", ".join(sorted({v.promise for v in report.violations}))
    return None
