"""The tables of the feed: facts are read from a source, events are sent, rejects stay behind."""

from collections.abc import Sequence

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

# The column that holds a whole line of a file when it could not be split into the columns.
BROKEN_LINE = "broken_line"

# What Spark's CSV reader puts where bytes are not UTF-8.
REPLACEMENT = "\ufffd"


def build_text_schema(names: Sequence[str]) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


# A fact is what a row states about a session, before it has a number. `key` distinguishes the facts
# of a session, whatever they state. `place` is the fact's position in its session: facts are sorted
# by its texts, the first one first.
FACTS = StructType(
    [
        *build_text_schema(("session", "key")).fields,
        StructField("place", ArrayType(StringType())),
        *build_text_schema(("type", "body", "time")).fields,
    ]
)

# A row that cannot become an event: the row as the source has it, and the reason.
REJECTED_ROWS = build_text_schema(("row", "reason"))

# `sequence` counts per session and group from 0, without gaps. `time` is ISO 8601, or null.
EVENTS = StructType(
    [
        *build_text_schema(("session", "group")).fields,
        StructField("sequence", LongType()),
        *build_text_schema(("type", "body", "id", "time")).fields,
    ]
)

# What a run of a feed sends: each event with its fact's key and place, and its content's digest.
PLAN = StructType(
    [
        *EVENTS.fields,
        StructField("key", StringType()),
        StructField("place", ArrayType(StringType())),
        StructField("digest", StringType()),
    ]
)

# A difference between source and journal: its kind, the event it concerns, and details for people.
FINDINGS = StructType(
    [
        *build_text_schema(("finding", "session")).fields,
        StructField("sequence", LongType()),
        *build_text_schema(("id", "detail")).fields,
    ]
)
