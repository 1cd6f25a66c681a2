"""Rows of any table as facts, by a declared mapping. Pure DataFrame functions.

No row is dropped: `reason` is null for a row that becomes a fact.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from shared.domain.message import (
    BODY_BYTES_MAX,
    ESCAPE_FACTOR_MAX,
    ID_CHARACTERS_MAX,
    STORED_BYTES_MAX,
)
from spark.mapping import WHOLE, Mapping
from spark.schemas import BROKEN_LINE, FACTS, REPLACEMENT

# Added to a whole number of 64 bits, this makes it a number without a sign.
OFFSET = 2**63
DIGITS = 20
# Names beside those of a table's own columns, none of which has a dot in it.
ROW, FACT, MARK = "lockstep.row", "lockstep.fact", "lockstep.watermark"
REPEATED_KEY = "repeated key"
# No character takes more bytes when it is written as its number, and surrogates are two.
ESCAPED_BYTES = 6


def mapped(table: DataFrame, mapping: Mapping) -> DataFrame:
    """Rows as facts (schemas.FACTS) with `row`, `watermark` and the `reason` they are no facts.

    `table` has every column of the mapping as text or in its declared type, and `broken_line`.
    """
    read = table.select(
        F.struct(*mapping.columns, BROKEN_LINE).alias(ROW),
        *(F.col(name).try_cast(kind).alias(name) for name, kind in mapping.columns.items()),
    )
    facts = read.select("*", *fact(mapping))
    whys = (F.when(wrong, why) for why, wrong in objections(mapping))
    judged = facts.select(
        F.to_json(F.col(f"`{ROW}`")).alias("row"),
        *(stated(name).alias(name) for name in FACTS.names),
        F.col(f"`{MARK}`").alias("watermark"),
        F.coalesce(*whys).alias("reason"),
    )
    return judged.withColumn("reason", F.coalesce("reason", F.when(is_repeated(), REPEATED_KEY)))


def is_repeated() -> Column:
    """Whether a row has the key of an earlier one of its session that can become a fact."""
    same_key = Window.partitionBy("session", "key")
    return F.row_number().over(same_key.orderBy(F.isnotnull("reason"), "place", "body")) > 1


def fact(mapping: Mapping) -> list[Column]:
    """The fact a row states, as one struct, and its watermark beside it."""
    columns = mapping.columns
    kind = F.lit(mapping.type) if mapping.type_column is None else F.col(mapping.type_column)
    mark = F.lit(None) if mapping.watermark is None else F.col(mapping.watermark)
    whole = F.struct(
        F.col(mapping.session).cast("string").alias("session"),
        F.to_json(F.array(*(F.col(name).cast("string") for name in mapping.key))).alias("key"),
        F.array(*(ordered(name, columns[name]) for name in mapping.order)).alias("place"),
        kind.cast("string").alias("type"),
        F.to_json(F.struct(*sorted(mapping.body)), {"ignoreNullFields": "false"}).alias("body"),
        time(mapping).alias("time"),
    )
    return [whole.alias(FACT), mark.cast("string").alias(MARK)]


def written(name: str) -> Column:
    """A cell as the source wrote it."""
    return F.col(f"`{ROW}`.`{name}`")


def stated(name: str) -> Column:
    """A part of the fact that a row states."""
    return F.col(f"`{FACT}`.{name}")


def time(mapping: Mapping) -> Column:
    """When a row says it was, ISO 8601; null where the mapping names no such column."""
    if mapping.time is None:
        return F.lit(None).cast("string")
    return F.replace(F.col(mapping.time).cast("string"), F.lit(" "), F.lit("T"))


def ordered(name: str, kind: str) -> Column:
    """A column as a text whose order is the column's own."""
    column = F.col(name)
    match kind:
        case "date":
            return unsigned(F.unix_date(column))
        case "timestamp":
            return unsigned(F.unix_micros(column))
        case "timestamp_ntz":
            return unsigned(F.unix_micros(column.cast("timestamp")))
        case _ if kind in WHOLE:
            return unsigned(column)
        case _:
            return column


def unsigned(number: Column) -> Column:
    """A whole number of 64 bits as digits that are ordered as it is."""
    shifted = number.cast("decimal(20,0)") + F.lit(str(OFFSET)).cast("decimal(20,0)")
    return F.lpad(shifted.cast("decimal(20,0)").cast("string"), DIGITS, "0")


def objections(mapping: Mapping) -> list[tuple[str, Column]]:
    """What can be wrong with a row, in the order in which it is said; only the first counts.

    All that the message would be refused for is among them: one such row would fail its whole task.
    """
    texts = [name for name, kind in mapping.columns.items() if kind == "string"]
    return [
        ("broken line", written(BROKEN_LINE).isNotNull()),
        *((f"missing {name}", written(name).isNull()) for name in mapping.needed),
        *((f"malformed {name}", unreadable(name)) for name in mapping.columns),
        *((f"undecodable {name}", is_no_text(name)) for name in texts),
        (f"empty {mapping.session}", stated("session") == ""),
        (f"overlong {mapping.session}", F.length(stated("session")) > ID_CHARACTERS_MAX),
        ("no type", stated("type") == ""),
        ("body too large", F.octet_length(stated("body")) > BODY_BYTES_MAX),
        ("body too large", is_too_large_escaped(stated("body"))),
    ]


def unreadable(name: str) -> Column:
    """Something is written there, and it is not of the declared type."""
    return written(name).isNotNull() & F.col(name).isNull()


def is_no_text(name: str) -> Column:
    """Whether the bytes of a text are not UTF-8, or were not when they were read."""
    column = F.col(name)
    return ~F.is_valid_utf8(column) | column.contains(REPLACEMENT)


def is_too_large_escaped(body: Column) -> Column:
    """Whether a body, escaped as the journal keeps it, is over what a document takes.

    A body is JSON, so what is below a space is written with backslashes in it already.
    """
    ascii_only = F.regexp_replace(body, r"[^\x00-\x7F]", "")
    escapes = F.length(ascii_only) - F.length(F.translate(ascii_only, '"\\', ""))
    others = F.octet_length(F.encode(body, "UTF-16BE")) / 2 - F.length(ascii_only)
    stored = F.length(ascii_only) + escapes + others * ESCAPED_BYTES + len('""')
    is_large = F.octet_length(body) * ESCAPE_FACTOR_MAX > STORED_BYTES_MAX
    return F.when(is_large, stored > STORED_BYTES_MAX).otherwise(F.lit(col=False))
