"""Rows of any table as facts, by a declared mapping. Pure DataFrame functions.

No row is dropped: `reason` is null for a row that becomes a fact.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.domain.message import BODY_BYTES_MAX, ID_CHARACTERS_MAX
from spark.mapping import WHOLE, Mapping
from spark.schemas import BROKEN_LINE, FACTS

# Added to a whole number of 64 bits, this makes it a number without a sign.
OFFSET = 2**63
DIGITS = 20


def mapped(table: DataFrame, mapping: Mapping) -> DataFrame:
    """Rows as facts (schemas.FACTS) with `row`, `watermark` and the `reason` they are no facts.

    `table` has every column of the mapping as text or in its declared type, and `broken_line`.
    """
    read = table.select(
        F.struct(*mapping.columns, BROKEN_LINE).alias("row"),
        *(F.col(name).try_cast(kind).alias(name) for name, kind in mapping.columns.items()),
    )
    facts = read.select("*", *fact(mapping))
    whys = (F.when(wrong, why) for why, wrong in objections(mapping))
    return facts.select(
        F.to_json("row").alias("row"),
        *(f"fact.{name}" for name in FACTS.names),
        "watermark",
        F.coalesce(*whys).alias("reason"),
    )


def fact(mapping: Mapping) -> list[Column]:
    """The fact a row states, as one struct, and its watermark beside it."""
    columns = mapping.columns
    kind = F.lit(mapping.type) if mapping.type_column is None else F.col(mapping.type_column)
    mark = F.lit(None) if mapping.watermark is None else F.col(mapping.watermark)
    stated = F.struct(
        F.col(mapping.session).cast("string").alias("session"),
        F.to_json(F.array(*(F.col(name).cast("string") for name in mapping.key))).alias("key"),
        F.array(*(ordered(name, columns[name]) for name in mapping.order)).alias("place"),
        kind.cast("string").alias("type"),
        F.to_json(F.struct(*sorted(mapping.body)), {"ignoreNullFields": "false"}).alias("body"),
        time(mapping).alias("time"),
    )
    return [stated.alias("fact"), mark.cast("string").alias("watermark")]


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
    """What can be wrong with a row, in the order in which it is said; only the first counts."""
    return [
        ("broken line", F.col(f"row.{BROKEN_LINE}").isNotNull()),
        *((f"missing {name}", F.col(f"row.{name}").isNull()) for name in mapping.needed),
        *((f"malformed {name}", unreadable(name)) for name in mapping.columns),
        (f"empty {mapping.session}", F.col("fact.session") == ""),
        (f"overlong {mapping.session}", F.length("fact.session") > ID_CHARACTERS_MAX),
        ("no type", F.col("fact.type") == ""),
        ("body too large", F.octet_length("fact.body") > BODY_BYTES_MAX),
    ]


def unreadable(name: str) -> Column:
    """Something is written there, and it is not of the declared type."""
    return F.col(f"row.{name}").isNotNull() & F.col(name).isNull()
