"""Send a chosen part of what was fed again: `python -m spark.replay --help`.

A replay adds no second effect, because it sends what a manifest is bound to: the ids, numbers and
bytes are those of the first time. What the journal has is recognised as a duplicate. What it lacks
takes the place of its number.
"""

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import asdict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.settings import Settings, read_body_limit
from spark.check.reconciliation import FINDINGS, FindingKind
from spark.feeding.gate import find_refusal
from spark.feeding.manifest import Manifest
from spark.job.arguments import (
    add_group_argument,
    add_manifest_argument,
    add_spark_arguments,
    parse_iso_time,
)
from spark.job.console import JobConsole
from spark.job.runtime import open_spark
from spark.job.settings import read_app_settings
from spark.schemas import EVENTS
from spark.send.arguments import add_sending_arguments
from spark.send.datasource import EventWriter, require_all_sent
from spark.send.rows import SendCounts

JOB = "replay"

DESCRIPTION = """\
Send events again that feeds with a manifest have sent: those of some sessions, of a time range, or
those that a report of reconcile calls missing. Ids, numbers and bytes are those of the first time,
so what the journal has gets no second effect. Connections come from the app settings."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay; the exit status is 0 only if every chosen event is safe in at least one region."""
    parser = build_replay_parser()
    chosen = parser.parse_args(arguments)
    if not (chosen.session or chosen.since or chosen.until or chosen.missing or chosen.all):
        parser.error("choose by --session, --since, --until or --missing, or say --all")
    console = JobConsole(JOB, chosen.quiet)
    return console.run(lambda: run_replay(chosen, console))


def build_replay_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m spark.replay", description=DESCRIPTION)
    add_manifest_argument(parser, required=True)
    add_group_argument(parser)
    add = parser.add_argument
    add("--session", action="append", metavar="ID", help="a session; may be given more than once")
    add("--since", type=parse_time, metavar="TIME", help="from this time on (ISO 8601)")
    add("--until", type=parse_time, metavar="TIME", help="before this time (ISO 8601)")
    add("--missing", metavar="DIR", help="the events that this report calls missing")
    add("--all", action="store_true", help="everything")
    add_sending_arguments(parser)
    add_spark_arguments(parser)
    return parser


def parse_time(text: str) -> str:
    """A time without a zone, compared as text with events' times; raises ArgumentTypeError."""
    found = parse_iso_time(text)
    if found.tzinfo is not None:
        raise ArgumentTypeError(f"a time without a zone, in the zone of the events: {text!r}")
    return found.isoformat()


def run_replay(chosen: Namespace, console: JobConsole) -> int:
    if not chosen.dry_run:
        Settings.read(read_app_settings({}))
    with open_spark(chosen.master) as spark:
        manifest = Manifest(spark, chosen.manifest)
        fed = manifest.read_fed(chosen.group, manifest.read_history()).select(*EVENTS.names)
        rows = select_events(fed, chosen.session, chosen.since, chosen.until)
        if chosen.missing:
            rows = select_missing(rows, read_findings(spark, chosen.missing))
        most = read_body_limit(read_app_settings({}))
        with console.show_progress("choosing"):
            rows = rows.withColumn("refusal", find_refusal(chosen.group, most)).persist()
            count, refused, example = rows.agg(
                F.count("*"), F.count("refusal"), F.min("refusal")
            ).collect()[0]
        if not count:
            why = f"{chosen.manifest} has no such event of {chosen.group!r}"
            return console.report_failure(why)
        console.log(f"{count} events chosen")
        sent = SendCounts()
        if not chosen.dry_run:
            with console.show_progress("sending", count) as display:
                writer = EventWriter(chosen.rate, chosen.batch, gaps=True, reports=display.reports)
                # What can never be sent must not keep back what can.
                sent = writer.send(rows.where("refusal is null"), count - refused)
            require_all_sent(count - refused, sent)
    if chosen.summary is not None:
        document = {"chosen": count} | asdict(sent)
        chosen.summary.write_text(json.dumps(document, indent=2) + "\n")
    line = f"{count} events chosen, {sent.sent} sent, {sent.pending} copies pending"
    sys.stdout.write(line + "\n")
    if refused:
        why = f"{refused} of the events chosen cannot be sent, for example: {example}"
        return console.report_failure(why)
    return 0


def select_events(
    fed: DataFrame, sessions: Sequence[str] | None, since: str | None, until: str | None
) -> DataFrame:
    """Events of these sessions with a time (ISO 8601 text) in [since, until); None is any."""
    wanted = F.expr("true")
    if sessions:
        wanted &= F.col("session").isin(*sessions)
    if since:
        wanted &= F.col("time") >= since
    if until:
        wanted &= F.col("time") < until
    return fed.where(wanted)


def select_missing(events: DataFrame, findings: DataFrame) -> DataFrame:
    is_missing = F.col("finding") == FindingKind.MISSING
    missing = findings.where(is_missing).select("session", "id").distinct()
    return events.join(missing, on=["session", "id"], how="left_semi").select(*EVENTS.names)


def read_findings(spark: SparkSession, report: str) -> DataFrame:
    return spark.read.schema(FINDINGS).parquet(f"{report}/findings")


if __name__ == "__main__":
    sys.exit(main())
