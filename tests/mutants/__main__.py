"""`python -m tests.mutants`: how many seeds it takes to find each mutant, as a table."""

import logging
import statistics
import sys

from proof.simulation.run import simulate
from proof.simulation.work.scenarios import SCENARIOS
from proof.simulation.world.faults import PROFILES
from tests.mutants.catalogue import FOR_SIMULATION
from tests.mutants.loading import applied
from tests.mutants.mutant import Mutant


def main() -> int:
    """Print a table; the exit status is 1 where one was not found."""
    logging.getLogger("lockstep").setLevel(logging.CRITICAL + 1)
    needed: list[int] = []
    print("| breaks | change | profile | seeds | shown by |\n|---|---|---|---|---|")
    for mutant in FOR_SIMULATION:
        answer = seeds_to_detection(mutant)
        seeds, shown = answer or ("not found", "")
        needed += [answer[0]] if answer else []
        profile = mutant.simulated.profile if mutant.simulated else ""
        print(f"| {mutant.promise} | {mutant.name} | {profile} | {seeds} | {shown} |", flush=True)
    count = len(FOR_SIMULATION)
    print(f"\n{len(needed)} of {count} found, median {statistics.median(needed):g} seeds")
    return 0 if len(needed) == count else 1


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


if __name__ == "__main__":
    sys.exit(main())
