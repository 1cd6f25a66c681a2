"""The flights that can become events, and why the others cannot.

No flight is dropped: each has a `reason`, which is null if the flight is accepted.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark.samples.flights.source import FLIGHT_COLUMNS, FLIGHTS
from spark.schemas import BROKEN_LINE, REPLACEMENT

TEXTS = ("carrier", "tailnum", "origin", "dest")
NUMBERS = tuple(name for name in FLIGHT_COLUMNS if name not in TEXTS)
CLOCKS = ("dep_time", "sched_dep_time", "arr_time")
# A cancelled flight has no times of its own, and a diverted one no arrival.
OPTIONAL = ("dep_time", "dep_delay", "arr_time", "arr_delay")
REQUIRED = tuple(name for name in FLIGHT_COLUMNS if name not in OPTIONAL)
DUPLICATE = "duplicate"
DAY_MINUTES = 24 * 60
# Service Bus takes no longer session ids.
SESSION_CHARACTERS_MAX = 128


def validate_flights(flights: DataFrame) -> DataFrame:
    """Flights (source.FLIGHTS) as `row`, their values and a `date`, each with a `reason`."""
    reasons = (F.when(is_failed, reason) for reason, is_failed in list_flight_checks())
    # Flights are shuffled once: by the aircraft, which is also what their facts are numbered by.
    same_flight = Window.partitionBy("tailnum", "row").orderBy("row")
    return (
        parse_flights(flights)
        .repartition("tailnum")
        .withColumn("copy", F.row_number().over(same_flight))
        .withColumn("reason", F.coalesce(*reasons))
        .drop("copy")
    )


def select_rejected_flights(validated: DataFrame) -> DataFrame:
    """The flights that were rejected (source.REJECTED_FLIGHTS), as the source has them."""
    return validated.where(F.col("reason").isNotNull()).select("row.*", "reason")


def select_first_days(flights: DataFrame, days: int) -> DataFrame:
    """Flights of the first calendar days, and those without a day, to be reported too."""
    year, month, day = (parse_number_cell(name) for name in ("year", "month", "day"))
    dated = flights.withColumn("date", parse_day(year, month, day))
    last = (
        dated.where(F.col("date").isNotNull())
        .groupBy("date")
        .count()
        .orderBy("date")
        .limit(days)
        .select(F.max("date").alias("last"))
    )
    return (
        dated.join(F.broadcast(last), how="left", on=F.col("date") > F.col("last"))
        .where(F.col("last").isNull())
        .select(*FLIGHTS.names)
    )


def parse_flights(flights: DataFrame) -> DataFrame:
    """Flights with their text kept in `row`, and beside it the values that could be read."""
    return flights.select(
        F.struct(*FLIGHTS.names).alias("row"),
        *(parse_number_cell(name).alias(name) for name in NUMBERS),
        *(name for name in FLIGHT_COLUMNS if name not in NUMBERS),
    ).withColumn("date", parse_day(F.col("year"), F.col("month"), F.col("day")))


def parse_number_cell(name: str) -> Column:
    """A whole number, or null. 517.0 is one, because tables with empty cells often write it so.

    No clock time, delay or date needs more than 16 bits, so calculations with them cannot overflow.
    """
    cell = F.col(name)
    whole = F.when(cell.contains("."), F.regexp_replace(cell, r"\.0+$", "")).otherwise(cell)
    return whole.try_cast("int" if name == "flight" else "smallint")


def parse_day(year: Column, month: Column, day: Column) -> Column:
    """Midnight at the start of a day, or null if the calendar has no such day."""
    zero = F.lit(0)
    four_digits = F.when(year.between(1000, 9999), year)
    return F.try_make_timestamp_ntz(four_digits, month, day, zero, zero, zero.cast("decimal"))


def list_flight_checks() -> list[tuple[str, Column]]:
    """Each reason to reject a flight, with its condition. The first that applies is reported."""
    return [
        ("broken line", F.col(f"row.{BROKEN_LINE}").isNotNull()),
        *((f"missing {name}", F.col(f"row.{name}").isNull()) for name in REQUIRED),
        *(
            (f"malformed {name}", F.col(f"row.{name}").isNotNull() & F.col(name).isNull())
            for name in NUMBERS
        ),
        *((f"malformed {name}", ~is_clock_time(F.col(name))) for name in CLOCKS),
        *((f"malformed {name}", F.col(name).contains(REPLACEMENT)) for name in TEXTS),
        ("malformed tailnum", F.length("tailnum") > SESSION_CHARACTERS_MAX),
        ("no such day", F.col("date").isNull()),
        ("missing dep_delay", F.col("dep_time").isNotNull() & F.col("dep_delay").isNull()),
        ("arrival without departure", F.col("arr_time").isNotNull() & F.col("dep_time").isNull()),
        ("dep_time contradicts schedule and delay", contradicts_schedule()),
        (DUPLICATE, F.col("copy") > 1),
    ]


def is_clock_time(clock: Column) -> Column:
    """Return whether a number like 517 or 2400 is a time of day, in hours and minutes."""
    return clock.between(0, 2400) & (clock % 100 < 60)


def convert_to_minutes(clock: Column) -> Column:
    """The minutes from midnight to a clock time; 2400 is the midnight at the end of the day."""
    return (F.floor(clock / 100) * 60 + clock % 100).cast("int")


def contradicts_schedule() -> Column:
    """Return whether the departure is not at the scheduled time plus the delay, on whatever day."""
    actual = convert_to_minutes(F.col("sched_dep_time")) + F.col("dep_delay")
    shown = convert_to_minutes(F.col("dep_time")) % DAY_MINUTES
    return F.pmod(actual, F.lit(DAY_MINUTES)) != shown
