"""Compare the journal with the source it was fed from: `python -m spark.reconcile --help`."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark import cli
from spark.console import JobConsole
from spark.facts import SourceFacts, extract_facts
from spark.incremental import ChangePolicies, classify_facts, plan_events
from spark.journal import read_journal, read_journal_settings
from spark.manifest import Manifest
from spark.mapping import SourceMapping
from spark.numbering import number_facts
from spark.reconciliation import FindingKind, count_by_session, find_differences
from spark.report import build_report, format_lines, render_page
from spark.runtime import open_spark
from spark.schemas import EVENTS
from spark.sources import read_table

JOB = "reconcile"
DIFFERENT = 1
# Enough of a row to recognise it.
DETAIL_CHARACTERS = 200

DESCRIPTION = """\
Compare what a source holds with what the journal holds: events that are missing, extra, in a wrong
session, repeated, out of order, different, or in the source twice. The exit status is 0 if source
and journal agree, 1 if they differ, 2 if they could not be read. The journal is found by the
settings Cosmos, LOCKSTEP_DATABASE and LOCKSTEP_JOURNAL. It is read while it may change, so let the
queues drain first. With a manifest, what the feeds were bound to is expected, and also whatever of
the source they have not been fed."""

type ReadFacts = Callable[[SparkSession], SourceFacts]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reconcile; the exit status is 0 only if source and journal agree."""
    chosen = build_reconcile_parser().parse_args(arguments)
    console = JobConsole(JOB, chosen.quiet)

    def job() -> int:
        mapping = SourceMapping.read(chosen.mapping)
        opened = nullcontext(
            lambda spark: extract_facts(read_table(spark, chosen.source, mapping), mapping)
        )
        about = {"source": chosen.source, "mapping": str(chosen.mapping)}
        return run_reconcile(opened, about, chosen, console)

    return cli.run_job(console, job)


def build_reconcile_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m spark.reconcile", description=DESCRIPTION)
    cli.add_source_arguments(parser)
    add_reconcile_arguments(parser)
    return parser


def add_reconcile_arguments(parser: ArgumentParser) -> None:
    cli.add_manifest_argument(parser)
    cli.add_spark_arguments(parser)
    add = parser.add_argument
    journal = "the journal's documents as exported by its change feed, JSON lines or .parquet "
    add("--journal", metavar="PATH", help=f"{journal}(default: the account of the settings)")
    add("--report", metavar="DIR", help="write findings and counts by session, as Parquet")
    page = "write a page for people, as HTML"
    add("--page", type=cli.parse_output_file, metavar="FILE", help=page)


def run_reconcile(
    opened: AbstractContextManager[ReadFacts],
    about: Mapping[str, str],
    chosen: Namespace,
    console: JobConsole,
) -> int:
    """Read and compare both sides, with the arguments of `add_reconcile_arguments`.

    `opened` is entered before Spark is started, and gives the function that reads the source.
    `about` describes the source in the report.
    """
    if chosen.journal is None:
        read_journal_settings(os.environ)
    with opened as read_facts, open_spark(chosen.master) as spark:
        with console.show_progress("reading the source"):
            source = read_facts(spark)
            rejects = source.rejects.groupBy("reason").count().orderBy("reason").collect()
        with console.show_progress("comparing"):
            events = select_expected_events(source, chosen).persist()
            entries = read_journal(spark, chosen.journal).persist()
            found = find_differences(events, entries, chosen.group)
            found = found.unionByName(find_repeated_rows(source)).persist()
            by_session = count_by_session(events, entries, chosen.group, found).persist()
            by_reason = {row["reason"]: row["count"] for row in rejects}
            report = build_report(
                by_session, found, by_reason, {**about, **describe_inputs(chosen)}
            )
        if chosen.report:
            found.coalesce(1).write.parquet(f"{chosen.report}/findings", mode="overwrite")
            by_session.coalesce(1).write.parquet(f"{chosen.report}/sessions", mode="overwrite")
    if chosen.page is not None:
        chosen.page.write_text(render_page(report), encoding="utf-8")
    sys.stdout.write("\n".join(format_lines(report)) + "\n")
    return DIFFERENT if report.has_findings else 0


def select_expected_events(source: SourceFacts, chosen: Namespace) -> DataFrame:
    """The events the journal must hold (schemas.EVENTS).

    With a manifest these are the events that its runs were bound to, and those of facts that were
    never fed, with the numbers that the next run would give them.
    """
    if not chosen.manifest:
        return number_facts(source.facts, chosen.group).select(*EVENTS.names)
    manifest = Manifest(source.facts.sparkSession, chosen.manifest)
    plan = manifest.read_fed(chosen.group, manifest.read_history())
    unfed = plan_events(classify_facts(source.facts, plan), chosen.group, ChangePolicies())
    return plan.unionByName(unfed).select(*EVENTS.names)


def find_repeated_rows(source: SourceFacts) -> DataFrame:
    return source.repeated.select(
        F.lit(FindingKind.TWICE).alias("finding"),
        "session",
        F.lit(None).cast("long").alias("sequence"),
        F.lit(None).cast("string").alias("id"),
        F.substring("row", 1, DETAIL_CHARACTERS).alias("detail"),
    )


def describe_inputs(chosen: Namespace) -> dict[str, str]:
    named = {
        "producer group": chosen.group,
        "manifest": chosen.manifest,
        "journal": chosen.journal or "read from the account",
        "full report": chosen.report,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return {name: value for name, value in named.items() if value}


if __name__ == "__main__":
    sys.exit(main())
