"""`python -m tests.crash_points`: every fault and every pair, with progress and a table."""

import argparse
import logging
import sys
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from time import monotonic

from tests.crash_points.search import Searched, search, starts, undisturbed
from tests.crash_points.workloads import WORKLOADS

CHUNK = 4
PROGRESS_SECONDS = 10.0


def main() -> int:
    """Print a table; the exit status is 1 where a piece of work came to another end."""
    chosen = parser().parse_args()
    be_quiet()
    began = monotonic()
    searched = search_all(chosen.one_pair_in, chosen.jobs)
    report(searched, monotonic() - began)
    return 1 if any(one.failures for one in searched.values()) else 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.crash_points", description=__doc__)
    made.add_argument("--one-pair-in", type=int, default=1, help="only one in so many pairs")
    made.add_argument("--jobs", type=int, default=2, help="processes")
    return made


def be_quiet() -> None:
    """What the engine logs about every fault is of no interest."""
    logging.getLogger("lockstep").setLevel(logging.CRITICAL + 1)


def search_all(one_pair_in: int, jobs: int) -> Mapping[str, Searched]:
    """What came of each piece of work; failures are printed at once."""
    searched: dict[str, Searched] = defaultdict(Searched)
    todo = [start for name in WORKLOADS for start in starts(name)]
    printed_at = monotonic()
    with ProcessPoolExecutor(jobs, initializer=be_quiet) as pool:
        results = pool.map(partial(search, one_pair_in=one_pair_in), todo, chunksize=CHUNK)
        for count, ((name, _), one) in enumerate(zip(todo, results, strict=True), start=1):
            searched[name].add(one)
            for failure in one.failures:
                print(failure, flush=True)
            if monotonic() - printed_at > PROGRESS_SECONDS:
                printed_at = monotonic()
                print(f"{count}/{len(todo)} first faults", file=sys.stderr, flush=True)
    return searched


def report(searched: Mapping[str, Searched], seconds: float) -> None:
    print("| work | calls | one goes wrong | two go wrong | other ends |\n|---|---|---|---|---|")
    for name, one in searched.items():
        counts = (len(undisturbed(name)[0]), one.singles, one.pairs, len(one.failures))
        print(f"| {name} |", " | ".join(f"{count:,}" for count in counts), "|")
    singles = sum(one.singles for one in searched.values())
    pairs = sum(one.pairs for one in searched.values())
    print(f"\n{singles:,} single faults and {pairs:,} pairs in {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
