"""`python -m proof.simulation`: run many seeds; show what broke, and the command that replays it.

Exit status: 0 every promise held, 1 one was broken, 130 it was interrupted before the last seed.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from proof.simulation.campaign import CampaignTotals, run_campaign
from proof.simulation.run import RunReport, shrink
from proof.simulation.work.scenarios import SCENARIOS
from proof.simulation.world.faults import PROFILES

INTERRUPTED = 130
SHOWN_MAX = 10
SHRUNK_MAX = 3
PROGRESS_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    began = time.monotonic()
    totals = CampaignTotals()
    is_interrupted = False
    try:
        run_all(options, totals, began)
    except KeyboardInterrupt:
        is_interrupted = True
        print("interrupted", file=sys.stderr)
    print(summary(totals, options.profile, time.monotonic() - began))
    if is_interrupted:
        return INTERRUPTED
    if options.shrink:
        for report in totals.failed[:SHRUNK_MAX]:
            print(describe(shrink(report, SCENARIOS[report.scenario])))
    return 1 if totals.failed else 0


def run_all(options: argparse.Namespace, totals: CampaignTotals, began: float) -> None:
    shown_at = began
    seeds = range(options.first, options.first + options.seeds)
    for part in run_campaign(options.scenario, options.profile, seeds, options.jobs):
        for report in part.failed[: max(0, SHOWN_MAX - len(totals.failed))]:
            print(failure(report), flush=True)
        totals.include(part)
        if time.monotonic() - shown_at > PROGRESS_SECONDS:
            shown_at = time.monotonic()
            rate = totals.runs / (shown_at - began)
            progress = f"{totals.runs}/{options.seeds} seeds, {rate:.1f} a second"
            print(f"{progress}, {len(totals.failed)} failed", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m proof.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--seeds", type=int, default=200, help="how many seeds are run")
    found.add_argument("--first", type=int, default=0, help="the first seed")
    scenario = "what each seed runs; orders are sagas"
    found.add_argument("--scenario", choices=sorted(SCENARIOS), default="any", help=scenario)
    found.add_argument("--profile", choices=sorted(PROFILES), default="rough")
    found.add_argument("--jobs", type=int, default=1, help="how many processes run seeds")
    fewest = "look for the fewest faults that break a promise"
    found.add_argument("--shrink", action="store_true", help=fewest)
    return found


def failure(report: RunReport) -> str:
    broken = "\n".join(f"  {str(violation)[:300]}" for violation in report.violations[:3])
    what = f"--profile {report.profile.name} --scenario {report.scenario}"
    command = f"python -m proof.simulation --first {report.seed} --seeds 1 {what} --shrink"
    return f"seed {report.seed} breaks promises:\n{broken}\n  replay: {command}"


def describe(report: RunReport) -> str:
    lines = [
        f"seed {report.seed} runs {report.scenario} with {report.variant}",
        *(f"  {fault}" for fault in report.faults),
        *(f"  broke {str(violation)[:600]}" for violation in report.violations[:3]),
    ]
    return "\n".join(lines)


def summary(totals: CampaignTotals, profile: str, seconds: float) -> str:
    faults = "\n".join(f"  {count:>9,}  {kind}" for kind, count in totals.faults.most_common())
    ends = ", ".join(f"{name} {count:,}" for name, count in totals.outcomes.most_common())
    return (
        f"{totals.runs:,} seeds with {profile} faults, {len(totals.failed)} failed: "
        f"{totals.messages:,} messages, {totals.entries:,} entries, "
        f"{totals.virtual_seconds / 3600:,.0f} virtual hours in {seconds:,.0f} s "
        f"({totals.runs / max(seconds, 1e-9):.1f} seeds a second)\n"
        f"{totals.faults.total():,} faults:\n{faults}\noutcomes: {ends}"
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
