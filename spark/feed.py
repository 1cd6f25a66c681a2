"""Feed a source to both regions: `python -m spark.feed --help`."""

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from shared.settings import InvalidSettings, Settings
from spark import voice
from spark.arguments import add_changes, add_sending, add_source
from spark.changes import ChangesFeed, Told
from spark.failures import SparkFailure, root_cause
from spark.intake import (
    Intake,
    RejectsRefused,
    RowsLost,
    Source,
    added,
    flights_source,
    mapped_source,
    require_replaceable,
    take_in,
)
from spark.loading import Load
from spark.manifest import Manifest, ManifestRefused
from spark.mapped_sources import read_mapped, since, stream_mapped
from spark.mapping import Mapping, MappingRefused
from spark.numbering import numbered
from spark.options import app_settings
from spark.planning import Policies
from spark.runtime import INTERRUPTED, Interrupted, SparkUnavailable, spark_session
from spark.sources import SourceRefused, located

REJECTS_DEFAULT = "rejects"
JOB = "feed"
REFUSED = (
    InvalidSettings,
    SourceRefused,
    SparkUnavailable,
    RejectsRefused,
    RowsLost,
    MappingRefused,
    ManifestRefused,
)

DESCRIPTION = """\
Turn rows into numbered events, one ordered stream per session, and send them to both regions. The
rows are flights, one session per aircraft, or what a mapping declares (docs/spark.md). Connections
come from the app settings in the environment (LOCKSTEP_*, ServiceBus_<region>, Cosmos). Running it
again over the same source sends the same ids, numbers and bytes, and so adds no effect; with a
manifest it sends nothing but what is new, late or changed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the feed; the exit status is 0 only when every event is safe in at least one region."""
    described = parser()
    chosen = described.parse_args(arguments)
    if wrong := contradiction(chosen):
        described.error(wrong)
    try:
        feed(chosen)
    except REFUSED as error:
        return voice.failed(JOB, str(error))
    except SparkFailure as error:
        return voice.failed(JOB, root_cause(error))
    except (KeyboardInterrupt, Interrupted):
        say("interrupted; what was sent stays sent, running it again completes it")
        return INTERRUPTED
    return 0


def parser() -> ArgumentParser:
    """What the command line takes."""
    described = ArgumentParser(prog="python -m spark.feed", description=DESCRIPTION)
    add_source(described)
    add_sending(described)
    add_changes(described)
    described.add_argument(
        "--rejects",
        default=REJECTS_DEFAULT,
        metavar="DIR",
        help="folder for rows that cannot become events, as JSON lines (default: %(default)s)",
    )
    described.add_argument("--summary", type=Path, metavar="FILE", help="write the counts as JSON")
    described.add_argument("--dry-run", action="store_true", help="do all but send")
    return described


def contradiction(chosen: Namespace) -> str | None:
    """What cannot be meant, in one line."""
    if chosen.mapping and not chosen.source:
        return "--mapping needs --source"
    if chosen.stream and not (chosen.mapping and chosen.manifest and chosen.checkpoint):
        return "--stream needs --mapping, --manifest and --checkpoint"
    if chosen.stream and chosen.dry_run:
        return "--stream cannot be a dry run"
    return None


def feed(chosen: Namespace) -> None:
    """Extract, transform, load; then say what was done."""
    started = time.monotonic()
    mapping = Mapping.read(chosen.mapping) if chosen.mapping else None
    if not chosen.dry_run:
        Settings.read(app_settings({}))
    require_replaceable(chosen.rejects)
    say("starting Spark")
    with located(chosen.source) as path, spark_session(chosen.master) as spark:
        if chosen.stream and mapping:
            intake, told = follow(spark, path, mapping, chosen)
        else:
            source = extract(spark, path, mapping, chosen)
            intake, told = feed_source(spark, source, chosen)
    summarise(intake, told, time.monotonic() - started, chosen)


def extract(spark: SparkSession, path: str, mapping: Mapping | None, chosen: Namespace) -> Source:
    """The source, read and judged; with a watermark, what is not older than the last run's."""
    say(f"reading {path}")
    if mapping is None:
        return flights_source(spark, path, chosen.days)
    mark = None
    if chosen.manifest and mapping.watermark and not chosen.full:
        mark = Manifest(spark, chosen.manifest).history().watermark
    if mark:
        say(f"from {mapping.watermark} {mark} on")
    return mapped_source(since(read_mapped(spark, path, mapping), mapping, mark), mapping)


def feed_source(spark: SparkSession, source: Source, chosen: Namespace) -> tuple[Intake, Told]:
    """Judge and number, then send everything or, by the manifest, what is new."""
    say(f"judging and numbering; rejects go to {chosen.rejects}")
    intake = take_in(source, chosen.rejects)
    if chosen.manifest:
        return intake, changes_feed(spark, chosen).run(source, dry=chosen.dry_run)
    if chosen.dry_run:
        return intake, Told()
    say("sending" + (f", {chosen.rate:g} a second" if chosen.rate else ""))
    events = numbered(source.facts, chosen.group)
    return intake, Told(counts=Load(chosen.rate, chosen.batch).send(events))


def changes_feed(spark: SparkSession, chosen: Namespace) -> ChangesFeed:
    """The feed by a manifest, as the command line has it."""
    return ChangesFeed(
        Manifest(spark, chosen.manifest),
        chosen.group,
        Policies(chosen.late, chosen.changed),
        Load(chosen.rate, chosen.batch),
        chosen.rejects,
        say,
    )


def follow(
    spark: SparkSession, folder: str, mapping: Mapping, chosen: Namespace
) -> tuple[Intake, Told]:
    """Feed a folder's files as they come: those that are there, or on and on every few seconds.

    The checkpoint says which files were read; the manifest makes a batch that comes twice no news.
    """
    done: list[tuple[Intake, Told]] = []

    def batch(table: DataFrame, number: int) -> None:
        say(f"batch {number}")
        rejects = f"{chosen.rejects}/batch-{number}"
        told = Namespace(**{**vars(chosen), "rejects": rejects})
        source = mapped_source(table, mapping)
        done.append(feed_source(table.sparkSession, source, told))
        source.release()

    writer = stream_mapped(spark, folder, mapping).writeStream.foreachBatch(batch)
    writer = writer.option("checkpointLocation", chosen.checkpoint)
    writer = (
        writer.trigger(processingTime=f"{chosen.every} seconds")
        if chosen.every
        else writer.trigger(availableNow=True)
    )
    writer.start().awaitTermination()
    return added([intake for intake, _ in done]), summed([told for _, told in done])


def summed(told: Sequence[Told]) -> Told:
    """The sum of what several batches told."""
    total = Told()
    for each in told:
        names = {**total.standings, **each.standings}
        stood = {n: total.standings.get(n, 0) + each.standings.get(n, 0) for n in names}
        total = Told(stood, total.resumed + each.resumed, total.counts + each.counts)
    return total


def summarise(intake: Intake, told: Told, seconds: float, chosen: Namespace) -> None:
    """Tell people on stdout, and programs in the summary file."""
    document = asdict(intake) | asdict(told.counts) | {"seconds": round(seconds, 1)}
    if chosen.manifest:
        document |= {"standings": told.standings, "resumed": told.resumed}
    if chosen.summary is not None:
        chosen.summary.write_text(json.dumps(document, indent=2) + "\n")
    lines = [
        f"{intake.rows} rows became {intake.events} events of {intake.sessions} sessions",
        f"{sum(intake.rejects.values())} rows rejected",
        *(f"  {count} {reason}" for reason, count in intake.rejects.items()),
        *(f"{count} {standing}" for standing, count in told.standings.items()),
        *([f"{told.resumed} resumed from an unfinished run"] if told.resumed else []),
        f"{told.counts.sent} sent, {told.counts.owed} copies owed, {seconds:.1f} s",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def say(line: str) -> None:
    """A line of progress."""
    voice.say(JOB, line)


if __name__ == "__main__":
    sys.exit(main())
