"""`python -m simulation`: run many seeds, and show what broke with the command that replays it.

Exit status: 0 every promise held, 1 one was broken, 130 it was interrupted before the last seed.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from simulation.campaign import Totals, campaign, smallest
from simulation.faults import CLIMATES
from simulation.run import Report
from simulation.scenarios import PLAYS

INTERRUPTED = 130
SHOWN_MAX = 10
SHRUNK_MAX = 3
PROGRESS_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the answer is the exit status."""
    options = parser().parse_args(arguments)
    began = time.monotonic()
    totals = Totals()
    is_interrupted = False
    try:
        run_all(options, totals, began)
    except KeyboardInterrupt:
        is_interrupted = True
        print("interrupted", file=sys.stderr)
    print(summary(totals, options.climate, time.monotonic() - began))
    if is_interrupted:
        return INTERRUPTED
    if options.shrink:
        for report in totals.failed[:SHRUNK_MAX]:
            print(story(smallest(report)))
    return 1 if totals.failed else 0


def run_all(options: argparse.Namespace, totals: Totals, began: float) -> None:
    """Run the seeds and add them up; tell of failures at once, and of progress now and then."""
    shown_at = began
    seeds = range(options.first, options.first + options.seeds)
    for part in campaign(options.play, options.climate, seeds, options.jobs):
        for report in part.failed[: max(0, SHOWN_MAX - len(totals.failed))]:
            print(failure(report), flush=True)
        totals.include(part)
        if time.monotonic() - shown_at > PROGRESS_SECONDS:
            shown_at = time.monotonic()
            print(progress(totals, options.seeds, shown_at - began), file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="python -m simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--seeds", type=int, default=200, help="how many seeds are run")
    found.add_argument("--first", type=int, default=0, help="the first seed")
    found.add_argument(
        "--play", choices=sorted(PLAYS), default="any", help="what the seeds play; orders are sagas"
    )
    found.add_argument("--climate", choices=sorted(CLIMATES), default="rough")
    found.add_argument("--jobs", type=int, default=1, help="how many processes run seeds")
    found.add_argument(
        "--shrink", action="store_true", help="look for the fewest misfortunes that break it"
    )
    return found


def replay(report: Report) -> str:
    """The command that runs a seed again."""
    what = f"--climate {report.climate.name} --play {report.play}"
    return f"python -m simulation --first {report.seed} --seeds 1 {what} --shrink"


def failure(report: Report) -> str:
    """What a seed broke, and how to see it again."""
    broken = "\n".join(f"  {str(violation)[:300]}" for violation in report.violations[:3])
    return f"seed {report.seed} breaks promises:\n{broken}\n  replay: {replay(report)}"


def story(report: Report) -> str:
    """A seed's variant and its misfortunes, and what they broke."""
    lines = [
        f"seed {report.seed} plays {report.play} in {report.variant}",
        *(f"  {m}" for m in report.diary),
    ]
    return "\n".join([*lines, *(f"  broke {str(v)[:600]}" for v in report.violations[:3])])


def progress(totals: Totals, wanted: int, seconds: float) -> str:
    """How far it is."""
    return (
        f"{totals.runs}/{wanted} seeds, {totals.runs / seconds:.1f} a second, "
        f"{len(totals.failed)} failed"
    )


def summary(totals: Totals, climate: str, seconds: float) -> str:
    """What all runs came to."""
    faults = "\n".join(f"  {count:>9,}  {kind}" for kind, count in totals.faults.most_common())
    ends = ", ".join(f"{name} {count:,}" for name, count in totals.outcomes.most_common())
    return (
        f"{totals.runs:,} seeds in {climate} weather, {len(totals.failed)} failed: "
        f"{totals.messages:,} messages, {totals.entries:,} entries, "
        f"{totals.virtual_seconds / 3600:,.0f} virtual hours in {seconds:,.0f} s "
        f"({totals.runs / max(seconds, 1e-9):.1f} seeds a second)\n"
        f"{totals.faults.total():,} faults:\n{faults}\noutcomes: {ends}"
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
