"""Source against journal: the disagreements, and the accounts by session. Pure functions."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from spark.comparison import (
    COMPLETED,
    Finding,
    compared,
    disagreements,
    is_as_expected,
    is_out_of_order,
    placed,
)
from spark.numbering import content_digest
from spark.schemas import FINDINGS, texts

# The documents of kind `entry`, as far as the books need them; ids are zero-padded positions.
COVERED = StructType(
    [*texts(("id", "type", "digest", "group")).fields, StructField("sequence", LongType())]
)
ENTRIES = StructType(
    [*texts(("session", "id", "status")).fields, StructField("covers", ArrayType(COVERED))]
)


def findings(events: DataFrame, entries: DataFrame, group: str) -> DataFrame:
    """Every disagreement (schemas.FINDINGS) but TWICE, which the source has with itself.

    An effect in a session that is not its event's is named there as in the wrong session, and its
    event as missing from its own.
    """
    found = placed(compared(expected(events), covered_by(entries, group)))
    amiss = found.where(~is_as_expected() | is_out_of_order())
    return amiss.select(F.inline(disagreements())).select(*FINDINGS.names)


def accounts(events: DataFrame, entries: DataFrame, group: str, found: DataFrame) -> DataFrame:
    """The books by session: events expected, effects in the journal, and a count per finding."""
    is_effect = F.col("status") == COMPLETED
    effects = covered_by(entries, group).where(is_effect).groupBy("session")
    counts = found.groupBy("session").pivot("finding", list(Finding)).count()
    return (
        events.groupBy("session")
        .agg(F.count("*").alias("expected"))
        .join(effects.agg(F.count("*").alias("effects")), on="session", how="full_outer")
        .join(counts, on="session", how="full_outer")
        .na.fill(0)
    )


def expected(events: DataFrame) -> DataFrame:
    """What the journal must hold of the events (schemas.EVENTS)."""
    return events.select("session", "id", "sequence", content_digest().alias("digest"))


def covered_by(entries: DataFrame, group: str) -> DataFrame:
    """One row for each message of the group that an entry covers, with where it stands."""
    each = entries.select(
        "session",
        F.col("id").cast("long").alias("position"),
        "status",
        F.posexplode("covers").alias("place", "message"),
    )
    return each.where(F.col("message.group") == group).select(
        "session", "position", "place", "status", "message.id", "message.sequence", "message.digest"
    )
