"""`python -m bench.counts`: what a message costs, ours against two well-known patterns.

Each system runs in two regions on the local cloud and gets the same messages of 1 KB, fault-free;
then the counters of the services are read. Exit status: 0 all aims hold, 1 one does not (it is
named), 2 the measurement could not be made.
"""

import argparse
import sys
from collections.abc import Sequence

from bench.counts.aims import list_aims
from bench.counts.table import format_batch, format_table
from bench.counts.waves import CountPlan, count_batches, count_visits
from bench.load import BODY_BYTES
from bench.systems import IN_BATCHES, OURS, SYSTEMS
from testbed.command import exit_status, parse_count, run_program

AIM_MISSED = 1


def parse_plan(words: Sequence[str]) -> CountPlan:
    parser = argparse.ArgumentParser(
        prog="python -m bench.counts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sessions", type=parse_count, default=20, help="sessions of a wave (20)")
    parser.add_argument("--each", type=parse_several, default=20, help="messages of a visit (20)")
    options = parser.parse_args(words)
    return CountPlan(options.sessions, options.each)


def parse_several(text: str) -> int:
    """A number from 2 on: the first message of a visit is cold, the others are warm."""
    if parse_count(text) < 2:
        raise argparse.ArgumentTypeError("must be at least 2")
    return int(text)


def run(plan: CountPlan) -> int:
    counted = {}
    for system in SYSTEMS:
        show_progress(f"counting {system.name}")
        counted[system.name] = count_visits(system, plan)
    print(f"{plan.sessions} sessions, {BODY_BYTES} bytes a body, {plan.each} messages a visit\n")
    print(format_table(counted), flush=True)
    show_progress(f"counting {IN_BATCHES.name}")
    batch = count_batches(IN_BATCHES)
    print(format_batch(batch))
    missed = [aim for aim in list_aims(counted[OURS.name], batch) if not aim.holds]
    for aim in missed:
        print(f"aim missed: {aim}")
    if not missed:
        print("all aims hold")
    return AIM_MISSED if missed else 0


def show_progress(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    plan = parse_plan(words)
    return exit_status("python -m bench.counts", lambda: run(plan))


if __name__ == "__main__":
    run_program(main)
