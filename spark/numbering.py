"""Numbers for facts, ids for numbers, and the order in which events are sent.

Pure DataFrame functions. Equal inputs give equal numbers, ids and bytes on any cluster.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark.schemas import EVENTS, PLAN

# A session's events are sent in runs of at most so many, so that a deep one lets the others pass.
RUN_EVENTS = 50


def numbered(facts: DataFrame, group: str, begin: str | None = None) -> DataFrame:
    """Facts as a plan (schemas.PLAN), numbered without gaps per session in order of place.

    Numbers begin at 0, or at what the column `begin` says of the session.
    """
    in_order = Window.partitionBy("session").orderBy("place", "body", "key")
    ahead = F.lit(0) if begin is None else F.coalesce(F.col(begin), F.lit(0))
    return (
        facts.withColumn("sequence", (F.row_number().over(in_order) - 1 + ahead).cast("long"))
        .withColumn("group", F.lit(group))
        .withColumn("id", event_id())
        .withColumn("digest", content_digest())
        .select(*PLAN.names)
    )


def event_id() -> Column:
    """The same id for the same place in the same session, however often the feed runs."""
    place = F.concat_ws("\n", "group", "session", F.col("sequence").cast("string"))
    return F.substring(F.sha2(place, 256), 1, 32)


def content_digest() -> Column:
    """What the journal calls the digest of a message: SHA-256 of type, a zero byte and body."""
    return F.sha2(F.concat(utf8("type"), F.unhex(F.lit("00")), utf8("body")), 256)


def utf8(name: str) -> Column:
    """The bytes of a text column."""
    return F.encode(name, "UTF-8")


def in_event_order(rows: DataFrame, lanes: int) -> DataFrame:
    """Events as they happened, in `lanes` partitions, each session whole and in order in one.

    An event waits for the one before it: where a session's times run backwards, order wins.
    """
    so_far = Window.partitionBy("session").orderBy("sequence")
    so_far = so_far.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        rows.withColumn("due", F.max("time").over(so_far))
        .repartition(lanes, "session")
        .sortWithinPartitions("due", "session", "sequence")
        .select(*EVENTS.names)
    )


def in_runs(rows: DataFrame, lanes: int) -> DataFrame:
    """Events for bulk: each session whole and in order in one of `lanes` partitions.

    Sessions take turns in runs of RUN_EVENTS, so few operations carry many events, and a session
    with a third of all rows holds no other one up.
    """
    return (
        rows.repartition(lanes, "session")
        .withColumn("run", F.floor(F.col("sequence") / RUN_EVENTS))
        .sortWithinPartitions("run", "session", "sequence")
        .select(*EVENTS.names)
    )
