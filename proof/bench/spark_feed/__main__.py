"""The speed of the Spark feed, beside bare loops that send the same messages.

    python -m proof.bench.spark_feed [--days N] [--rows N] [--sample N]

Each system sends flights to both namespaces of a fresh local cloud without hosts, on the same cores
as the cloud; nobody takes the messages out. The feed's seconds are the whole job's: Spark's start,
reading, judging, numbering, binding and sending, and *sending* is the last of them. A second run
over the same source follows, and should send nothing. The bare loops only send, and only a sample
of what the feed has sent; their seconds begin with the first send. MiB is the peak of all processes
of a system, Java and Python, *cloud MiB* what the cloud holds in the end. A shared machine changes
*busy*, the processor time of a system's own processes for an event, less than it changes seconds;
if no event was sent it is that for a row. The year is 365 days.

--rows generates a table, feeds it twice, and compares how many messages each namespace has taken;
its queues drop what is older than a minute.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from proof.bench.spark_feed.runs import (
    MIB,
    SendRun,
    feed_flights,
    run_bare_loops,
    running_fresh_cloud,
)
from proof.bench.spark_feed.table import feed_table, forget_messages, write_table

SAMPLE = 120_000
PROCESSES = (1, 2)
HEAD = (
    f"{'':26}{'events':>9}{'seconds':>9}{'sending':>9}{'events/s':>10}{'sending':>9}"
    f"{'busy us':>9}{'MiB':>7}{'cloud MiB':>11}"
)


def main() -> None:
    options = parse_arguments()
    options.logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch:
        if options.days:
            compare(options, Path(scratch, "compare"))
        if options.rows:
            feed_twice(options, Path(scratch, "table"))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m proof.bench.spark_feed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--days", type=int, default=1, help="of flights to compare with (1)")
    sample = f"events for the bare loops ({SAMPLE})"
    parser.add_argument("--sample", type=int, default=SAMPLE, help=sample)
    table = "rows of a generated table to feed twice (none)"
    parser.add_argument("--rows", type=int, default=0, help=table)
    logs = Path(tempfile.gettempdir(), "bench-spark-logs")
    what = "folder for what the cloud and the feeds log (default: %(default)s)"
    parser.add_argument("--logs", type=Path, default=logs, metavar="DIR", help=what)
    return parser.parse_args()


def compare(options: argparse.Namespace, folder: Path) -> None:
    print(f"{options.days} days of flights into two namespaces\n{HEAD}", flush=True)
    with running_fresh_cloud(folder, options.logs) as feed_cloud:
        show_step("feeding")
        feed = feed_flights(options.days, feed_cloud)
        print(format_line("feed, local[2]", feed), flush=True)
        show_step("feeding the same again")
        again = feed_flights(options.days, feed_cloud)
        print(format_line("feed again, nothing new", again), flush=True)
    ratios = []
    for processes in PROCESSES:
        name = f"bare loop, {processes} process{'es' * (processes > 1)}"
        show_step(f"{name}, a sample")
        with running_fresh_cloud(folder, options.logs) as feed_cloud:
            plan = feed_cloud.manifest / "plan"
            rival = run_bare_loops(processes, options.sample, plan, feed_cloud)
        print(format_line(name, rival), flush=True)
        ratios.append(format_ratio(name, feed, rival))
    if options.sample < feed.events:
        print(f"the bare loops sent a sample of {options.sample:,} events each time")
    print("\n".join(ratios), flush=True)


def feed_twice(options: argparse.Namespace, folder: Path) -> None:
    show_step(f"writing a table of {options.rows:,} rows")
    write_table(folder, options.rows)
    print(f"{options.rows:,} rows of a table into two namespaces\n{HEAD}", flush=True)
    config = ("--config", str(forget_messages(folder)))
    with running_fresh_cloud(folder, options.logs, *config) as feed_cloud:
        for name in ("feed, local[2]", "feed again, nothing new"):
            show_step(name)
            print(format_line(name, feed_table(options.rows, feed_cloud)), flush=True)


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


def show_step(what: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {what}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
