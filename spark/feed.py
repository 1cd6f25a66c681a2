"""Feed a source to both regions: `python -m spark.feed --help`."""

import json
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, fields, replace

from pyspark.sql import DataFrame, SparkSession

from shared.settings import Settings
from spark.feeding.config import ChangeLimit, ChangePolicy, DeletedPolicy, FeedConfig
from spark.feeding.dataframe import JOB, FeedResult, feed, select_unfed
from spark.feeding.rejects import require_replaceable
from spark.job.arguments import (
    add_manifest_argument,
    add_source_arguments,
    add_spark_arguments,
    parse_whole_number,
)
from spark.job.console import JobConsole
from spark.job.runtime import open_spark
from spark.job.settings import read_app_settings
from spark.read.mapping import SourceMapping
from spark.read.sources import read_table, stream_table
from spark.send.arguments import add_sending_arguments
from spark.send.datasource import EVENTS_A_LANE, LANES_MAX

DESCRIPTION = """\
Turn rows into numbered events, one ordered stream per session, and send them to both regions. A
mapping declares what the rows mean (docs/spark.md). Connections come from the app settings in the
environment (LOCKSTEP_*, ServiceBus_<region>, Cosmos). Running it again over the same source sends
the same ids, numbers and bytes, and so adds no effect; with a manifest it sends only what is new,
late or changed."""


FEED_OPTIONS = {option.name for option in fields(FeedConfig)}

type FeedSource = Callable[[SparkSession], FeedResult]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the feed; the exit status is 0 only if every event is safe in at least one region."""
    parser = build_feed_parser()
    chosen = parser.parse_args(arguments)
    if chosen.stream and not (chosen.manifest and chosen.checkpoint):
        parser.error("--stream needs --manifest and --checkpoint")
    if chosen.stream and (chosen.dry_run or chosen.full):
        parser.error("--stream cannot be a dry run, and reads every file in full anyway")
    if chosen.stream and chosen.deleted:
        parser.error("--deleted is for a source that is read whole, and not for a stream")
    if chosen.stream and chosen.set_aside:
        parser.error("--set-aside is for a feed without --stream")
    if not chosen.stream and (chosen.checkpoint or chosen.every):
        parser.error("--checkpoint and --every have no effect without --stream")
    if chosen.full and not chosen.manifest:
        parser.error("--full has no effect without --manifest")
    require_effect(parser, chosen)
    console = JobConsole(JOB, chosen.quiet)

    def job() -> int:
        mapping = SourceMapping.read(chosen.mapping)
        feed_source = feed_stream if chosen.stream else feed_table
        opened = nullcontext(lambda spark: feed_source(spark, mapping, chosen, console))
        return run_feed(opened, chosen, console)

    return console.run(job)


def build_feed_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m spark.feed", description=DESCRIPTION)
    add_source_arguments(parser)
    add_feed_arguments(parser)
    add = parser.add_argument
    add("--full", action="store_true", help="also read what is older than the last watermark")
    add("--stream", action="store_true", help="read the source as a folder of files, each once")
    add("--checkpoint", metavar="DIR", help="folder in which a stream records what it has read")
    every = "keep reading a stream at this interval (default: read what is there, then end)"
    add("--every", type=parse_whole_number, metavar="SECONDS", help=every)
    return parser


def add_feed_arguments(parser: ArgumentParser) -> None:
    add_manifest_argument(parser)
    add_sending_arguments(parser)
    add_spark_arguments(parser)
    rejects = "folder for rows that cannot become events, as JSON lines (default: %(default)s)"
    parser.add_argument("--rejects", default="rejects", metavar="DIR", help=rejects)
    kinds = {"late": "belongs before rows that were fed", "changed": "was fed with another content"}
    for name, what in kinds.items():
        parser.add_argument(
            f"--{name}",
            type=ChangePolicy,
            choices=list(ChangePolicy),
            help=f"with --manifest, a row that {what}: sent as the session's next event, or "
            f"rejected (default: {ChangePolicy.APPEND})",
        )
    add = parser.add_argument
    limit = (
        "with --manifest, send nothing if more rows are changed, or deleted, than this, or this "
    )
    limit += "share of the rows that were fed before (5%%)"
    add("--max-changed", dest="changed_max", type=parse_change_limit, metavar="LIMIT", help=limit)
    gone = (
        "with --manifest and a source that is read whole, what to do about rows that were fed and "
    )
    gone += "are gone: count them, or send a message of the mapping's deleted_type for each"
    add("--deleted", type=DeletedPolicy, choices=list(DeletedPolicy), help=gone)
    accept = "with --manifest, feed although the mapping or time zone is not that of the last feed"
    add("--accept-mapping", action="store_true", help=accept)
    aside = "with --manifest, do not try again to send this unfinished run of the group; what was "
    aside += "sent of it is recorded, and its numbers stay bound"
    add("--set-aside", type=parse_whole_number, metavar="RUN", help=aside)
    add("--who", metavar="NAME", help="with --set-aside, who decides that")
    add("--why", metavar="TEXT", help="with --set-aside, the reason")
    lanes = "in how many parts the events are sent, each by a task (default: one for each "
    lanes += f"{EVENTS_A_LANE:,} events, {LANES_MAX} at most)"
    app = "with --dry-run, the folder with function_app.py whose handlers are asked whether they "
    app += "take these types and sessions (default: this folder, if it is one)"
    add("--app", metavar="DIR", help=app)
    add("--lanes", type=parse_whole_number, metavar="N", help=lanes)


def parse_change_limit(text: str) -> ChangeLimit:
    try:
        return ChangeLimit.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def require_effect(parser: ArgumentParser, chosen: Namespace) -> None:
    """End with an error if an argument of `add_feed_arguments` would have no effect."""
    given = {
        "--late": chosen.late,
        "--changed": chosen.changed,
        "--max-changed": chosen.changed_max,
        "--deleted": chosen.deleted,
        "--accept-mapping": chosen.accept_mapping,
        "--set-aside": chosen.set_aside,
    }
    if not chosen.manifest and (found := [name for name in given if given[name]]):
        parser.error(f"{' and '.join(found)} would have no effect without --manifest")
    if not chosen.set_aside and (chosen.who or chosen.why):
        parser.error("--who and --why would have no effect without --set-aside")
    if chosen.set_aside and not (chosen.who and chosen.why):
        parser.error("--set-aside needs --who and --why")
    if chosen.app and not chosen.dry_run:
        parser.error("--app would have no effect without --dry-run")
    if chosen.set_aside and chosen.dry_run:
        parser.error("--set-aside has no effect in a dry run")


def build_options(chosen: Namespace) -> FeedConfig:
    """The options in the arguments of `add_feed_arguments`, a source and a group."""
    given = {name: value for name, value in vars(chosen).items() if value is not None}
    return FeedConfig(**{name: given[name] for name in FEED_OPTIONS & given.keys()})


def run_feed(
    opened: AbstractContextManager[FeedSource], chosen: Namespace, console: JobConsole
) -> int:
    """Run a feed with the arguments of `add_feed_arguments`, and print its result.

    `opened` is entered before Spark is started, and gives the function that feeds the source.
    """
    started = time.monotonic()
    if not chosen.dry_run:
        Settings.read(read_app_settings({}))
    console.log("starting Spark")
    with opened as feed_source, open_spark(chosen.master) as spark:
        require_replaceable(spark, chosen.rejects)
        result = feed_source(spark)
    print_result(result, time.monotonic() - started, chosen)
    return 0


def feed_table(
    spark: SparkSession, mapping: SourceMapping, chosen: Namespace, console: JobConsole
) -> FeedResult:
    """Feed a table; if it has a watermark, only what is not older than the last run's."""
    console.log(f"reading {chosen.source}")
    table, options = read_table(spark, chosen.source, mapping), build_options(chosen)
    if not chosen.full:
        table = select_unfed(table, mapping, options, console)
    return feed(table, mapping, options, console)


def feed_stream(
    spark: SparkSession, mapping: SourceMapping, chosen: Namespace, console: JobConsole
) -> FeedResult:
    """Feed the files of a folder: those that are there now, or with --every also later ones.

    The checkpoint records which files were read. A batch that comes again after a crash is
    unchanged by the manifest, so it is not sent twice.
    """
    total, options = FeedResult(), build_options(chosen)

    def feed_batch(table: DataFrame, number: int) -> None:
        nonlocal total
        console.log(f"batch {number}")
        of_batch = replace(options, rejects=f"{options.rejects}/batch-{number}")
        total += feed(table, mapping, of_batch, console, is_batch=True)

    stream = stream_table(spark, chosen.source, mapping).writeStream.foreachBatch(feed_batch)
    stream = stream.option("checkpointLocation", chosen.checkpoint)
    if chosen.every:
        stream = stream.trigger(processingTime=f"{chosen.every} seconds")
    else:
        stream = stream.trigger(availableNow=True)
    stream.start().awaitTermination()
    return total


def print_result(result: FeedResult, seconds: float, chosen: Namespace) -> None:
    rows, sending = result.rows, result.sending
    document = asdict(rows) | asdict(sending.counts) | {"seconds": round(seconds, 1)}
    if sending.standings:
        document["standings"] = sending.standings
    if result.unhandled:
        document["unhandled"] = [asdict(each) for each in result.unhandled]
    if chosen.manifest:
        document["resumed"] = sending.resumed
    if chosen.summary is not None:
        chosen.summary.write_text(json.dumps(document, indent=2) + "\n")
    lines = [
        f"{rows.rows} rows became {rows.events} events of {rows.sessions} sessions",
        f"{sum(rows.rejects.values())} rows rejected",
        *(f"  {count} {reason}" for reason, count in rows.rejects.items()),
        *(f"{count} {standing}" for standing, count in sending.standings.items()),
        *(
            f"{each.events} events of type {each.type!r} in {each.sessions} sessions would be "
            f"faults: {each.why}"
            for each in result.unhandled
        ),
        *([f"{sending.resumed} resumed from an unfinished run"] if sending.resumed else []),
        f"{sending.counts.sent} sent, {sending.counts.pending} copies pending, {seconds:.1f} s",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
