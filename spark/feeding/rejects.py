"""Write the rejected rows, and make sure that every row of a source is accounted for."""

import re
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding.judging import ChangePolicies, Standing, format_rejects, select_unsendable
from spark.job.console import JobConsole
from spark.job.failures import JobRefused
from spark.job.files import SparkFiles
from spark.read.facts import SourceFacts

# What Spark leaves in a folder of JSON lines, and the folder of a stream's batch. A folder that
# holds anything else was not written by a feed.
REJECTS_FILES = ("part-", ".part-", "_SUCCESS", "._SUCCESS", "batch-")

# A URL's scheme has at least two letters; one letter is a drive.
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The number of rows read, and what became of them; `rejects` are counted by reason."""

    rows: int = 0
    events: int = 0
    sessions: int = 0
    rejects: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: "RowCounts") -> "RowCounts":
        """The sum of two batches; a session that is in both counts twice."""
        reasons = sorted({*self.rejects, *other.rejects})
        return RowCounts(
            self.rows + other.rows,
            self.events + other.events,
            self.sessions + other.sessions,
            {why: self.rejects.get(why, 0) + other.rejects.get(why, 0) for why in reasons},
        )


def account_for_rows(source: SourceFacts, folder: str, *, replace: bool = False) -> RowCounts:
    """Write the rejects and count everything. Raises JobRefused unless every row is accounted for.

    `replace` is for a folder that can only hold the same rows, as that of a stream's batch does.
    """
    write_rejects(source.rejects, folder, replace=replace)
    # Counting what was written, instead of the table, also finds rows that were lost in writing.
    by_reason = count_written_rejects(source.rejects.sparkSession, folder)
    found = source.facts.agg(
        F.count("*").alias("events"),
        F.count_distinct("session").alias("sessions"),
        F.count_if(source.first_fact).alias("rows"),
    ).first()
    if found is None:
        raise JobRefused("Spark counted nothing at all")
    counts = RowCounts(source.rows.count(), found["events"], found["sessions"], by_reason)
    require_all_rows(counts, found["rows"])
    return counts


def reject_unsendable(
    classified: DataFrame,
    group: str,
    policies: ChangePolicies,
    folder: str | None,
    console: JobConsole,
) -> dict[Standing, int]:
    """Write what sending refuses as rejects, if there is a folder; returns how many by standing."""
    refused = select_unsendable(classified, group, policies)
    rows = refused.groupBy("standing").agg(F.count("*"), F.min("refusal")).collect()
    found = {Standing(standing): int(count) for standing, count, _ in rows}
    if found:
        console.log(f"{sum(found.values())} {Standing.UNSENDABLE}, for example: {rows[0][2]}")
        if folder is not None:
            reason = F.concat_ws(": ", F.lit(Standing.UNSENDABLE), "refusal")
            format_rejects(refused, reason).coalesce(1).write.json(folder, mode="append")
    return found


def write_rejects(rejected: DataFrame, folder: str, *, replace: bool) -> None:
    """Replace a local folder. A folder at a URL must be new unless `replace` is set."""
    mode = "error" if URL.match(folder) and not replace else "overwrite"
    rejected.coalesce(1).write.json(folder, mode=mode)


def count_written_rejects(spark: SparkSession, folder: str) -> dict[str, int]:
    written = spark.read.schema("reason string").json(folder).groupBy("reason").count()
    return dict(sorted((row["reason"], row["count"]) for row in written.collect()))


def require_all_rows(counts: RowCounts, accepted: int) -> None:
    rejected = sum(counts.rejects.values())
    if counts.rows != accepted + rejected:
        raise JobRefused(
            f"{counts.rows} rows were read, but {accepted} became events and {rejected} rejects"
        )


def require_replaceable(spark: SparkSession, folder: str) -> None:
    """Raise JobRefused if replacing the folder would delete anything but rejects."""
    if URL.match(folder):
        return
    names = SparkFiles(spark).list_names(folder)
    foreign = [name for name in names if not name.startswith(REJECTS_FILES)]
    if foreign:
        raise JobRefused(f"{folder} holds {foreign[0]}; rejects would replace the folder")
