"""The tables of the feed: facts are read from a source, events are sent, rejects stay behind."""

from collections.abc import Sequence

from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

# The column that holds a whole line of a file when it could not be split into the columns.
BROKEN_LINE = "broken_line"

# What Spark's CSV reader puts where bytes are not UTF-8.
REPLACEMENT = "\ufffd"


TEXT, LONG, TEXTS = StringType(), LongType(), ArrayType(StringType())


def build_schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def build_text_schema(names: Sequence[str]) -> StructType:
    return build_schema(**dict.fromkeys(names, TEXT))


# A fact is what a row states about a session, before it has a number. `key` distinguishes the facts
# of a session, whatever they state. `place` is the fact's position in its session: facts are sorted
# by its texts, the first one first. Of the facts with one key the one with the highest `version`
# counts, which is text that sorts as the source's own values do, or null if the source has none.
FACTS = build_schema(
    session=TEXT, key=TEXT, place=TEXTS, type=TEXT, body=TEXT, time=TEXT, version=TEXT
)

# A row that cannot become an event: the row as the source has it, and the reason.
REJECTED_ROWS = build_schema(row=TEXT, reason=TEXT)

# `sequence` counts per session and group from 0, without gaps. `time` is ISO 8601, or null.
EVENTS = build_schema(
    session=TEXT, group=TEXT, sequence=LONG, type=TEXT, body=TEXT, id=TEXT, time=TEXT
)

# What a run of a feed sends: each event with its fact's key, place and version, and its content's
# digest. A plan of an older release has no versions.
PLAN = StructType(
    [*EVENTS.fields, *build_schema(key=TEXT, place=TEXTS, digest=TEXT, version=TEXT).fields]
)

# What a plan must be compared with: of each key the newest event, with the highest place and number
# that the key ever had.
NEWEST = build_schema(
    session=TEXT, group=TEXT, key=TEXT, place=TEXTS, digest=TEXT, version=TEXT, sequence=LONG
)
