"""Order events for sending: each session whole and in order within one partition."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark.schemas import EVENTS

# At most this many events of a session are sent in a row, so that a session with very many events
# does not hold up the others of its partition.
RUN_EVENTS = 50


def find_lane(lanes: int) -> Column:
    """The partition in which `repartition(lanes, "session")` puts a row."""
    return F.pmod(F.hash("session"), F.lit(lanes))


def arrange_in_event_order(rows: DataFrame, partitions: int) -> DataFrame:
    """Order events by their times. Each session is whole and in order within one partition.

    An event is never before its session's earlier numbers: if the times of a session run
    backwards, the numbers decide.
    """
    so_far = Window.partitionBy("session").orderBy("sequence")
    so_far = so_far.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        rows.withColumn("due", F.max("time").over(so_far))
        .repartition(partitions, "session")
        .sortWithinPartitions("due", "session", "sequence")
        .select(*EVENTS.names)
    )


def arrange_in_runs(rows: DataFrame, partitions: int) -> DataFrame:
    """Order events for bulk sending. Each session is whole and in order within one partition.

    Sessions alternate in runs of RUN_EVENTS: an operation carries many events of one session, and
    a session with a third of all rows does not hold up the others.
    """
    return (
        rows.repartition(partitions, "session")
        .withColumn("run", F.floor(F.col("sequence") / RUN_EVENTS))
        .sortWithinPartitions("run", "session", "sequence")
        .select(*EVENTS.names)
    )
