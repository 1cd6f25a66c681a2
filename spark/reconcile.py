"""Compare the journal with the source it was fed from: `python -m spark.reconcile --help`."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.settings import read_body_limit
from spark.check.reconciliation import (
    FindingKind,
    count_by_session,
    find_differences,
    leave_out,
    list_effects,
)
from spark.check.report import build_report, format_lines, render_page
from spark.feeding.judging import (
    ChangePolicies,
    Standing,
    classify_facts,
    judge_as_new,
    plan_events,
    select_unsendable,
)
from spark.feeding.manifest import Manifest
from spark.job.arguments import (
    add_manifest_argument,
    add_source_arguments,
    add_spark_arguments,
    parse_iso_time,
    parse_output_file,
)
from spark.job.console import JobConsole
from spark.job.failures import JobRefused
from spark.job.runtime import open_spark
from spark.job.settings import read_app_settings
from spark.read.facts import SourceFacts, extract_facts
from spark.read.journal import read_journal, read_journal_settings
from spark.read.mapping import SourceMapping
from spark.read.sources import read_table
from spark.schemas import EVENTS

JOB = "reconcile"
DIFFERENT = 1
# Enough of a row to recognise it.
DETAIL_CHARACTERS = 200

DESCRIPTION = """\
Compare what a source holds with what the journal holds: events that are missing, faulted, waiting
behind a fault, extra, in a wrong session, repeated, out of order, different, or in the source
twice. The exit status is 0 if source and journal agree, 1 if there is any such finding, 2 if they
could not be read. The journal is found by the
settings Cosmos, LOCKSTEP_DATABASE and LOCKSTEP_JOURNAL. It is read while it may change, so let the
queues drain first. With a manifest, what the feeds were bound to is expected, and also whatever of
the source they have not been fed. The journal keeps entries for its retention only; --fed-since and
--fed-until ask about the events that were fed within a time."""

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

    return console.run(job)


def build_reconcile_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m spark.reconcile", description=DESCRIPTION)
    add_source_arguments(parser)
    add_reconcile_arguments(parser)
    return parser


def add_reconcile_arguments(parser: ArgumentParser) -> None:
    add_manifest_argument(parser)
    add_spark_arguments(parser)
    add = parser.add_argument
    journal = "the journal's documents as exported by its change feed, JSON lines or .parquet "
    add("--journal", metavar="PATH", help=f"{journal}(default: the account of the settings)")
    when = (
        "with --manifest, only the events of runs that were bound {} this time (ISO 8601, UTC if "
    )
    when += "it names no zone)"
    add("--fed-since", type=parse_instant, metavar="TIME", help=when.format("at or after"))
    add("--fed-until", type=parse_instant, metavar="TIME", help=when.format("before"))
    add("--report", metavar="DIR", help="write findings and counts by session, as Parquet")
    page = "write a page for people, as HTML"
    add("--page", type=parse_output_file, metavar="FILE", help=page)


def parse_instant(text: str) -> datetime:
    """An instant, in UTC if the text names no zone; raises ArgumentTypeError."""
    found = parse_iso_time(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def run_reconcile(
    opened: AbstractContextManager[ReadFacts],
    about: Mapping[str, str],
    chosen: Namespace,
    console: JobConsole,
) -> int:
    """Read and compare both sides, with the arguments of `add_reconcile_arguments`.

    `opened` is entered before Spark is started, and gives the function that reads the source.
    `about` describes the source in the report. Raises JobRefused for a time without a manifest.
    """
    if not chosen.manifest and (chosen.fed_since or chosen.fed_until):
        raise JobRefused("--fed-since and --fed-until would have no effect without --manifest")
    if chosen.journal is None:
        read_journal_settings(os.environ)
    with opened as read_facts, open_spark(chosen.master) as spark:
        with console.show_progress("reading the source"):
            source = read_facts(spark)
            rejects = source.rejects.groupBy("reason").count().orderBy("reason").collect()
        with console.show_progress("comparing"):
            events, others, unsendable = select_expected_events(source, chosen)
            events.persist()
            entries = read_journal(spark, chosen.journal).persist()
            found = find_differences(events.unionByName(others), entries, chosen.group)
            found = leave_out(found, others).unionByName(find_repeated_rows(source)).persist()
            effects = leave_out(list_effects(entries, chosen.group), others)
            by_session = count_by_session(events, effects, found).persist()
            by_reason = {row["reason"]: row["count"] for row in rejects}
            if refused := unsendable.count():
                by_reason[Standing.UNSENDABLE.value] = refused
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


def select_expected_events(
    source: SourceFacts, chosen: Namespace
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """The events the journal must hold, those that it may hold, and the facts that cannot be sent.

    The first two are schemas.EVENTS.

    With a manifest the first are the events that its runs were bound to, and those of facts that
    were never fed, with the numbers that the next run would give them. If times are chosen, events
    of other runs are the second; what was not fed by the end of the time is neither.
    """
    most = read_body_limit(read_app_settings({}))
    group, policies = chosen.group, ChangePolicies(body_bytes_max=most)
    if not chosen.manifest:
        classified = judge_as_new(source.facts)
        events = plan_events(classified, group, policies).select(*EVENTS.names)
        return events, events.limit(0), select_unsendable(classified, group, policies)
    manifest = Manifest(source.facts.sparkSession, chosen.manifest)
    history = manifest.read_history()
    asked, others = history.divide(chosen.fed_since, chosen.fed_until)
    events = manifest.read_fed(group, asked)
    unsendable = source.facts.limit(0)
    if chosen.fed_until is None:
        classified = classify_facts(
            source.facts, manifest.read_fed(group, history), source.deletion
        )
        events = events.unionByName(plan_events(classified, group, policies))
        unsendable = select_unsendable(classified, group, policies)
    aside = manifest.read_fed(group, others)
    return events.select(*EVENTS.names), aside.select(*EVENTS.names), unsendable


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
        "fed since": chosen.fed_since and chosen.fed_since.isoformat(),
        "fed until": chosen.fed_until and chosen.fed_until.isoformat(),
        "journal": chosen.journal or "read from the account",
        "full report": chosen.report,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return {name: value for name, value in named.items() if value}


if __name__ == "__main__":
    sys.exit(main())
