"""`python -m tests.conformance SUITE`: the live tests of an SDK against Azure on one machine."""

import argparse
import sys
from collections import Counter

from tests.conformance.catalogue import SUITES
from tests.conformance.suite import Outcome, run_suite

ENDINGS = ("passed", "refused", "failed", "not applicable")


def main() -> int:
    """Run a suite and print how it ended; the exit status is 1 when a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--only", default="*", help="a pattern of file names, such as 'test_q*'")
    parser.add_argument("--jobs", type=int, default=3, help="files at a time (default: 3)")
    arguments = parser.parse_args()
    suite = SUITES[arguments.suite]
    outcomes = []
    for outcome in run_suite(arguments.suite, suite, arguments.only, arguments.jobs):
        outcomes.append(outcome)
        if outcome.ending == "failed":
            print(f"FAILED {outcome.test}\n{outcome.reason}\n", flush=True)
    print_summary(outcomes)
    return int(any(outcome.ending == "failed" for outcome in outcomes))


def print_summary(outcomes: list[Outcome]) -> None:
    for ending in ("refused", "not applicable"):
        reasons = Counter(one.reason for one in outcomes if one.ending == ending)
        print(f"{ending}:")
        for reason, count in reasons.most_common():
            print(f"  {count:4} {reason}")
    print("failed:")
    for outcome in outcomes:
        if outcome.ending == "failed":
            print(f"       {outcome.test}")
    counts = Counter(one.ending for one in outcomes)
    print(", ".join(f"{counts[ending]} {ending}" for ending in ENDINGS))


if __name__ == "__main__":
    sys.exit(main())
