"""`python -m conformance`: Microsoft's own live tests of its Python SDKs, against `local`.

The source distributions of azure-cosmos and azure-servicebus, in the versions that are installed,
come from the package index, and are kept for the next run in ~/.cache/tworegions-conformance. Their
tests run as they are; preparers and configuration are ours. A test passes, is refused by name (what
`local` does not offer says so), is not applicable (conformance/not_applicable.toml has the list,
with reasons), or fails. Exit status: 0 nothing failed, 1 something did, 2 the tests could not be
had.
"""

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.catalogue import SUITES
from conformance.fetching import NotFetched
from conformance.running import Outcome, Run

ENDINGS = ("passed", "refused", "not applicable", "failed")
# How the last whole run of each suite ended that somebody recorded.
WHOLE_RUNS = Path(__file__).parent / "whole_runs.json"


def main() -> int:
    """Run suites and print how each of their tests ended."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"{', '.join(SUITES)}; default: all"
    )
    parser.add_argument(
        "--only",
        default="*",
        metavar="PATTERN",
        help="of file or file::class::test, such as 'test_q*' or '*::test_query_*'",
    )
    parser.add_argument("--short", action="store_true", help="less than a minute of each suite")
    parser.add_argument(
        "--minutes", type=float, default=25, help="what has not ended by then has failed (25)"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help=f"keep the counts of whole suites in {WHOLE_RUNS.name}",
    )
    arguments = parser.parse_args()
    if arguments.record and (arguments.short or arguments.only != "*"):
        parser.error("only the counts of whole suites are recorded")
    names = arguments.suites or list(SUITES)
    for name in names:
        if name not in SUITES:
            parser.error(f"there is no suite {name!r}, only {', '.join(SUITES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    outcomes = []
    only = {name: SUITES[name].short if arguments.short else (arguments.only,) for name in names}
    try:
        for outcome in Run(only, arguments.minutes * 60).run():
            outcomes.append(outcome)
            if outcome.ending == "failed":
                print(f"FAILED {outcome.suite} {outcome.test}\n{outcome.reason}\n", flush=True)
    except NotFetched as reason:
        print(reason, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if not outcomes:
        parser.error(f"no test of {', '.join(names)} is named {arguments.only!r}")
    print_summaries(names, outcomes, records=arguments.record)
    return int(any(outcome.ending == "failed" for outcome in outcomes))


def print_summaries(names: Sequence[str], outcomes: Sequence[Outcome], *, records: bool) -> None:
    """Print how each suite ended beside its last whole run, which this one replaces if asked to."""
    last = json.loads(WHOLE_RUNS.read_text("utf-8"))
    for name in names:
        counts = print_summary(name, [one for one in outcomes if one.suite == name], last)
        last[name] = {"version": SUITES[name].version, **counts}
    if records:
        WHOLE_RUNS.write_text(json.dumps(last, indent=2) + "\n", encoding="utf-8")


def print_summary(
    name: str, outcomes: list[Outcome], last: Mapping[str, Mapping[str, Any]]
) -> dict[str, int]:
    """Print reasons with the number of tests that each ended, what failed, and the counts.

    Beside these stand the counts of the last whole run. Returns the counts.
    """
    print(f"{SUITES[name].distribution} {SUITES[name].version}")
    for ending in ("refused", "not applicable"):
        print(f"  {ending}:")
        reasons = Counter(one.reason for one in outcomes if one.ending == ending)
        for reason, count in reasons.most_common():
            print(f"    {count:4} {reason}")
    print("  failed:")
    for outcome in sorted(outcomes, key=lambda one: one.test):
        if outcome.ending == "failed":
            print(f"         {outcome.test}")
    found = Counter(one.ending for one in outcomes)
    counts, before = {ending: found[ending] for ending in ENDINGS}, last.get(name, {})
    print("  " + ", ".join(f"{counts[ending]} {ending}" for ending in ENDINGS))
    beside = ", ".join(f"{before[ending]} {ending}" for ending in ENDINGS if ending in before)
    print(
        f"  the last whole run, of {before['version']}: {beside}"
        if beside
        else "  no whole run yet"
    )
    return counts


if __name__ == "__main__":
    sys.exit(main())
