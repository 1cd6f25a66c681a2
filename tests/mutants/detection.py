"""How many seeds it takes the simulation to find a mutant."""

from proof.simulation.run import simulate
from proof.simulation.work.scenarios import SCENARIOS
from proof.simulation.world.faults import PROFILES
from tests.mutants.loading import applied
from tests.mutants.mutant import Mutant


def seeds_to_detection(mutant: Mutant) -> tuple[int, str] | None:
    """How many seeds were needed, and what showed; None where none of them found it."""
    chosen = mutant.simulated
    assert chosen is not None
    profile, scenario = PROFILES[chosen.profile], SCENARIOS[chosen.scenario]
    with applied(mutant):
        for seed in range(chosen.seeds_max):
            report = simulate(seed, profile, scenario=scenario)
            if report.violations:
                return seed + 1, ", ".join(sorted({v.promise for v in report.violations}))
    return None
