"""The three tables of the feed: flights in, events out, rejects beside them."""

from collections.abc import Sequence

from pyspark.sql.types import LongType, StringType, StructField, StructType

# What the source must have; other columns of it are ignored.
FLIGHT_COLUMNS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
)

# A line of a CSV file that does not have the header's number of cells, word for word.
BROKEN_LINE = "broken_line"


def texts(names: Sequence[str]) -> StructType:
    """A schema of text columns."""
    return StructType([StructField(name, StringType()) for name in names])


# Flights stay text until they are judged, so that a reject shows what the source really said.
FLIGHTS = texts((*FLIGHT_COLUMNS, BROKEN_LINE))

REJECTS = texts((*FLIGHTS.names, "reason"))

# `sequence` is dense per session and group and starts at 0; `time` is ISO 8601, local and naive.
EVENTS = StructType(
    [
        StructField("session", StringType()),
        StructField("group", StringType()),
        StructField("sequence", LongType()),
        StructField("type", StringType()),
        StructField("body", StringType()),
        StructField("id", StringType()),
        StructField("time", StringType()),
    ]
)
