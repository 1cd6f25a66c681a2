"""From flights to facts and events: DataFrames in, DataFrames out.

A session is an aircraft. Its order is the scheduled day, then the instant of departure (scheduled,
for a cancelled flight), then flight and origin, then departed before arrived. The day leads so
that more days only append: a flight of day one that left a day late keeps its place before day two.
Facts that ORDER cannot tell apart are ordered by their body: equals may stand in any order.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark.judging import DAY_MINUTES, minutes
from spark.numbering import numbered
from spark.schemas import EVENTS

EVENT_TYPE = "flight.status"
DEPARTED, ARRIVED, CANCELLED = "departed", "arrived", "cancelled"
ORDER = ("date", "departure", "flight", "origin", "stage")


def events(verdicts: DataFrame, group: str) -> DataFrame:
    """The events (schemas.EVENTS) of the flights judged good, numbered for a producer group."""
    return numbered(facts(verdicts), group).select(*EVENTS.names)


def facts(verdicts: DataFrame) -> DataFrame:
    """What the flights judged good say of their aircraft (schemas.FACTS)."""
    said = statuses(timed(verdicts.where(F.col("reason").isNull())))
    return said.select(
        "session",
        F.to_json(F.array(*texts("date", "scheduled", "flight", "origin", "stage"))).alias("key"),
        F.array(*texts(*ORDER)).alias("place"),
        F.lit(EVENT_TYPE).alias("type"),
        body().alias("body"),
        F.col("at").alias("time"),
    )


def texts(*names: str) -> list[Column]:
    """Columns as text; dates and instants of four-digit years are ordered as their texts are."""
    return [F.col(name).cast("string") for name in names]


def timed(flights: DataFrame) -> DataFrame:
    """Good flights with the instants they departed (or should have) and arrived."""
    flown = F.col("dep_time").isNotNull()
    scheduled = later(F.col("date"), minutes(F.col("sched_dep_time")))
    return (
        flights.withColumn("flown", flown)
        .withColumn(
            "departure", F.when(flown, later(scheduled, F.col("dep_delay"))).otherwise(scheduled)
        )
        .withColumn("scheduled", scheduled)
        .withColumn("arrival", arrival())
    )


def later(instant: Column, minutes_later: Column) -> Column:
    """An instant some minutes later (or earlier), free of any time zone."""
    return F.timestamp_add("MINUTE", minutes_later, instant)


def arrival() -> Column:
    """The arrival's clock on the day of departure, or on the next when it shows less."""
    landed = minutes(F.col("arr_time")) % DAY_MINUTES
    overnight = landed < minutes(F.col("dep_time")) % DAY_MINUTES
    midnight = F.col("departure").cast("date").cast("timestamp_ntz")
    return later(midnight, landed + F.when(overnight, DAY_MINUTES).otherwise(0))


def statuses(flights: DataFrame) -> DataFrame:
    """One row per status a flight went through, with the columns that order and describe it."""
    left = status(
        stage=0,
        name=F.when(F.col("flown"), DEPARTED).otherwise(CANCELLED),
        at=F.col("departure"),
        delay=F.when(F.col("flown"), F.col("dep_delay")),
    )
    landed = status(stage=1, name=F.lit(ARRIVED), at=F.col("arrival"), delay=F.col("arr_delay"))
    stages = F.array_compact(F.array(left, F.when(F.col("arr_time").isNotNull(), landed)))
    return flights.select(
        F.col("tailnum").alias("session"),
        "date",
        "departure",
        "scheduled",
        F.concat("carrier", F.col("flight").cast("string")).alias("flight"),
        "origin",
        F.col("dest").alias("destination"),
        F.inline(stages),
    )


def status(*, stage: int, name: Column, at: Column, delay: Column) -> Column:
    """One status of a flight."""
    return F.struct(
        F.lit(stage).alias("stage"),
        name.alias("status"),
        F.replace(at.cast("string"), F.lit(" "), F.lit("T")).alias("at"),
        delay.cast("int").alias("delay_minutes"),
    )


def body() -> Column:
    """What an event says, as canonical JSON: keys sorted, no spaces, null written out."""
    keys = ("at", "delay_minutes", "destination", "flight", "origin", "status")
    return F.to_json(F.struct(*keys), {"ignoreNullFields": "false"})
