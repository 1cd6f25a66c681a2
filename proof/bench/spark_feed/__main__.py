"""The speed of the Spark feed, beside bare loops that send the same messages.

    python -m proof.bench.spark_feed [--days N] [--sample N]

Each system sends flights to both namespaces of a fresh local cloud without hosts, on the same cores
as the cloud; nobody takes the messages out. The feed's seconds are the whole job's: Spark's start,
reading, judging, numbering, binding and sending, and *sending* is the last of them. A second run
over the same source follows, and should send nothing. The bare loops only send, and only a sample
of what the feed has sent; their seconds begin with the first send. MiB is the peak of all processes
of a system, Java and Python, *cloud MiB* what the cloud holds in the end. A shared machine changes
*busy*, the processor time of a system's own processes for an event, less than it changes seconds;
if no event was sent it is that for a row. The year is 365 days.
"""

import argparse
import tempfile
from pathlib import Path

from proof.bench.spark_feed.runs import (
    MIB,
    SendRun,
    feed_flights,
    run_bare_loops,
    running_fresh_cloud,
)
from proof.testbed.command import make_parser, show_progress

SAMPLE = 120_000
PROCESSES = (1, 2)
HEAD = (
    f"{'':26}{'events':>9}{'seconds':>9}{'sending':>9}{'events/s':>10}{'sending':>9}"
    f"{'busy us':>9}{'MiB':>7}{'cloud MiB':>11}"
)


def main() -> None:
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch:
        compare(options, Path(scratch))


def parse_arguments() -> argparse.Namespace:
    parser = make_parser("proof.bench.spark_feed", __doc__)
    parser.add_argument("--days", type=int, default=1, help="of flights to compare with (1)")
    sample = f"events for the bare loops ({SAMPLE})"
    parser.add_argument("--sample", type=int, default=SAMPLE, help=sample)
    return parser.parse_args()


def compare(options: argparse.Namespace, folder: Path) -> None:
    print(f"{options.days} days of flights into two namespaces\n{HEAD}", flush=True)
    with running_fresh_cloud(folder) as feed_cloud:
        show_progress("feeding")
        feed = feed_flights(options.days, feed_cloud)
        print(format_line("feed, local[2]", feed), flush=True)
        show_progress("feeding the same again")
        again = feed_flights(options.days, feed_cloud)
        print(format_line("feed again, nothing new", again), flush=True)
    ratios = []
    for processes in PROCESSES:
        name = f"bare loop, {processes} process{'es' * (processes > 1)}"
        show_progress(f"{name}, a sample")
        with running_fresh_cloud(folder) as feed_cloud:
            plan = feed_cloud.manifest / "plan"
            rival = run_bare_loops(processes, options.sample, plan, feed_cloud)
        print(format_line(name, rival), flush=True)
        ratios.append(format_ratio(name, feed, rival))
    if options.sample < feed.events:
        print(f"the bare loops sent a sample of {options.sample:,} events each time")
    print("\n".join(ratios), flush=True)


def format_line(name: str, sent: SendRun) -> str:
    """Write a row of the comparison; *busy us* is processor time per event sent, or row read."""
    times = f"{sent.seconds:9.1f}{sent.sending_seconds:9.0f}"
    whole = format_rate(sent.events, sent.seconds)
    sending = format_rate(sent.events, sent.sending_seconds)
    rates = f"{whole:>10}{sending:>9}"
    busy = f"{1e6 * sent.busy_seconds / (sent.events or sent.rows):9.0f}"
    memory = f"{sent.memory_bytes / MIB:7.0f}{sent.cloud_bytes / MIB:11.0f}"
    return f"{name:26}{sent.events:9}{times}{rates}{busy}{memory}"


def format_rate(events: int, seconds: float) -> str:
    return f"{events / seconds:.0f}" if events and seconds else ""


def format_ratio(name: str, feed: SendRun, rival: SendRun) -> str:
    """Return the feed's rate beside a rival's, for the whole job and for its sending alone."""
    theirs = rival.events / rival.seconds
    whole = feed.events / feed.seconds / theirs
    alone = feed.events / max(feed.sending_seconds, 1.0) / theirs
    return f"feed : {name:20} {whole:6.2f}  sending alone {alone:6.2f}"


if __name__ == "__main__":
    main()
