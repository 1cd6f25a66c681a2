"""How many seeds it takes to find a mutation."""

from simulation.run import simulate
from simulation.weather import CLIMATES
from tests.simulation.mutations import Mutation, applied


def seeds_to_detection(mutation: Mutation) -> tuple[int, str] | None:
    """How many seeds were needed, and what showed; None where none of them found it."""
    with applied(mutation):
        for seed in range(mutation.seeds_max):
            report = simulate(seed, CLIMATES[mutation.climate])
            if report.violations:
                return seed + 1, ", ".join(sorted({v.promise for v in report.violations}))
    return None
