"""Feed a source to both regions: `python -m spark.feed --help`."""

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from pyspark.sql import DataFrame, SparkSession

from shared.settings import Settings
from spark.arguments import add_changes, add_sending, add_source, file_to_write
from spark.changes import ChangesFeed, Told
from spark.intake import (
    NOTHING,
    Intake,
    Source,
    flights_source,
    mapped_source,
    plus,
    require_replaceable,
    take_in,
)
from spark.job import ended
from spark.loading import Load
from spark.manifest import Manifest
from spark.mapped_sources import read_mapped, since, stream_mapped
from spark.mapping import Mapping
from spark.numbering import numbered
from spark.options import app_settings
from spark.planning import Policies
from spark.runtime import spark_session
from spark.sources import located
from spark.voice import Voice

REJECTS_DEFAULT = "rejects"
JOB = "feed"

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
    voice = Voice(JOB, chosen.quiet)
    return ended(voice, lambda: feed(chosen, voice))


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
    described.add_argument(
        "--summary", type=file_to_write, metavar="FILE", help="write the counts as JSON"
    )
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


def feed(chosen: Namespace, voice: Voice) -> int:
    """Extract, transform, load; then say what was done. The exit status."""
    started = time.monotonic()
    mapping = Mapping.read(chosen.mapping) if chosen.mapping else None
    if not chosen.dry_run:
        Settings.read(app_settings({}))
    voice.say("starting Spark")
    with located(chosen.source) as path, spark_session(chosen.master) as spark:
        require_replaceable(spark, chosen.rejects)
        if chosen.stream and mapping:
            intake, told = follow(spark, path, mapping, chosen, voice)
        else:
            source = extract(spark, path, mapping, chosen, voice)
            intake, told = feed_source(spark, source, chosen, voice)
    summarise(intake, told, time.monotonic() - started, chosen)
    return 0


def extract(
    spark: SparkSession, path: str, mapping: Mapping | None, chosen: Namespace, voice: Voice
) -> Source:
    """The source, read and judged; with a watermark, what is not older than the last run's."""
    voice.say(f"reading {path}")
    if mapping is None:
        return flights_source(spark, path, chosen.days)
    mark = None
    if chosen.manifest and mapping.watermark and not chosen.full:
        mark = Manifest(spark, chosen.manifest).history().watermark
    if mark:
        voice.say(f"from {mapping.watermark} {mark} on")
    return mapped_source(since(read_mapped(spark, path, mapping), mapping, mark), mapping)


def feed_source(
    spark: SparkSession, source: Source, chosen: Namespace, voice: Voice
) -> tuple[Intake, Told]:
    """Judge and number, then send everything or, by the manifest, what is new."""
    voice.say(f"judging and numbering; rejects go to {chosen.rejects}")
    with voice.stage("judging"):
        intake = take_in(source, chosen.rejects, again=chosen.stream)
    if chosen.manifest:
        return intake, changes_feed(spark, chosen, voice).run(source, dry=chosen.dry_run)
    if chosen.dry_run:
        return intake, Told()
    voice.say("sending" + (f", {chosen.rate:g} a second" if chosen.rate else ""))
    events = numbered(source.facts, chosen.group)
    with voice.stage("sending", intake.events) as stage:
        load = Load(chosen.rate, chosen.batch, progress=stage.address)
        return intake, Told(counts=load.send(events))


def changes_feed(spark: SparkSession, chosen: Namespace, voice: Voice) -> ChangesFeed:
    """The feed by a manifest, as the command line has it."""
    return ChangesFeed(
        Manifest(spark, chosen.manifest),
        chosen.group,
        Policies(chosen.late, chosen.changed),
        Load(chosen.rate, chosen.batch),
        chosen.rejects,
        voice,
    )


def follow(
    spark: SparkSession, folder: str, mapping: Mapping, chosen: Namespace, voice: Voice
) -> tuple[Intake, Told]:
    """Feed a folder's files as they come: those that are there, or on and on every few seconds.

    The checkpoint says which files were read; the manifest makes a batch that comes twice no news.
    """
    done = Done()

    def batch(table: DataFrame, number: int) -> None:
        voice.say(f"batch {number}")
        rejects = f"{chosen.rejects}/batch-{number}"
        told = Namespace(**{**vars(chosen), "rejects": rejects})
        source = mapped_source(table, mapping)
        done.add(*feed_source(table.sparkSession, source, told, voice))
        source.release()

    writer = stream_mapped(spark, folder, mapping).writeStream.foreachBatch(batch)
    writer = writer.option("checkpointLocation", chosen.checkpoint)
    writer = (
        writer.trigger(processingTime=f"{chosen.every} seconds")
        if chosen.every
        else writer.trigger(availableNow=True)
    )
    writer.start().awaitTermination()
    return done.intake, done.told


@dataclass(slots=True)
class Done:
    """The sum of all batches of a stream, however many there were."""

    intake: Intake = NOTHING
    told: Told = field(default_factory=Told)

    def add(self, intake: Intake, told: Told) -> None:
        """Count one more batch."""
        names = {**self.told.standings, **told.standings}
        stood = {n: self.told.standings.get(n, 0) + told.standings.get(n, 0) for n in names}
        resumed, counts = self.told.resumed + told.resumed, self.told.counts + told.counts
        self.intake, self.told = plus(self.intake, intake), Told(stood, resumed, counts)


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


if __name__ == "__main__":
    sys.exit(main())
