"""`python -m tests.simulation`: how many seeds it takes to find each mutation, as a table."""

import logging
import statistics
import sys

from tests.simulation.catalogue import MUTATIONS
from tests.simulation.detection import seeds_to_detection


def main() -> int:
    """Print a table; the exit status is 1 where one was not found."""
    logging.getLogger("lockstep").setLevel(logging.CRITICAL + 1)
    needed: list[int] = []
    print("| breaks | change | climate | seeds | shown by |\n|---|---|---|---|---|")
    for mutation in MUTATIONS:
        answer = seeds_to_detection(mutation)
        seeds, shown = answer or ("not found", "")
        needed += [answer[0]] if answer else []
        print(
            f"| {mutation.promise} | {mutation.name} | {mutation.climate} | {seeds} | {shown} |",
            flush=True,
        )
    print(f"\n{len(needed)} of {len(MUTATIONS)} found, median {statistics.median(needed):g} seeds")
    return 0 if len(needed) == len(MUTATIONS) else 1


if __name__ == "__main__":
    sys.exit(main())
