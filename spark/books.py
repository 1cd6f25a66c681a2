"""Source against journal: which events have no effect, which effects have no event, and the like.

Pure DataFrame functions. An effect is an event that a completed entry covers. An event of a faulted
or skipped entry has a named end but no effect; it is reported apart from what is missing.
"""

from enum import StrEnum

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from spark.numbering import content_digest
from spark.schemas import texts

# The documents of kind `entry`, as far as the books need them; ids are zero-padded positions.
COVERED = StructType(
    [*texts(("id", "type", "digest", "group")).fields, StructField("sequence", LongType())]
)
ENTRIES = StructType(
    [*texts(("session", "id", "status")).fields, StructField("covers", ArrayType(COVERED))]
)
COMPLETED = "completed"
ENDED_WITHOUT_EFFECT = ("faulted", "skipped")


class Finding(StrEnum):
    """The ways in which source and journal can disagree."""

    MISSING = "missing"
    FAULTED = "faulted or skipped"
    EXTRA = "extra"
    REPEATED = "repeated"
    OUT_OF_ORDER = "out of order"
    DIFFERENT = "different content"


def findings(events: DataFrame, entries: DataFrame, group: str) -> DataFrame:
    """Every disagreement (schemas.FINDINGS); no row means the books balance."""
    covered = covered_by(entries, group).persist()
    effects = covered.where(F.col("status") == COMPLETED)
    return compared(expected(events), effects, covered).unionByName(misplaced(effects))


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


def compared(wanted: DataFrame, effects: DataFrame, covered: DataFrame) -> DataFrame:
    """Events without effect, effects without event, and effects of something else."""
    ended = covered.where(F.col("status").isin(*ENDED_WITHOUT_EFFECT))
    ended = ended.groupBy("session", "id").count().withColumnRenamed("count", "ends")
    seen = effects.select(
        "session",
        "id",
        F.col("sequence").alias("sequence_seen"),
        F.col("digest").alias("digest_seen"),
    )
    both = wanted.join(seen, how="full_outer", on=["session", "id"])
    both = both.join(ended, how="left", on=["session", "id"])
    no_effect, no_event = F.col("digest_seen").isNull(), F.col("digest").isNull()
    same = (F.col("digest") == F.col("digest_seen")) & (F.col("sequence") == F.col("sequence_seen"))
    finding = (
        F.when(no_effect & F.col("ends").isNotNull(), Finding.FAULTED)
        .when(no_effect, Finding.MISSING)
        .when(no_event, Finding.EXTRA)
        .when(~same, Finding.DIFFERENT)
    )
    sequence = F.coalesce("sequence", "sequence_seen").alias("sequence")
    found = both.select(finding.alias("finding"), "session", sequence, "id")
    return found.where(F.col("finding").isNotNull())


def misplaced(effects: DataFrame) -> DataFrame:
    """Second effects of one message, and first effects that follow a higher number."""
    in_journal = Window.partitionBy("session").orderBy("position", "place")
    before = in_journal.rowsBetween(Window.unboundedPreceding, -1)
    same_id = Window.partitionBy("session", "id").orderBy("position", "place")
    finding = F.when(F.row_number().over(same_id) > 1, Finding.REPEATED).when(
        F.col("sequence") < F.max("sequence").over(before), Finding.OUT_OF_ORDER
    )
    found = effects.select(finding.alias("finding"), "session", "sequence", "id")
    return found.where(F.col("finding").isNotNull())
