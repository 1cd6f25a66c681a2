"""Which flights can become events, and why the others cannot.

Every flight gets a verdict and none is dropped: `reason` is null for a flight that is accepted.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark.schemas import BROKEN_LINE, FLIGHT_COLUMNS, FLIGHTS, REPLACEMENT

NUMBERS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "arr_delay",
    "flight",
)
TEXTS = ("carrier", "tailnum", "origin", "dest")
CLOCKS = ("dep_time", "sched_dep_time", "arr_time")
# A cancelled flight has no times of its own and a diverted one no arrival; the rest is needed.
NEEDED = (
    "year",
    "month",
    "day",
    "sched_dep_time",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
)
DUPLICATE = "duplicate"
DAY_MINUTES = 24 * 60
# Service Bus takes no longer session ids.
SESSION_CHARACTERS_MAX = 128


def judged(flights: DataFrame) -> DataFrame:
    """Flights (schemas.FLIGHTS) as `row`, read into numbers and a `date`, each with a `reason`."""
    return (
        read(flights)
        .withColumn("copy", F.row_number().over(Window.partitionBy("row").orderBy("row")))
        .withColumn("reason", F.coalesce(*(F.when(wrong, why) for why, wrong in objections())))
        .drop("copy")
    )


def rejects(verdicts: DataFrame) -> DataFrame:
    """The flights that were refused (schemas.REJECTS), as the source wrote them."""
    return verdicts.where(F.col("reason").isNotNull()).select("row.*", "reason")


def first_days(flights: DataFrame, days: int) -> DataFrame:
    """The flights scheduled on the first calendar days of the source.

    Flights whose day cannot be read are in every selection, so that they are always reported.
    """
    dated = flights.withColumn("date", day(*(number(name) for name in ("year", "month", "day"))))
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


def read(flights: DataFrame) -> DataFrame:
    """Flights with their text kept in `row`, and beside it the values that could be read."""
    return flights.select(
        F.struct(*FLIGHTS.names).alias("row"),
        *(number(name).alias(name) for name in NUMBERS),
        *(name for name in FLIGHT_COLUMNS if name not in NUMBERS),
    ).withColumn("date", day(F.col("year"), F.col("month"), F.col("day")))


def number(name: str) -> Column:
    """A whole number, or null; 517.0 is one, as tables with gaps often write it.

    No clock, delay or date needs more than 16 bits, so nothing reckoned with them can overflow.
    """
    whole = F.regexp_replace(F.col(name), r"\.0+$", "")
    return whole.try_cast("int" if name == "flight" else "smallint")


def day(year: Column, month: Column, of_month: Column) -> Column:
    """Midnight at the start of a day, or null when the calendar has no such day."""
    zero = F.lit(0)
    four_digits = F.when(year.between(1000, 9999), year)
    return F.try_make_timestamp_ntz(four_digits, month, of_month, zero, zero, zero.cast("decimal"))


def objections() -> list[tuple[str, Column]]:
    """What can be wrong with a flight, in the order in which it is said; only the first counts."""
    return [
        ("broken line", F.col(f"row.{BROKEN_LINE}").isNotNull()),
        *((f"missing {name}", F.col(f"row.{name}").isNull()) for name in NEEDED),
        *((f"malformed {name}", unreadable(name)) for name in NUMBERS),
        *((f"malformed {name}", ~is_clock(F.col(name))) for name in CLOCKS),
        *((f"malformed {name}", F.col(name).contains(REPLACEMENT)) for name in TEXTS),
        ("malformed tailnum", F.length("tailnum") > SESSION_CHARACTERS_MAX),
        ("no such day", F.col("date").isNull()),
        ("missing dep_delay", F.col("dep_time").isNotNull() & F.col("dep_delay").isNull()),
        ("arrival without departure", F.col("arr_time").isNotNull() & F.col("dep_time").isNull()),
        ("dep_time contradicts schedule and delay", contradicts()),
        (DUPLICATE, F.col("copy") > 1),
    ]


def unreadable(name: str) -> Column:
    """Something is written there, and it is not a whole number."""
    return F.col(f"row.{name}").isNotNull() & F.col(name).isNull()


def is_clock(clock: Column) -> Column:
    """Whether a number like 517 or 2400 is a clock time, hours and minutes."""
    return clock.between(0, 2400) & (clock % 100 < 60)


def minutes(clock: Column) -> Column:
    """The minutes since midnight a clock shows; 2400 is the midnight that ends the day."""
    return (F.floor(clock / 100) * 60 + clock % 100).cast("int")


def contradicts() -> Column:
    """The departure's clock is not the schedule's with the delay added, whatever the day."""
    actual = minutes(F.col("sched_dep_time")) + F.col("dep_delay")
    return F.pmod(actual, F.lit(DAY_MINUTES)) != minutes(F.col("dep_time")) % DAY_MINUTES
