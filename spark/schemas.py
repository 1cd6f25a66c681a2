"""The tables of the feed: flights in, facts between, events out, rejects beside them."""

from collections.abc import Sequence

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

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

# What Spark's reader of CSV leaves where bytes are not UTF-8.
REPLACEMENT = "\ufffd"


def texts(names: Sequence[str]) -> StructType:
    """A schema of text columns."""
    return StructType([StructField(name, StringType()) for name in names])


# Flights stay text until they are judged, so that a reject shows what the source really said.
FLIGHTS = texts((*FLIGHT_COLUMNS, BROKEN_LINE))

REJECTS = texts((*FLIGHTS.names, "reason"))

# What a row says about a session before it has a number. `key` tells facts of a session apart,
# whatever they say; `place` is where a fact belongs in its session, compared as texts in turn.
FACTS = StructType(
    [
        *texts(("session", "key")).fields,
        StructField("place", ArrayType(StringType())),
        *texts(("type", "body", "time")).fields,
    ]
)

# A row that cannot become a fact or may not become an event: as the source wrote it, and why.
REFUSED_ROWS = texts(("row", "reason"))

# `sequence` is dense per session and group and starts at 0; `time` is ISO 8601 or null.
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

# What a feed has bound: each event with the fact it stands for, and the digest of what it says.
PLAN = StructType(
    [
        *EVENTS.fields,
        StructField("key", StringType()),
        StructField("place", ArrayType(StringType())),
        StructField("digest", StringType()),
    ]
)

# A disagreement of source and journal: what, which event of which session, and more for people.
FINDINGS = StructType(
    [
        *texts(("finding", "session")).fields,
        StructField("sequence", LongType()),
        *texts(("id", "detail")).fields,
    ]
)
