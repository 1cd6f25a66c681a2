"""The speed of the Spark feed, beside bare loops that send the same messages.

    python -m proof.bench.spark_feed [--days N] [--growth 1,30] [--rows N] [--books N] [--sample N]

Each system sends flights to both namespaces of a fresh local cloud without hosts, on the same cores
as the cloud; nobody takes the messages out. The feed's seconds are the whole job's: Spark's start,
reading, judging, numbering, binding and sending, and *sending* is the last of them. A second run
over the same source follows, and should send nothing. The bare loops only send, and only a sample
of what the feed has sent; their seconds begin with the first send. MiB is the peak of all processes
of a system, Java and Python, *cloud MiB* what the cloud holds in the end. A shared machine changes
*busy*, the processor time of a system's own processes for an event, less than it changes seconds;
if no event was sent it is that for a row.

--growth repeats the first run for other sizes; a row's share of the start shrinks with the size, so
it also says what each further row takes. --rows generates a table, feeds it twice, and compares how
many messages each namespace has taken; its queues drop what is older than a minute. --books plants
one wrong message in so many and has them reconciled, without a cloud. The year is 365 days.
"""

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from proof.bench.spark_feed.runs import (
    MIB,
    SendRun,
    add_logs_argument,
    feed_flights,
    run_bare_loops,
    running_fresh_cloud,
)
from proof.bench.spark_feed.table import feed_table, forget_messages, write_table
from proof.testbed.command import RunFailed
from spark.numbering import digest_event
from spark.reconciliation import find_differences
from spark.runtime import open_spark

SAMPLE = 120_000
PROCESSES = (1, 2)
SESSIONS = 4000
GROUP, TYPE = "bench", "account.add"
HEAD = (
    f"{'':26}{'events':>9}{'seconds':>9}{'sending':>9}{'events/s':>10}{'sending':>9}"
    f"{'busy us':>9}{'MiB':>7}{'cloud MiB':>11}"
)

GROWTH_HEAD = (
    f"{'days':>6}{'rows':>9}{'seconds':>9}{'us/row':>9}{'busy':>7}{'one more row':>15}{'busy':>7}"
)


def main() -> None:
    options = parse_arguments()
    options.logs.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch:
        known = {}
        if options.days:
            known[options.days] = compare(options, Path(scratch, "compare"))
        if options.growth:
            grow(options, known, Path(scratch))
        if options.rows:
            feed_twice(options, Path(scratch, "table"))
    if options.books:
        show_step(f"reconciling {options.books:,} messages")
        find_one_wrong_of(options.books)
    print(f"all of it took {time.monotonic() - began:.0f} s", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m proof.bench.spark_feed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--days", type=int, default=1, help="of flights to compare with (1)")
    growth = "days, comma separated (none)"
    parser.add_argument("--growth", type=parse_sizes, default=[], help=growth)
    parser.add_argument("--books", type=int, default=0, help="messages to reconcile (none)")
    sample = f"events for the bare loops ({SAMPLE})"
    parser.add_argument("--sample", type=int, default=SAMPLE, help=sample)
    table = "rows of a generated table to feed twice (none)"
    parser.add_argument("--rows", type=int, default=0, help=table)
    add_logs_argument(parser)
    return parser.parse_args()


def parse_sizes(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def compare(options: argparse.Namespace, folder: Path) -> SendRun:
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
    return feed


def grow(options: argparse.Namespace, known: dict[int, SendRun], scratch: Path) -> None:
    """Print the feed's time per row for some numbers of days, each of which is measured once."""
    for days in options.growth:
        if days not in known:
            show_step(f"feeding {days} days")
            with running_fresh_cloud(scratch / f"days-{days}", options.logs) as feed_cloud:
                known[days] = feed_flights(days, feed_cloud)
    lines = format_growth([(days, known[days]) for days in options.growth])
    print("\n".join(lines), flush=True)


def feed_twice(options: argparse.Namespace, folder: Path) -> None:
    show_step(f"writing a table of {options.rows:,} rows")
    write_table(folder, options.rows)
    print(f"{options.rows:,} rows of a table into two namespaces\n{HEAD}", flush=True)
    config = ("--config", str(forget_messages(folder)))
    with running_fresh_cloud(folder, options.logs, *config) as feed_cloud:
        for name in ("feed, local[2]", "feed again, nothing new"):
            show_step(name)
            print(format_line(name, feed_table(options.rows, feed_cloud)), flush=True)


def find_one_wrong_of(messages: int) -> None:
    """Plant one wrong digest among so many messages; raises RunFailed unless just it is found."""
    with open_spark("local[2]") as spark:
        wrong = int(hashlib.sha256(str(messages).encode()).hexdigest(), 16) % messages
        events = make_events(spark, messages)
        began = time.monotonic()
        found = find_differences(events, make_journal(events, wrong), GROUP).collect()
        seconds = time.monotonic() - began
    findings_found = [(row["finding"], row["id"]) for row in found]
    if findings_found != [("different content", f"id-{wrong}")]:
        raise RunFailed(f"planted id-{wrong}, found {findings_found[:5]}")
    print(f"books: 1 wrong in {messages} found, and nothing else, in {seconds:.1f} s", flush=True)


def make_events(spark: SparkSession, messages: int) -> DataFrame:
    return spark.range(messages).select(
        F.format_string("session-%d", F.col("id") % SESSIONS).alias("session"),
        F.lit(GROUP).alias("group"),
        F.floor(F.col("id") / SESSIONS).alias("sequence"),
        F.lit(TYPE).alias("type"),
        F.format_string('{"amount":%d}', "id").alias("body"),
        F.format_string("id-%d", "id").alias("id"),
        F.lit(None).cast("string").alias("time"),
    )


def make_journal(events: DataFrame, wrong: int) -> DataFrame:
    """Return entries that cover the events one by one; one of them says something else."""
    changed = events.withColumn(
        "body", F.when(F.col("id") == f"id-{wrong}", "{}").otherwise(F.col("body"))
    ).withColumn("digest", digest_event())
    identities = F.struct("id", "type", "digest", "group", "sequence")
    return changed.select(
        "session",
        F.lpad(F.col("sequence").cast("string"), 12, "0").alias("id"),
        F.lit("completed").alias("status"),
        F.array(identities).alias("identities"),
    )


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


def format_growth(measured: Sequence[tuple[int, SendRun]]) -> list[str]:
    """Return the time per row by size, and what each row more than in the size before has taken."""
    lines, before = [GROWTH_HEAD], None
    for days, sent in measured:
        lines.append(
            f"{days:6}{sent.rows:9}{sent.seconds:9.1f}{1e6 * sent.seconds / sent.rows:9.0f}"
            f"{1e6 * sent.busy_seconds / sent.rows:7.0f}{format_more(before, sent)}"
        )
        before = sent
    return lines


def format_more(before: SendRun | None, sent: SendRun) -> str:
    """Return microseconds, and those of processor time, for each row more than before."""
    if before is None or sent.rows <= before.rows:
        return ""
    rows = sent.rows - before.rows
    seconds, busy = sent.seconds - before.seconds, sent.busy_seconds - before.busy_seconds
    return f"{1e6 * seconds / rows:15.0f}{1e6 * busy / rows:7.0f}"


def show_step(what: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {what}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
