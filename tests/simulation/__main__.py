"""`python -m tests.simulation`: how many seeds it takes to find each mutation, as a table."""

import logging
import statistics
import sys

from tests.simulation.detection import EVERY_MUTATION, seeds_to_detection


def main() -> int:
    """Print a table; the exit status is 1 where one was not found."""
    logging.getLogger("lockstep").setLevel(logging.CRITICAL + 1)
    needed: list[int] = []
    print("| breaks | change | climate | seeds | shown by |\n|---|---|---|---|---|")
    for mutation in EVERY_MUTATION:
        answer = seeds_to_detection(mutation)
        seeds, shown = answer or ("not found", "")
        needed += [answer[0]] if answer else []
        print(
            f"| {mutation.promise} | {mutation.name} | {mutation.climate} | {seeds} | {shown} |",
            flush=True,
        )
    count = len(EVERY_MUTATION)
    print(f"\n{len(needed)} of {count} found, median {statistics.median(needed):g} seeds")
    return 0 if len(needed) == count else 1


if __name__ == "__main__":
    sys.exit(main())
