"""`python -m bench.counts`: what a message costs, ours against two well-known patterns.

Each system runs in two regions on the local cloud and gets the same messages of 1 KB, fault-free;
then the counters of the services are read. Exit status: 0 all aims hold, 1 one does not (it is
named), 2 the measurement could not be made.
"""

import argparse
import sys
from collections.abc import Sequence

from bench.arguments import positive
from bench.cloud import BenchFailed
from bench.counts.aims import aims
from bench.counts.table import batch_line, table
from bench.counts.visits import Plan, batches, visits
from bench.load import BODY_BYTES
from bench.systems import IN_BATCHES, OURS, SYSTEMS

AIM_MISSED, NOT_MEASURED, INTERRUPTED = 1, 2, 130


def plan_of(words: Sequence[str]) -> Plan:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.counts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sessions", type=positive, default=20, help="sessions of a wave (20)")
    parser.add_argument("--each", type=several, default=20, help="messages of a visit (20)")
    options = parser.parse_args(words)
    return Plan(options.sessions, options.each)


def several(text: str) -> int:
    """A number from 2 on: the first message of a visit is cold, the others are warm."""
    if positive(text) < 2:
        raise argparse.ArgumentTypeError("must be at least 2")
    return int(text)


def run(plan: Plan) -> int:
    """Count, print, judge."""
    counted = {}
    for system in SYSTEMS:
        progress(f"counting {system.name}")
        counted[system.name] = visits(system, plan)
    print(f"{plan.sessions} sessions, {BODY_BYTES} bytes a body, {plan.each} messages a visit\n")
    print(table(counted), flush=True)
    progress(f"counting {IN_BATCHES.name}")
    batch = batches(IN_BATCHES)
    print(batch_line(batch))
    missed = [aim for aim in aims(counted[OURS.name], batch) if not aim.holds]
    for aim in missed:
        print(f"aim missed: {aim}")
    if not missed:
        print("all aims hold")
    return AIM_MISSED if missed else 0


def progress(what: str) -> None:
    """Say on stderr what is being done."""
    print(f"... {what}", file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    """Run the command; the answer is the exit status."""
    plan = plan_of(words)
    try:
        return run(plan)
    except (BenchFailed, OSError) as error:
        print(f"python -m bench.counts: {error}", file=sys.stderr)
        return NOT_MEASURED
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
