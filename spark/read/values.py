"""The values of columns: read from cells, and written as text that holds all of them.

A value has one text whatever the session's time zone is and whatever the hour: an instant is
written in UTC, with all of its digits. A cell that says more than its declared type can hold is
not read, so that nothing of it is cut in silence.
"""

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark.read.mapping import (
    DECIMAL,
    DECIMAL_COMMA,
    WHOLE_NUMBERS,
    ZONE_LETTERS,
    SourceMapping,
)

EPOCH = "timestamp_ntz'1970-01-01'"
# Added to a whole number of 64 bits, this makes it a number without a sign.
OFFSET = 2**63
DIGITS = 20
# Less than a day, so that Spark adds it to an instant without a calendar.
FAR = "interval 23 hours"

# What is read as a time: Spark's own cast would take "12:30" for today, cut what is below a
# microsecond, and leave out the time of a date and the zone of a time without one.
DAY = r"\s*\d{4}(-\d{1,2}){0,2}"
CLOCK = r"\d{1,2}:\d{1,2}(:\d{1,2}([.]\d{0,6}0*)?)?"
ZONE = r"\s*([A-Za-z]|[+-]\d).*"
WHOLE_CELLS = {
    "date": rf"^{DAY}([T ]0?0:0?0(:0?0([.]0*)?)?Z?)?\s*$",
    "timestamp_ntz": rf"^{DAY}([T ]{CLOCK})?\s*$",
    "timestamp": rf"^{DAY}([T ]{CLOCK}({ZONE})?)?\s*$",
}
ZONED = rf"^{DAY}[T ]{CLOCK}{ZONE}$"


def read_column(table: DataFrame, name: str, mapping: SourceMapping) -> Column:
    """A column of a table in its declared type; null where a text is no value of it."""
    column, kind, form = F.col(name), mapping.columns[name], mapping.formats.get(name)
    if dict(table.dtypes)[name] != "string":
        return column
    if form == DECIMAL_COMMA:
        column = F.when(~column.contains("."), F.replace(column, F.lit(","), F.lit(".")))
    elif form is not None:
        return read_pattern(column, kind, form)
    return read_whole_cell(column, kind)


def is_cut_by_readers(kind: str) -> bool:
    """Return whether Spark's readers of text would cut or round a value of this type."""
    return kind in WHOLE_CELLS or kind.startswith("decimal")


def read_whole_cell(text: Column, kind: str) -> Column:
    """A text as a value of a column's declared type; null if it is none, or not all of it is."""
    value = text.try_cast(kind)
    if kind == "timestamp":
        local = find_instant(text.try_cast("timestamp_ntz"))
        value = F.when(text.rlike(ZONED), value).otherwise(local)
    if kind in WHOLE_CELLS:
        return F.when(text.rlike(WHOLE_CELLS[kind]), value)
    if kind.startswith("decimal"):
        scale = int(kind.removesuffix(")").split(",")[1])
        # Without an exponent, digits after the last one that is kept say it. With one, the nearest
        # double does, as long as there are no more digits than a double tells apart.
        is_cut = text.rlike(rf"[.]\d{{{scale}}}\d*[1-9]")
        is_near = text.rlike("^.{1,15}[eE]") & (value.cast("double") == text.try_cast("double"))
        return F.when(F.when(text.rlike("[eE]"), is_near).otherwise(~is_cut), value)
    return value


def read_pattern(text: Column, kind: str, pattern: str) -> Column:
    """A text as the date or time that a pattern of Spark's finds in it; null if it finds none."""
    if ZONE_LETTERS & set(re.sub("'[^']*'", "", pattern)):
        return F.try_to_timestamp(text, F.lit(pattern))
    # Read as a time of UTC, which leaves no hour out.
    instant = F.try_to_timestamp(F.concat(text, F.lit(" Z")), F.lit(f"{pattern} X"))
    wall = tell_in_utc(instant)
    if kind == "timestamp":
        return find_instant(wall)
    return wall if kind == "timestamp_ntz" else F.when(wall.cast("date") == wall, wall.cast("date"))


def find_instant(wall: Column) -> Column:
    """The instant at which the clocks of the session's time zone show a time.

    It is null for an hour that the zone leaves out when clocks go forward, and for one that it has
    twice when they go back: there the time does not say which instant is meant.
    """
    # By the offset of the day before and by that of the day after.
    far = F.expr(FAR)
    before = (wall - far).cast("timestamp") + far
    after = (wall + far).cast("timestamp") - far
    is_before = before.cast("timestamp_ntz") == wall
    is_after = after.cast("timestamp_ntz") == wall
    is_one = F.when(is_before & (~is_after | (before == after)), before)
    return is_one.when(is_after & ~is_before, after)


def tell_in_utc(instant: Column) -> Column:
    """The date and time of an instant in UTC, whatever the session's time zone is."""
    return F.timestamp_add("MICROSECOND", F.unix_micros(instant), F.expr(EPOCH))


def write_in_full(column: Column, kind: str) -> Column:
    """A value as text: the only one that a key, an order, a body or a time is made of."""
    return (tell_in_utc(column) if kind == "timestamp" else column).cast("string")


def write_time(column: Column, kind: str) -> Column:
    """A value as text; a time by ISO 8601, with milliseconds, or microseconds if it has any."""
    text = write_in_full(column, kind)
    if not kind.startswith("timestamp"):
        return text
    whole = F.substring_index(text, ".", 1)
    fraction = F.substring(text, F.length(whole) + 2, F.lit(6))
    digits = F.rpad(fraction, F.when(F.length(fraction) > 3, 6).otherwise(3), "0")
    zone = "Z" if kind == "timestamp" else ""
    return F.concat(F.replace(whole, F.lit(" "), F.lit("T")), F.lit("."), digits, F.lit(zone))


def write_in_body(column: Column, kind: DataType) -> Column:
    """A value as `to_json` is to have it: times as text, and what is within it in order of name."""
    match kind:
        case StructType():
            fields = sorted(kind.fields, key=lambda each: each.name)
            within = (write_in_body(column[f.name], f.dataType).alias(f.name) for f in fields)
            return F.when(column.isNotNull(), F.struct(*within))
        case ArrayType():
            return F.transform(column, lambda each: write_in_body(each, kind.elementType))
        case MapType():
            of_key = kind.keyType.simpleString()
            texts = F.transform_keys(column, lambda key, _: write_time(key, of_key))
            names = F.array_sort(F.map_keys(texts))
            values = F.transform(names, lambda name: write_in_body(texts[name], kind.valueType))
            return F.map_from_arrays(names, values)
        case TimestampType() | TimestampNTZType():
            return write_time(column, kind.simpleString())
        case _:
            return column


def encode_order(column: Column, kind: str) -> Column:
    """A value as text that sorts as the values of its type do."""
    match kind:
        case "date":
            number = F.unix_date(column)
        case "timestamp":
            number = F.unix_micros(column)
        case "timestamp_ntz":
            # As if it were one of UTC, because other zones leave hours out.
            instant = F.concat(write_in_full(column, kind), F.lit("Z")).cast("timestamp")
            number = F.unix_micros(instant)
        case _ if kind in WHOLE_NUMBERS:
            number = column
        case _ if DECIMAL.fullmatch(kind):
            # All digits, with the 0 before the point; of a negative number each as far from 9.
            places = int(kind.removeprefix("decimal(").split(",")[0]) + 1
            text = F.replace(write_in_full(F.abs(column), kind), F.lit("."))
            digits = F.lpad(text, places, "0")
            below = F.concat(F.lit("0"), F.translate(digits, "0123456789", "9876543210"))
            return F.when(column < 0, below).otherwise(F.concat(F.lit("1"), digits))
        case _:
            return write_in_full(column, kind)
    unsigned = number.cast("decimal(20,0)") + F.lit(str(OFFSET)).cast("decimal(20,0)")
    return F.lpad(unsigned.cast("decimal(20,0)").cast("string"), DIGITS, "0")
