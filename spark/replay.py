"""Send a chosen part of what was fed again: `python -m spark.replay --help`.

Safe by construction: the archive is what a manifest is bound to, so ids, numbers and bytes are
those of the first time. What the journal has is recognised and has no second effect; what it lacks
takes the place that its number says.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.settings import Settings
from spark.arguments import add_master, add_sending, file_to_write, group, moment
from spark.comparison import Finding
from spark.job import ended
from spark.loading import Load
from spark.manifest import Manifest
from spark.options import app_settings
from spark.runtime import spark_session
from spark.schemas import EVENTS, FINDINGS
from spark.sending import Counts
from spark.voice import Voice

JOB = "replay"

DESCRIPTION = """\
Send events again that feeds with a manifest have sent: those of some sessions, of a time range, or
those a report of reconcile calls missing. Ids, numbers and bytes are those of the first time, so
what the journal has gets no second effect. Connections come from the app settings."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay; the exit status is 0 only when every chosen event is safe in at least one region."""
    described = parser()
    chosen = described.parse_args(arguments)
    if not (chosen.session or chosen.since or chosen.until or chosen.missing or chosen.all):
        described.error("choose by --session, --since, --until or --missing, or say --all")
    voice = Voice(JOB, chosen.quiet)
    return ended(voice, lambda: replay(chosen, voice))


def parser() -> ArgumentParser:
    """What the command line takes."""
    described = ArgumentParser(prog="python -m spark.replay", description=DESCRIPTION)
    described.add_argument("--manifest", metavar="DIR", required=True, help="what was fed")
    described.add_argument(
        "--group", type=group, required=True, metavar="NAME", help="the producer group that fed it"
    )
    described.add_argument(
        "--session", action="append", metavar="ID", help="a session; may be said more than once"
    )
    described.add_argument(
        "--since", type=moment, metavar="TIME", help="from this time on (ISO 8601)"
    )
    described.add_argument(
        "--until", type=moment, metavar="TIME", help="before this time (ISO 8601)"
    )
    described.add_argument("--missing", metavar="DIR", help="what this report calls missing")
    described.add_argument("--all", action="store_true", help="everything")
    described.add_argument(
        "--summary", type=file_to_write, metavar="FILE", help="write the counts as JSON"
    )
    described.add_argument("--dry-run", action="store_true", help="do all but send")
    add_sending(described)
    add_master(described)
    return described


def replay(chosen: Namespace, voice: Voice) -> int:
    """Choose from the archive and send; then say what was done. The exit status."""
    if not chosen.dry_run:
        Settings.read(app_settings({}))
    with spark_session(chosen.master) as spark:
        manifest = Manifest(spark, chosen.manifest)
        archive = manifest.fed(chosen.group, manifest.history())
        rows = selected(archive.select(*EVENTS.names), chosen.session, chosen.since, chosen.until)
        if chosen.missing:
            rows = missing(rows, read_findings(spark, chosen.missing))
        with voice.stage("choosing"):
            count = rows.persist().count()
        if not count:
            return voice.failed(f"{chosen.manifest} has no such event of {chosen.group!r}")
        voice.say(f"{count} events chosen")
        counts = Counts()
        if not chosen.dry_run:
            with voice.stage("sending", count) as stage:
                load = Load(chosen.rate, chosen.batch, gaps=True, progress=stage.address)
                counts = load.send(rows)
    summarise(count, counts, chosen.summary)
    return 0


def selected(
    archive: DataFrame, sessions: Sequence[str] | None, since: str | None, until: str | None
) -> DataFrame:
    """Events (schemas.EVENTS) of these sessions with a time in [since, until); None is any.

    Times are compared as ISO 8601 texts, as the feed wrote them.
    """
    wanted = F.expr("true")
    if sessions:
        wanted &= F.col("session").isin(*sessions)
    if since:
        wanted &= F.col("time") >= since
    if until:
        wanted &= F.col("time") < until
    return archive.where(wanted)


def missing(events: DataFrame, findings: DataFrame) -> DataFrame:
    """The events that findings (schemas.FINDINGS) call missing."""
    gone = findings.where(F.col("finding") == Finding.MISSING).select("session", "id").distinct()
    return events.join(gone, on=["session", "id"], how="left_semi").select(*EVENTS.names)


def read_findings(spark: SparkSession, report: str) -> DataFrame:
    """The findings in a report of reconcile."""
    return spark.read.schema(FINDINGS).parquet(f"{report}/findings")


def summarise(count: int, counts: Counts, file: Path | None) -> None:
    """Tell people on stdout, and programs in the summary file."""
    if file is not None:
        file.write_text(json.dumps({"chosen": count} | asdict(counts), indent=2) + "\n")
    line = f"{count} events chosen, {counts.sent} sent, {counts.owed} copies owed"
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
