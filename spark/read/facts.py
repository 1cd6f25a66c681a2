"""The rows of a table as facts, by a declared mapping. Pure DataFrame functions.

No row is dropped: each has a `reason`, which is null if the row becomes a fact.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark.read.mapping import SourceMapping
from spark.read.values import encode_order, read_column, write_in_body, write_in_full, write_time
from spark.schemas import BROKEN_LINE, FACTS, REJECTED_ROWS, REPLACEMENT

# Names for the mapping's own columns. They have a dot, which no column of a mapped table may have.
ROW, FACT, MARK = "lockstep.row", "lockstep.fact", "lockstep.watermark"
REPEATED_KEY = "repeated key"


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The facts read from a source. Every row is in `rows`, and states a fact or is rejected.

    `facts` are schemas.FACTS. `first_fact` is true for just one fact of each row, so that rows can
    be counted where a row states several. `rejects` have a column `reason` and whatever the
    rejected rows should be written as. `repeated` has the columns `session` and `row` of the
    rejected rows that repeat an earlier row. `watermark` is the highest of all facts.
    `meaning` is what numbers, keys and contents depend on beside the rows (mapping.describe), and
    None for a source without a mapping. `deletion` is what is sent of a row that is gone, a struct
    of type and body, by its `key`. If `is_snapshot`, nothing limits what is read, so that what is
    not among the facts is gone.
    """

    rows: DataFrame
    facts: DataFrame
    rejects: DataFrame
    repeated: DataFrame
    first_fact: Column
    cached: tuple[DataFrame, ...]
    watermark: str | None = None
    meaning: Mapping[str, str] | None = None
    deletion: Column | None = None
    is_snapshot: bool = False

    def release(self) -> None:
        for table in self.cached:
            table.unpersist(blocking=True)


def extract_facts(table: DataFrame, mapping: SourceMapping) -> SourceFacts:
    """The facts of a table (of sources.read_table), with the highest watermark among them."""
    rows = map_rows(table, mapping).persist()
    accepted, rejected = rows.where("reason is null"), rows.where("reason is not null")
    highest = None
    if mapping.watermark is not None:
        kind = mapping.columns[mapping.watermark]
        highest_value = F.max(F.col("watermark").cast(kind))
        found = accepted.agg(write_time(highest_value, kind)).first()
        highest = None if found is None else found[0]
    session = F.from_json("row", "map<string,string>")[mapping.session]
    repeated = rejected.where(F.col("reason") == REPEATED_KEY)
    return SourceFacts(
        # The mapped rows, and not the table itself, so that the source is read once.
        rows,
        accepted.select(*FACTS.names),
        rejected.select(*REJECTED_ROWS.names),
        repeated.select(session.alias("session"), "row"),
        F.expr("true"),
        (rows,),
        highest,
        mapping.describe(str(table.sparkSession.conf.get("spark.sql.session.timeZone"))),
        build_deletion(mapping),
        mapping.watermark is None,
    )


def map_rows(table: DataFrame, mapping: SourceMapping) -> DataFrame:
    """Rows as facts (schemas.FACTS) with `watermark`, and the `reason` of a rejection.

    A rejected row has its cells in `row`, as JSON. `table` has every column of the mapping as text
    or in its declared type, and `broken_line`.
    """
    parsed = table.select(
        F.struct(*mapping.columns, BROKEN_LINE).alias(ROW),
        *(read_column(table, name, mapping).alias(name) for name in mapping.columns),
    )
    mark = F.lit(None).cast("string")
    if mapping.watermark is not None:
        mark = write_time(F.col(mapping.watermark), mapping.columns[mapping.watermark])
    stated = parsed.select("*", build_fact(parsed, mapping).alias(FACT), mark.alias(MARK))
    reasons = (F.when(is_failed, reason) for reason, is_failed in list_row_checks(mapping))
    checked = stated.select(
        F.col(f"`{ROW}`"),
        *(get_fact_field(name).alias(name) for name in FACTS.names),
        F.col(f"`{MARK}`").alias("watermark"),
        F.coalesce(*reasons).alias("reason"),
    ).repartition("session")
    # Of the rows with one key the newest that passes all other checks is the fact, so a rejected
    # row does not take the place of a good one.
    same_key = Window.partitionBy("session", "key")
    first_good = same_key.orderBy(F.isnotnull("reason"), *order_newest_first())
    is_repeated = F.row_number().over(first_good) > 1
    reason = F.coalesce("reason", F.when(is_repeated, REPEATED_KEY))
    text = F.when(F.col("reason").isNotNull(), F.to_json(F.col(f"`{ROW}`")))
    judged = checked.withColumn("reason", reason).withColumn("row", text)
    return judged.select("row", *FACTS.names, "watermark", "reason")


def build_fact(table: DataFrame, mapping: SourceMapping) -> Column:
    columns, nothing = mapping.columns, F.lit(None).cast("string")
    kind = F.lit(mapping.type) if mapping.type_column is None else F.col(mapping.type_column)
    newer = mapping.version or mapping.watermark
    types = {each.name: each.dataType for each in table.schema}
    body = (write_in_body(F.col(name), types[name]).alias(name) for name in sorted(mapping.body))
    time = nothing
    if mapping.time is not None:
        text = write_time(F.col(mapping.time), columns[mapping.time])
        time = F.when(F.trim(text) != "", F.replace(text, F.lit(" "), F.lit("T")))
    return F.struct(
        write_in_full(F.col(mapping.session), columns[mapping.session]).alias("session"),
        F.to_json(F.array(*(write_in_full(F.col(n), columns[n]) for n in mapping.key))).alias(
            "key"
        ),
        F.array(*(encode_order(F.col(n), columns[n]) for n in mapping.order)).alias("place"),
        kind.cast("string").alias("type"),
        F.to_json(F.struct(*body), {"ignoreNullFields": "false"}).alias("body"),
        time.alias("time"),
        (nothing if newer is None else encode_order(F.col(newer), columns[newer])).alias("version"),
    )


def order_newest_first() -> tuple[Column, ...]:
    """The order of facts with one key: the first one counts, in a batch as in a stream.

    Place and body decide between facts that are equally new, so that the choice is the same in
    every run.
    """
    return (F.col("version").desc_nulls_last(), F.col("place").asc(), F.col("body").asc())


def build_deletion(mapping: SourceMapping) -> Column | None:
    """Type and body of the message for a row that is gone, by its `key`: the columns of the key."""
    if mapping.deleted_type is None:
        return None
    texts, columns = F.from_json("key", "array<string>"), mapping.columns
    values = {name: read_again(texts[at], columns[name]) for at, name in enumerate(mapping.key)}
    body = F.to_json(F.struct(*(values[name].alias(name) for name in sorted(values))))
    return F.struct(F.lit(mapping.deleted_type).alias("type"), body.alias("body"))


def read_again(text: Column, kind: str) -> Column:
    """A value of a key, by its text there (`write_in_full`), as a body has it."""
    value = (F.concat(text, F.lit("Z")) if kind == "timestamp" else text).cast(kind)
    return write_time(value, kind) if kind.startswith("timestamp") else value


def list_row_checks(mapping: SourceMapping) -> list[tuple[str, Column]]:
    """Each reason to reject a row, with its condition. The first that applies is reported.

    What a row must have to be numbered and compared is checked here. Whether a message may be made
    of it is judged by who sends it (feeding/gate.py).
    """
    texts = [name for name, kind in mapping.columns.items() if kind == "string"]
    nested = [name for name, kind in mapping.columns.items() if kind.endswith(">")]
    return [
        ("broken line", get_source_cell(BROKEN_LINE).isNotNull()),
        *((f"missing {name}", get_source_cell(name).isNull()) for name in mapping.required_columns),
        # Only a body may hold blank text.
        *(
            (f"missing {name}", F.trim(get_source_cell(name)) == "")
            for name in mapping.required_columns
            if name in texts
        ),
        # What could not be cast to the declared type is null beside a cell that is not.
        *(
            (f"malformed {name}", get_source_cell(name).isNotNull() & F.col(name).isNull())
            for name in mapping.columns
        ),
        *((f"undecodable {name}", is_undecodable(F.col(name))) for name in texts),
        *((f"undecodable {name}", is_undecodable(F.to_json(name))) for name in nested),
    ]


def get_source_cell(name: str) -> Column:
    return F.col(f"`{ROW}`.`{name}`")


def get_fact_field(name: str) -> Column:
    return F.col(f"`{FACT}`.{name}")


def is_undecodable(column: Column) -> Column:
    """Return whether the bytes of a text are not UTF-8, or were not when they were read."""
    return ~F.is_valid_utf8(column) | column.contains(REPLACEMENT)
