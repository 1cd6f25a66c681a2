"""`python -m tests.mutants`: how many seeds it takes to find each mutant, as a table."""

import logging
import statistics
import sys

from tests.mutants.catalogue import FOR_SIMULATION
from tests.mutants.detection import seeds_to_detection


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


if __name__ == "__main__":
    sys.exit(main())
