"""Read tables from files: all of it, from a watermark on, or as a stream of files.

Every reader keeps a line that it cannot split into columns, whole, in the column `broken_line`, so
that no row disappears before it is counted.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark reader knows
from pyspark.sql.types import StructType

from spark.failures import JobRefused, SparkFailure, find_root_cause
from spark.mapping import WHOLE_NUMBERS, SourceFormat, SourceMapping
from spark.schemas import BROKEN_LINE, build_text_schema

# With column pruning Spark does not count the cells of a line, so a broken one would pass for a
# whole one. With an enforced schema it would read a file whose header has another order by
# position, with cells under the wrong names.
WHOLE_LINES = {"header": True, "columnPruning": False, "enforceSchema": False}
KEEP_BROKEN_LINES = {"columnNameOfCorruptRecord": BROKEN_LINE, "mode": "PERMISSIVE"}


class SourceRefused(JobRefused):
    """The source cannot be read as the table it should be."""


def read_table(spark: SparkSession, path: str, mapping: SourceMapping) -> DataFrame:
    """The columns of a mapping, and `broken_line`. Raises SourceRefused, naming what is missing."""
    columns, options = list(mapping.columns), mapping.options
    try:
        match mapping.format:
            case SourceFormat.CSV:
                table = read_csv(spark, path, columns, options)
            case SourceFormat.JSON:
                reader = spark.read.options(**KEEP_BROKEN_LINES).options(**options)
                table = reader.schema(declare_schema(mapping)).json(path)
            case SourceFormat.PARQUET:
                table = read_parquet(spark, path, columns, options)
                require_types(path, table, mapping)
    except SparkFailure as error:
        raise SourceRefused(f"cannot read {path}: {find_root_cause(error)}") from None
    return select_columns(table, mapping)


def read_csv(
    spark: SparkSession, path: str, required: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """CSV with a header, every column as text; a line with another number of cells is broken."""
    reader = spark.read.options(**WHOLE_LINES, **KEEP_BROKEN_LINES).options(**options)
    return reader.csv(path, schema=read_csv_header(spark, path, required, options))


def read_csv_header(
    spark: SparkSession, path: str, required: Sequence[str], options: Mapping[str, str]
) -> StructType:
    """The columns in a CSV file's header, as text, and `broken_line`; raises SourceRefused."""
    found = spark.read.options(**options).csv(path, header=True).columns
    require_columns(path, found, required)
    return build_text_schema((*found, BROKEN_LINE))


def read_parquet(
    spark: SparkSession, path: str, required: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """Parquet with at least the required columns, in which no line is broken."""
    table = spark.read.options(**options).parquet(path)
    require_columns(path, table.columns, required)
    return table.withColumn(BROKEN_LINE, F.lit(None).cast("string"))


def stream_table(spark: SparkSession, folder: str, mapping: SourceMapping) -> DataFrame:
    """A folder's files as they arrive; raises SourceRefused.

    A folder of CSV must hold a file already, because later files must have the same header.
    """
    try:
        schema: StructType | str = declare_schema(mapping)
        if mapping.format is SourceFormat.CSV:
            schema = read_csv_header(spark, folder, list(mapping.columns), mapping.options)
        reader = spark.readStream.format(mapping.format).schema(schema).options(**mapping.options)
        if mapping.format is SourceFormat.CSV:
            reader = reader.options(**WHOLE_LINES)
        if mapping.format is not SourceFormat.PARQUET:
            reader = reader.options(**KEEP_BROKEN_LINES)
        return select_columns(reader.load(folder), mapping)
    except SparkFailure as error:
        raise SourceRefused(f"cannot read {folder}: {find_root_cause(error)}") from None


def filter_since(table: DataFrame, mapping: SourceMapping, watermark: str | None) -> DataFrame:
    """The rows from a watermark on, including it and rows that are late by as much as is allowed.

    Rows without a watermark are always included, so that they are rejected by name.
    """
    if watermark is None or mapping.watermark is None:
        return table
    kind = mapping.columns[mapping.watermark]
    column, first = F.col(mapping.watermark).try_cast(kind), F.lit(watermark).cast(kind)
    if mapping.lateness is not None:
        is_number = kind in WHOLE_NUMBERS
        first = first - F.expr(mapping.lateness if is_number else f"interval {mapping.lateness}")
    return table.where(column.isNull() | (column >= first))


def declare_schema(mapping: SourceMapping) -> str:
    columns = {**mapping.columns, BROKEN_LINE: "string"}
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def select_columns(table: DataFrame, mapping: SourceMapping) -> DataFrame:
    """The declared columns and `broken_line`; blank text becomes null."""
    kinds = dict(table.dtypes)
    cells = (
        F.when(F.trim(F.col(name)) != "", F.col(name)).alias(name)
        if kinds[name] == "string"
        else F.col(name)
        for name in mapping.columns
    )
    return table.select(*cells, BROKEN_LINE)


def require_columns(path: str, found: Sequence[str], required: Sequence[str]) -> None:
    if missing := [name for name in required if name not in found]:
        present = ", ".join(found) or "none"
        raise SourceRefused(f"{path} lacks the columns {', '.join(missing)}; it has {present}")


def require_types(path: str, table: DataFrame, mapping: SourceMapping) -> None:
    found = dict(table.dtypes)
    faults = [
        f"{name} is {found[name]}, not {kind}"
        for name, kind in mapping.columns.items()
        if found[name] != kind
    ]
    if faults:
        raise SourceRefused(f"{path}: {', '.join(faults)}")
