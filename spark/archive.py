"""Keep what the journal will forget: `python -m spark.archive --help`."""

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from secrets import token_hex

from azure.core import MatchConditions
from azure.cosmos import ContainerProxy
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.storage.archive import (
    ARCHIVE_ID,
    GENESIS_POSITION,
    OLDEST_SQL,
    ArchiveRecord,
    decode_archive_record,
    encode_archive_record,
)
from shared.storage.documents import version_of, written_at
from shared.storage.journal import REGIONS_SESSION
from spark.job.arguments import add_spark_arguments
from spark.job.console import JobConsole
from spark.job.failures import JobRefused
from spark.job.runtime import open_spark
from spark.job.settings import with_settings
from spark.read.archive import ARCHIVE, RUN, WrittenSource, read_versions, with_lives
from spark.read.journal import open_journal, read_journal_settings

JOB = "archive"
# What was written so short a time ago may still be on its way, or be written by a clock that is
# behind: that of the region that took the writes over. It comes with the next run.
LATE_SECONDS = 300
PART_SECONDS = 24 * 3600

DESCRIPTION = """\
Append what was written to the journal since the last run to an archive in Parquet, and remove from
it what was erased since. Where LOCKSTEP_KEEP_INPUTS is yes, compaction keeps what it lacks. The
journal is found by the settings Cosmos, LOCKSTEP_DATABASE and LOCKSTEP_JOURNAL. A run that fails,
or is killed, loses nothing: the next one begins where the last one ended that succeeded."""


# What tells the rows of an archive apart; those of a run that was killed may be there twice.
KEY = ("session", "position", "written")


@dataclass(frozen=True, slots=True)
class Removal:
    """A person's decision about a session that the journal does not have any more."""

    session: str
    who: str
    why: str

    @property
    def row(self) -> tuple[str, int, datetime, str]:
        """The record of the removal, in place of what was removed."""
        document = json.dumps({"erased": {"who": self.who, "why": self.why}})
        return self.session, GENESIS_POSITION, datetime.now(UTC), document


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """A run of the job, or a part of it: since when, until when, and the record it began with."""

    since: int
    record: ArchiveRecord
    version: str
    # The name of its rows' folder, which no other has, and which nobody takes for a number.
    name: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Archive; the exit status is 0 if the archive is complete until five minutes ago."""
    parser = build_archive_parser()
    chosen = parser.parse_args(arguments)
    if bool(chosen.erase) != bool(chosen.who and chosen.why):
        parser.error("--erase, --who and --why go together")
    console = JobConsole(JOB, chosen.quiet)
    return console.run(lambda: run_archive(chosen, console))


def build_archive_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m spark.archive", description=DESCRIPTION)
    add_spark_arguments(parser)
    add = parser.add_argument
    add("--to", required=True, metavar="FOLDER", help="the archive, where Spark can write")
    moved = "the archive was copied to this folder, and is to go on here"
    add("--moved", action="store_true", help=moved)
    erase = "also remove a session that the journal does not have any more"
    add("--erase", metavar="SESSION", help=erase)
    add("--who", metavar="NAME", help="who decided so, with --erase")
    add("--why", metavar="TEXT", help="why, with --erase")
    return parser


def run_archive(chosen: Namespace, console: JobConsole) -> int:
    settings, place = read_journal_settings(os.environ), chosen.to.rstrip("/")
    with open_spark(chosen.master) as spark, open_journal(settings) as journal:
        removal = Removal(chosen.erase, chosen.who, chosen.why) if chosen.erase else None
        if removal is not None:
            require_gone(journal, removal.session)
        run, added, erased = begin_run(journal, place, is_moved=chosen.moved), 0, 0
        until = run.record.until
        while True:
            part = first_part(journal, run)
            is_last = part.record.until == until
            with console.show_progress("archiving"):
                rows, ends = append_rows(spark, settings, part, run_folder(place, part.name))
                added += rows
            if ends or (removal and is_last):
                with console.show_progress("erasing"):
                    erased += erase_rows(spark, place, part.name, removal if is_last else None)
            run = replace(run, since=part.record.until, version=end_run(journal, part))
            if is_last:
                break
    when = datetime.fromtimestamp(until, UTC).isoformat()
    sys.stdout.write(f"{added} rows added, {erased} erased; complete until {when}\n")
    return 0


def begin_run(journal: ContainerProxy, place: str, *, is_moved: bool = False) -> ArchiveRun:
    """Announce a run in the record, which says the store's time and refuses the run before it.

    Raises JobRefused where the archive lies elsewhere, or another run begins just now.
    """
    try:
        stored = journal.read_item(ARCHIVE_ID, REGIONS_SESSION)
    except CosmosResourceNotFoundError:
        stored = None
    before = decode_archive_record(stored) if stored else ArchiveRecord(0, place)
    if before.place != place and not is_moved:
        raise JobRefused(
            f"the archive of this journal lies in {before.place}: give that folder, or copy it and"
            " say --moved"
        )
    record = replace(before, place=place)
    written = write_record(journal, record, version_of(stored) if stored else None)
    until = max(before.until, int(written_at(written)) - LATE_SECONDS)
    return ArchiveRun(before.until, replace(record, until=until), version_of(written))


def first_part(journal: ContainerProxy, run: ArchiveRun) -> ArchiveRun:
    """The part of a run that has a day of what was written: what is recorded is not read again."""
    since: list[dict[str, object]] = [{"name": "@since", "value": run.since}]
    found = journal.query_items(OLDEST_SQL, parameters=since, enable_cross_partition_query=True)
    ends = [int(written_at(oldest)) + PART_SECONDS for oldest in found]
    until = min([*ends, run.record.until])
    return replace(run, record=replace(run.record, until=until), name=f"r{token_hex(8)}")


def end_run(journal: ContainerProxy, run: ArchiveRun) -> str:
    """Record until when the archive is complete, and return the version of that record.

    Raises JobRefused where another run has begun.
    """
    return version_of(write_record(journal, run.record, run.version))


def write_record(
    journal: ContainerProxy, record: ArchiveRecord, version: str | None
) -> Mapping[str, object]:
    document = encode_archive_record(REGIONS_SESSION, record)
    try:
        if version is None:
            return journal.create_item(document)
        return journal.replace_item(
            ARCHIVE_ID, document, etag=version, match_condition=MatchConditions.IfNotModified
        )
    except (CosmosAccessConditionFailedError, CosmosResourceExistsError):
        raise JobRefused("another run of this job has begun: let it end") from None


def append_rows(
    spark: SparkSession, settings: Mapping[str, str], run: ArchiveRun, folder: str
) -> tuple[int, int]:
    """Write what was written in the time of a run to a new folder: how many rows, and erasures."""
    spark.dataSource.register(with_settings(WrittenSource, settings))
    window = {"since": run.since, "until": run.record.until}
    rows = spark.read.format(WrittenSource.name()).options(**window).load()
    rows.sortWithinPartitions("session", "position").write.parquet(folder)
    counts = F.count("*").alias("rows"), F.count_if(is_erasure()).alias("erasures")
    found = spark.read.schema(ARCHIVE).parquet(folder).agg(*counts).collect()[0]
    return found["rows"], found["erasures"]


def is_erasure() -> Column:
    """Say of a row whether its entry erased those before it."""
    return F.get_json_object("document", "$.resolution.action") == "erase"


def require_gone(journal: ContainerProxy, session: str) -> None:
    """Raise JobRefused for a session that the journal has: it is erased there first."""
    if list(journal.query_items("SELECT TOP 1 c.id FROM c", partition_key=session)):
        raise JobRefused(
            f"the journal has session {session!r}: erase it there, by `lockstep resolve`; the next"
            " run that begins five minutes later removes it here"
        )


def find_erased(rows: DataFrame, run: str, session: str | None) -> DataFrame:
    """The rows of an archive that are to go, with their runs.

    They are what came before the entries of a run that erased a session, in this life of its name
    or in an earlier one, and all that there is of the `session`.
    """
    ends = rows.where((F.col("run") == run) & is_erasure())
    names = ends.select("session").distinct()
    lives = with_lives(rows.join(F.broadcast(names), "session", "left_semi"))
    ends = lives.join(ends.select("session", "position", "written"), [*KEY], "left_semi")
    ends = ends.select("session", F.struct("life", "position").alias("end")).distinct()
    erased = lives.join(F.broadcast(ends), "session").where(
        F.struct("life", "position") < F.col("end")
    )
    if session is not None:
        erased = erased.select(*rows.columns).unionByName(rows.where(F.col("session") == session))
    erased = erased.where(F.col("position") != GENESIS_POSITION)
    return erased.select(*KEY, "run").distinct()


def erase_rows(spark: SparkSession, place: str, run: str, removal: Removal | None) -> int:
    """Rewrite the folders of an archive that hold what was erased; how many rows went.

    What is left of them is complete in one new folder before the old ones are emptied. A run that
    is killed in between leaves both, and the next one, which finds the same entries, ends it.
    """
    rows = read_versions(spark, place)
    erased = find_erased(rows, run, removal.session if removal else None).persist()
    runs = [found["run"] for found in erased.select("run").distinct().collect()]
    if not runs:
        return 0
    held = rows.where(F.col("run").isin(runs))
    kept = held.join(erased, [*KEY], "left_anti").select(*ARCHIVE.names)
    count, fresh = held.count() - kept.count(), run_folder(place, f"{run}-rest")
    if removal is not None:
        kept = kept.unionByName(spark.createDataFrame([removal.row], ARCHIVE))
    kept.write.parquet(fresh)
    if spark.read.schema(ARCHIVE).parquet(fresh).count() != kept.count():
        raise JobRefused(f"{fresh} does not hold what was written: nothing was erased")
    for name in runs:
        empty_folder(spark, run_folder(place, name))
    return count


def run_folder(place: str, name: str) -> str:
    return f"{place}/{RUN.names[0]}={name}"


def empty_folder(spark: SparkSession, folder: str) -> None:
    """Remove the rows of a folder by what Spark does on every file system."""
    spark.createDataFrame([], ARCHIVE).write.mode("overwrite").parquet(folder)


if __name__ == "__main__":
    sys.exit(main())
