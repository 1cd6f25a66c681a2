"""Feed the flights of a source to both regions: `python -m spark.feed --help`."""

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.settings import InvalidSettings, Settings
from spark.arguments import above_zero, add_selection, whole
from spark.datasource import LockstepDataSource
from spark.failures import SparkFailure, root_cause
from spark.judging import first_days, judged, rejects
from spark.options import ROWS_MAX_DEFAULT, app_settings
from spark.runtime import INTERRUPTED, Interrupted, SparkUnavailable, spark_session
from spark.schemas import REJECTS
from spark.sending import Counts
from spark.sources import SourceRefused, located, read_flights
from spark.transforms import ARRIVED, events, in_event_order

REJECTS_DEFAULT = "rejects"
# What Spark leaves in a folder of JSON lines; a folder with anything else in it is not ours.
REJECTS_FILES = ("part-", ".part-", "_SUCCESS", "._SUCCESS")

DESCRIPTION = """\
Turn flights into numbered events, one ordered stream per aircraft, and send them to both regions.
Connections come from the app settings in the environment (LOCKSTEP_*, ServiceBus_<region>, Cosmos).
Running it again sends the same ids, numbers and bytes, and so adds no effect."""


class RowsLost(Exception):
    """The source's rows are not all accounted for; nothing was sent."""


class RejectsRefused(Exception):
    """The rejects folder holds something that is not ours to replace."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What became of the source's rows."""

    rows: int
    events: int
    sessions: int
    rejects: dict[str, int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the feed; the exit status is 0 only when every event is safe in at least one region."""
    chosen = parser().parse_args(arguments)
    try:
        feed(chosen)
    except (InvalidSettings, SourceRefused, SparkUnavailable, RejectsRefused, RowsLost) as error:
        return failed(str(error))
    except SparkFailure as error:
        return failed(root_cause(error))
    except (KeyboardInterrupt, Interrupted):
        say("interrupted; what was sent stays sent, running it again completes it")
        return INTERRUPTED
    return 0


def parser() -> ArgumentParser:
    """What the command line takes."""
    described = ArgumentParser(prog="python -m spark.feed", description=DESCRIPTION)
    add_selection(described)
    described.add_argument(
        "--rate",
        type=above_zero,
        metavar="N",
        help="messages per second at most, all tasks together (default: no limit)",
    )
    described.add_argument(
        "--batch",
        type=whole,
        default=ROWS_MAX_DEFAULT,
        metavar="ROWS",
        help="rows a task holds before it sends them (default: %(default)s)",
    )
    described.add_argument(
        "--rejects",
        default=REJECTS_DEFAULT,
        metavar="DIR",
        help="folder for rows that cannot become events, as JSON lines (default: %(default)s)",
    )
    described.add_argument("--summary", type=Path, metavar="FILE", help="write the counts as JSON")
    described.add_argument("--dry-run", action="store_true", help="do all but send")
    return described


def feed(chosen: Namespace) -> None:
    """Extract, transform, load; then say what was done."""
    started = time.monotonic()
    if not chosen.dry_run:
        Settings.read(app_settings({}))
    require_replaceable(Path(chosen.rejects))
    say("starting Spark")
    with located(chosen.source) as path, spark_session(chosen.master) as spark:
        flights = extract(spark, path, chosen.days)
        rows, rejected = transform(flights, chosen.group)
        intake = take_in(flights, rows, rejected, chosen.rejects)
        counts = Counts() if chosen.dry_run else load(rows, chosen.rate, chosen.batch)
    summarise(intake, counts, time.monotonic() - started, chosen.summary)


def extract(spark: SparkSession, path: str, days: int) -> DataFrame:
    """The flights of the source's first days."""
    say(f"reading {path}")
    return first_days(read_flights(spark, path), days).persist()


def transform(flights: DataFrame, group: str) -> tuple[DataFrame, DataFrame]:
    """The events the flights become, and the flights that cannot become any."""
    verdicts = judged(flights).persist()
    return events(verdicts, group).persist(), rejects(verdicts)


def take_in(flights: DataFrame, rows: DataFrame, rejected: DataFrame, folder: str) -> Intake:
    """Write the rejects and count everything; raises RowsLost unless every row is accounted for."""
    say(f"judging and numbering; rejects go to {folder}")
    rejected.coalesce(1).write.json(folder, mode="overwrite")
    by_reason = by_reason_in(rejected.sparkSession, folder)
    status = F.get_json_object("body", "$.status")
    found = rows.agg(
        F.count("*").alias("events"),
        F.count_distinct("session").alias("sessions"),
        F.count_if(status != ARRIVED).alias("flights"),
    ).first()
    if found is None:
        raise RowsLost("Spark counted nothing at all")
    intake = Intake(flights.count(), found["events"], found["sessions"], by_reason)
    require_all(intake, found["flights"])
    return intake


def by_reason_in(spark: SparkSession, folder: str) -> dict[str, int]:
    """How many rejects a folder holds by reason: counted from what was written."""
    written = spark.read.schema(REJECTS).json(folder).groupBy("reason").count()
    return {row["reason"]: row["count"] for row in written.orderBy("reason").collect()}


def require_all(intake: Intake, accepted: int) -> None:
    """Raise RowsLost unless the rows are those that became events and those that were rejected."""
    rejected = sum(intake.rejects.values())
    if intake.rows != accepted + rejected:
        raise RowsLost(
            f"{intake.rows} rows were read, but {accepted} became events and {rejected} rejects"
        )


def require_replaceable(folder: Path) -> None:
    """Raise RejectsRefused when replacing the folder would delete what is not rejects."""
    if folder.is_file():
        raise RejectsRefused(f"{folder} is a file; the rejects need a folder")
    strangers = (
        []
        if not folder.exists()
        else [file.name for file in folder.iterdir() if not file.name.startswith(REJECTS_FILES)]
    )
    if strangers:
        raise RejectsRefused(f"{folder} holds {strangers[0]}; rejects would replace the folder")


def load(rows: DataFrame, rate: float | None, batch: int) -> Counts:
    """Send the events from the executors; the counts are the sum over all partitions."""
    spark = rows.sparkSession
    lanes = spark.sparkContext.defaultParallelism
    say(f"sending in {lanes} partitions" + (f", {rate:g} a second" if rate else ""))
    spark.dataSource.register(LockstepDataSource)
    with TemporaryDirectory(prefix="lockstep-feed-") as folder:
        summary = Path(folder, "counts.json")
        writer = in_event_order(rows, lanes).write.format("lockstep").mode("append")
        writer = writer.options(batch=batch, summary=str(summary))
        (writer.options(rate=rate, partitions=lanes) if rate else writer).save()
        return Counts(**json.loads(summary.read_text()))


def summarise(intake: Intake, counts: Counts, seconds: float, file: Path | None) -> None:
    """Tell people on stdout, and programs in the summary file."""
    told = asdict(intake) | asdict(counts) | {"seconds": round(seconds, 1)}
    if file is not None:
        file.write_text(json.dumps(told, indent=2) + "\n")
    lines = [
        f"{intake.rows} rows became {intake.events} events of {intake.sessions} sessions",
        f"{sum(intake.rejects.values())} rows rejected",
        *(f"  {count} {reason}" for reason, count in intake.rejects.items()),
        f"{counts.sent} sent, {counts.owed} copies owed, {seconds:.1f} s",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def say(line: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"feed: {line}\n")
    sys.stderr.flush()


def failed(line: str) -> int:
    """Say why there is no result; the exit status for it."""
    say(line)
    return 2


if __name__ == "__main__":
    sys.exit(main())
