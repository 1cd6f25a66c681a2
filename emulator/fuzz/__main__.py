"""`python -m fuzz`: valid AMQP and Cosmos DB requests, mutated, until something gives way.

A cloud is started as a process. Cases come from one seed: whole AMQP connections and rows of HTTP
requests, valid ones changed where their structure is known. Beside them a well-behaved client works
on, which must not notice anything. Each connection must end with a condition, each request with an
answer that is no 500; the process must not end, log or grow.

Exit status: 0 nothing was found, 1 something was, 2 it could not be done.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from random import SystemRandom
from typing import Any

from fuzz.campaign import Fuzzed, Outcome, run_campaign, shrink
from fuzz.cosmos import COSMOS
from fuzz.servicebus import SERVICE_BUS
from local.testing.children import ChildFailed

SERVICES: dict[str, Fuzzed[Any]] = {"servicebus": SERVICE_BUS, "cosmos": COSMOS}
SECONDS = 60.0
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign for each service, and print what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"for each service ({SECONDS:g})"
    )
    parser.add_argument("--seed", type=int, help="other ones in every run, unless it is given")
    parser.add_argument("--cases", type=int, help="so many of each service at most")
    parser.add_argument("--only", type=int, metavar="N", help="the case of this number alone")
    parser.add_argument("--service", choices=SERVICES, help="this one alone")
    chosen = parser.parse_args(arguments)
    seed = SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    first = 0 if chosen.only is None else chosen.only - 1
    last = chosen.cases if chosen.only is None else chosen.only
    status = 0
    try:
        for name in [chosen.service] if chosen.service else SERVICES:
            fuzzed = SERVICES[name]
            cases = islice(fuzzed.generate(seed), first, last)
            outcome = run_campaign(fuzzed, cases, chosen.seconds)
            print(f"{name}: seed {seed}, {describe(outcome)}", flush=True)
            if outcome.found:
                report(fuzzed, outcome)
                status = 1
    except ChildFailed as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def describe(outcome: Outcome[Any]) -> str:
    ending = "FOUND something" if outcome.found else "nothing was found"
    grown = f"memory grew by {outcome.grown_bytes / 2**20:.1f} MiB after the warm-up"
    return f"{outcome.cases} cases in {outcome.seconds:.0f} s, {grown}: {ending}"


def report(fuzzed: Fuzzed[Any], outcome: Outcome[Any]) -> None:
    """Print what was found, and the cases that show it."""
    number = outcome.recent[-1][0] if outcome.recent else 0
    print(f"case {number}: {outcome.found}", flush=True)
    again = shrink(fuzzed, outcome)
    if again is None:
        print("it does not show again with the last cases alone; with the seed it may")
    shown = list(outcome.recent)[-1:] if again is None else again.recent
    for number, case in shown:
        print(f"--- case {number}\n{case.describe()}")
    if again is not None:
        print(f"--- shown again: {again.found}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
