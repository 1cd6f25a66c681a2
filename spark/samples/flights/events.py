"""The way from flights to facts and events. Pure DataFrame functions.

A session is an aircraft. Its facts are ordered by the scheduled day, then by the time of departure
(the scheduled one for a cancelled flight), then by flight and origin, with a departure before its
arrival. The scheduled day comes first so that feeding more days only appends: a flight of the first
day that left a day late keeps its place before the flights of the second day. Facts that have the
same place are ordered by their body (numbering.number_facts).
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding.numbering import number_facts
from spark.read.facts import SourceFacts
from spark.samples.flights import validation
from spark.samples.flights.source import read_flights
from spark.schemas import EVENTS

EVENT_TYPE = "flight.status"
DEPARTED, ARRIVED, CANCELLED = "departed", "arrived", "cancelled"
FIRST_STAGE, SECOND_STAGE = 0, 1
ORDER = ("date", "departure", "flight", "origin", "stage")


def extract_flight_facts(spark: SparkSession, path: str, days: int) -> SourceFacts:
    flights = validation.select_first_days(read_flights(spark, path), days)
    validated = validation.validate_flights(flights)
    # Only of a rejected flight its text is needed, and what is cached takes memory.
    text = F.when(F.col("reason").isNotNull(), F.col("row"))
    validated = validated.withColumn("row", text).persist()
    facts = build_flight_facts(validated)
    rejected = validation.select_rejected_flights(validated)
    row = F.to_json(F.struct(*(name for name in rejected.columns if name != "reason")))
    repeated = rejected.where(F.col("reason") == validation.DUPLICATE)
    return SourceFacts(
        validated,
        facts,
        rejected,
        repeated.select(F.col("tailnum").alias("session"), row.alias("row")),
        # A flight that arrives states two facts; the other one is its departure.
        F.col("place")[ORDER.index("stage")] == str(FIRST_STAGE),
        (validated,),
    )


def build_flight_events(validated: DataFrame, group: str) -> DataFrame:
    """The events (schemas.EVENTS) of accepted flights, numbered for a producer group."""
    return number_facts(build_flight_facts(validated), group).select(*EVENTS.names)


def build_flight_facts(validated: DataFrame) -> DataFrame:
    """Return what the accepted flights state about their aircraft (schemas.FACTS)."""
    statuses = list_statuses(add_times(validated.where(F.col("reason").isNull())))
    body = ("at", "delay_minutes", "destination", "flight", "origin", "status")
    stage = F.col("stage").cast("string")
    return statuses.select(
        "session",
        F.to_json(F.array("date", "scheduled", "flight", "origin", stage)).alias("key"),
        F.array(*ORDER[:-1], stage).alias("place"),
        F.lit(EVENT_TYPE).alias("type"),
        # Canonical JSON: keys sorted, no spaces, null written out.
        F.to_json(F.struct(*body), {"ignoreNullFields": "false"}).alias("body"),
        F.col("at").alias("time"),
        # Flights have nothing that tells the age of a row.
        F.lit(None).cast("string").alias("version"),
    )


def cast_to_text(*names: str) -> list[Column]:
    """Columns as text. Texts of dates and times sort as these do, as years have four digits."""
    return [F.col(name).cast("string").alias(name) for name in names]


def add_times(flights: DataFrame) -> DataFrame:
    flown = F.col("dep_time").isNotNull()
    scheduled = add_minutes(F.col("date"), validation.convert_to_minutes(F.col("sched_dep_time")))
    departed = add_minutes(scheduled, F.col("dep_delay"))
    return (
        flights.withColumn("flown", flown)
        .withColumn("departure", F.when(flown, departed).otherwise(scheduled))
        .withColumn("scheduled", scheduled)
        .withColumn("arrival", find_arrival())
    )


def add_minutes(time: Column, minutes: Column) -> Column:
    """A time some minutes later (or earlier), independent of any time zone."""
    return F.timestamp_add("MINUTE", minutes, time)


def find_arrival() -> Column:
    """The arrival's clock time on the day of departure, or on the next day if that is earlier."""
    landed = validation.convert_to_minutes(F.col("arr_time")) % validation.DAY_MINUTES
    overnight = landed < validation.convert_to_minutes(F.col("dep_time")) % validation.DAY_MINUTES
    midnight = F.col("departure").cast("date").cast("timestamp_ntz")
    return add_minutes(midnight, landed + F.when(overnight, validation.DAY_MINUTES).otherwise(0))


def list_statuses(flights: DataFrame) -> DataFrame:
    left = build_status(
        stage=FIRST_STAGE,
        name=F.when(F.col("flown"), DEPARTED).otherwise(CANCELLED),
        at=F.col("departure"),
        delay=F.when(F.col("flown"), F.col("dep_delay")),
    )
    landed = build_status(
        stage=SECOND_STAGE, name=F.lit(ARRIVED), at=F.col("arrival"), delay=F.col("arr_delay")
    )
    statuses = F.array_compact(F.array(left, F.when(F.col("arr_time").isNotNull(), landed)))
    return flights.select(
        F.col("tailnum").alias("session"),
        *cast_to_text("date", "departure", "scheduled"),
        F.concat("carrier", F.col("flight").cast("string")).alias("flight"),
        "origin",
        F.col("dest").alias("destination"),
        F.inline(statuses),
    )


def build_status(*, stage: int, name: Column, at: Column, delay: Column) -> Column:
    return F.struct(
        F.lit(stage).alias("stage"),
        name.alias("status"),
        F.replace(at.cast("string"), F.lit(" "), F.lit("T")).alias("at"),
        delay.cast("int").alias("delay_minutes"),
    )
