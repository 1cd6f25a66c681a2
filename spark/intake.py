"""What a source becomes: facts, and rejects with their reasons; every row is accounted for."""

import re
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.exclusive import Files
from spark.judging import first_days, judged, rejects
from spark.mapped import mapped
from spark.mapping import Mapping
from spark.schemas import FACTS, REFUSED_ROWS
from spark.sources import read_flights
from spark.transforms import ARRIVED, facts

# What Spark leaves in a folder of JSON lines, and the folder of a stream's batch; a folder with
# anything else in it is not ours.
REJECTS_FILES = ("part-", ".part-", "_SUCCESS", "._SUCCESS", "batch-")


# A scheme has more than the one letter of a drive.
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class RowsLost(Exception):
    """The source's rows are not all accounted for; nothing was sent."""


class RejectsRefused(Exception):
    """The rejects folder holds something that is not ours to replace."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source that was read and judged: its rows, the facts they state, and those that do not.

    A fact of `each_row` stands for a row of its own, as opposed to a further fact of the same row.
    """

    rows: DataFrame
    facts: DataFrame
    rejects: DataFrame
    each_row: Column
    kept: tuple[DataFrame, ...]
    watermark: str | None = None

    def release(self) -> None:
        """Give back the memory it is kept in."""
        for table in self.kept:
            table.unpersist()


@dataclass(frozen=True, slots=True)
class Intake:
    """What became of the source's rows."""

    rows: int
    events: int
    sessions: int
    rejects: dict[str, int]


NOTHING = Intake(0, 0, 0, {})


def flights_source(spark: SparkSession, path: str, days: int) -> Source:
    """The flights of the source's first days."""
    flights = first_days(read_flights(spark, path), days).persist()
    verdicts = judged(flights).persist()
    status = F.get_json_object("body", "$.status")
    stated = facts(verdicts).persist()
    is_first = status != ARRIVED
    return Source(flights, stated, rejects(verdicts), is_first, (flights, verdicts, stated))


def mapped_source(table: DataFrame, mapping: Mapping) -> Source:
    """A table by its mapping, with the highest watermark in it."""
    verdicts = mapped(table, mapping).persist()
    good, bad = F.col("reason").isNull(), F.col("reason").isNotNull()
    return Source(
        table,
        verdicts.where(good).select(*FACTS.names),
        verdicts.where(bad).select(*REFUSED_ROWS.names),
        F.expr("true"),
        (verdicts,),
        highest(verdicts, mapping),
    )


def highest(verdicts: DataFrame, mapping: Mapping) -> str | None:
    """The highest watermark of the rows that became facts; None without any."""
    if mapping.watermark is None:
        return None
    mark = F.col("watermark").cast(mapping.columns[mapping.watermark])
    found = verdicts.where(F.col("reason").isNull()).agg(F.max(mark).cast("string")).first()
    return None if found is None else found[0]


def take_in(source: Source, folder: str, *, again: bool = False) -> Intake:
    """Write the rejects and count everything; raises RowsLost unless every row is accounted for.

    `again` is for a folder that is surely of the same rows, as that of a stream's batch is.
    """
    write_rejects(source.rejects, folder, again=again)
    by_reason = by_reason_in(source.rejects.sparkSession, folder)
    found = source.facts.agg(
        F.count("*").alias("events"),
        F.count_distinct("session").alias("sessions"),
        F.count_if(source.each_row).alias("rows"),
    ).first()
    if found is None:
        raise RowsLost("Spark counted nothing at all")
    intake = Intake(source.rows.count(), found["events"], found["sessions"], by_reason)
    require_all(intake, found["rows"])
    return intake


def write_rejects(rejected: DataFrame, folder: str, *, again: bool) -> None:
    """Replace a folder on this machine; one elsewhere must be new, or of the same rows."""
    mode = "error" if is_elsewhere(folder) and not again else "overwrite"
    rejected.coalesce(1).write.json(folder, mode=mode)


def by_reason_in(spark: SparkSession, folder: str) -> dict[str, int]:
    """How many rejects a folder holds by reason: counted from what was written."""
    written = spark.read.schema("reason string").json(folder).groupBy("reason").count()
    return {row["reason"]: row["count"] for row in written.orderBy("reason").collect()}


def require_all(intake: Intake, accepted: int) -> None:
    """Raise RowsLost unless the rows are those that became events and those that were rejected."""
    rejected = sum(intake.rejects.values())
    if intake.rows != accepted + rejected:
        raise RowsLost(
            f"{intake.rows} rows were read, but {accepted} became events and {rejected} rejects"
        )


def require_replaceable(spark: SparkSession, folder: str) -> None:
    """Raise RejectsRefused when replacing the folder would delete what is not rejects."""
    if is_elsewhere(folder):
        return
    strangers = [name for name in Files(spark).names(folder) if not name.startswith(REJECTS_FILES)]
    if strangers:
        raise RejectsRefused(f"{folder} holds {strangers[0]}; rejects would replace the folder")


def is_elsewhere(folder: str) -> bool:
    """Whether a folder is named by a URL, and not as one of the place where the job runs."""
    return URL.match(folder) is not None


def plus(one: Intake, other: Intake) -> Intake:
    """The sum of two intakes; a session that is in both counts twice."""
    reasons = sorted({*one.rejects, *other.rejects})
    rejected = {why: one.rejects.get(why, 0) + other.rejects.get(why, 0) for why in reasons}
    return Intake(
        one.rows + other.rows, one.events + other.events, one.sessions + other.sessions, rejected
    )
