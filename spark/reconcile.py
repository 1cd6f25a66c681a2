"""Hold the journal against the source it was fed from: `python -m spark.reconcile --help`."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from azure.core.exceptions import AzureError
from pyspark.sql import DataFrame, SparkSession

from shared.settings import InvalidSettings
from spark import voice
from spark.arguments import add_source
from spark.books import accounts, findings
from spark.failures import SparkFailure, root_cause
from spark.intake import flights_source, mapped_source
from spark.journal import journal_settings, read_journal
from spark.manifest import Manifest, ManifestRefused
from spark.mapped_sources import read_mapped
from spark.mapping import Mapping, MappingRefused
from spark.numbering import numbered
from spark.planning import Policies, planned, standings
from spark.report import Report, lines, page, reported
from spark.runtime import INTERRUPTED, Interrupted, SparkUnavailable, spark_session
from spark.schemas import EVENTS
from spark.sources import SourceRefused, located

JOB = "reconcile"
UNBALANCED = 1
REFUSED = (InvalidSettings, SourceRefused, SparkUnavailable, MappingRefused, ManifestRefused)

DESCRIPTION = """\
Compare what a source holds with what the journal holds: missing, extra, repeated, out of order and
different events. The exit status is 0 when the books balance, 1 when they do not, 2 when they could
not be read. The journal is found by the settings Cosmos, LOCKSTEP_DATABASE and LOCKSTEP_JOURNAL;
it is read as it stands, so let the queues drain first. With a manifest, what the feeds were bound
to is expected, and besides whatever of the source they have not been fed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Reconcile; the exit status says whether the books balance."""
    chosen = parser().parse_args(arguments)
    try:
        return reconcile(chosen)
    except REFUSED as error:
        return voice.failed(JOB, str(error))
    except AzureError as error:
        return voice.failed(JOB, f"the journal cannot be read: {error.message.partition('\n')[0]}")
    except SparkFailure as error:
        return voice.failed(JOB, root_cause(error))
    except (KeyboardInterrupt, Interrupted):
        voice.failed(JOB, "interrupted")
        return INTERRUPTED


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
        "--page", type=Path, metavar="FILE", help="write a page for people, as Markdown"
    )
    return described


def reconcile(chosen: Namespace) -> int:
    """Read both sides, compare them, and say what was found."""
    mapping = Mapping.read(chosen.mapping) if chosen.mapping else None
    if chosen.journal is None:
        journal_settings(os.environ)
    with located(chosen.source) as path, spark_session(chosen.master) as spark:
        rows = expected(spark, path, mapping, chosen).persist()
        entries = read_journal(spark, chosen.journal).persist()
        found = findings(rows, entries, chosen.group).persist()
        books = accounts(rows, entries, chosen.group, found).persist()
        if chosen.report:
            found.coalesce(1).write.parquet(f"{chosen.report}/findings", mode="overwrite")
            books.coalesce(1).write.parquet(f"{chosen.report}/sessions", mode="overwrite")
        return told(reported(books, found), chosen.page)


def expected(
    spark: SparkSession, path: str, mapping: Mapping | None, chosen: Namespace
) -> DataFrame:
    """The events the journal must hold: those that were bound, and those that should have been."""
    if mapping is None:
        source = flights_source(spark, path, chosen.days)
    else:
        source = mapped_source(read_mapped(spark, path, mapping), mapping)
    if not chosen.manifest:
        return numbered(source.facts, chosen.group).select(*EVENTS.names)
    manifest = Manifest(spark, chosen.manifest)
    plan = manifest.fed(chosen.group, manifest.history())
    unfed = planned(standings(source.facts, plan), chosen.group, Policies())
    return plan.unionByName(unfed).select(*EVENTS.names)


def told(report: Report, file: Path | None) -> int:
    """Print the report and write its page; the exit status for it."""
    if file is not None:
        file.write_text(page(report))
    sys.stdout.write("\n".join(lines(report)) + "\n")
    return 0 if report.is_balanced else UNBALANCED


if __name__ == "__main__":
    sys.exit(main())
