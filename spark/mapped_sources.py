"""Tables a mapping is declared for: read whole, from a watermark on, or as a stream of files."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark.failures import SparkFailure, root_cause
from spark.mapping import WHOLE, Format, Mapping
from spark.schemas import BROKEN_LINE, texts
from spark.sources import WHOLE_LINES, SourceRefused

CORRUPT = {"columnNameOfCorruptRecord": BROKEN_LINE, "mode": "PERMISSIVE"}


def read_mapped(spark: SparkSession, path: str, mapping: Mapping) -> DataFrame:
    """The columns of a mapping and `broken_line`; raises SourceRefused, naming what misses."""
    try:
        match mapping.format:
            case Format.CSV:
                return read_csv(spark, path, mapping)
            case Format.JSON:
                reader = spark.read.options(**CORRUPT).options(**mapping.options)
                return chosen(reader.schema(declared(mapping)).json(path), mapping)
            case Format.PARQUET:
                return read_parquet(spark, path, mapping)
    except SparkFailure as error:
        raise SourceRefused(f"cannot read {path}: {root_cause(error)}") from None


def read_csv(spark: SparkSession, path: str, mapping: Mapping) -> DataFrame:
    """CSV with a header, all text; a line with another number of cells is a broken line."""
    lines = spark.read.options(**WHOLE_LINES, **CORRUPT).options(**mapping.options)
    return chosen(lines.csv(path, schema=header(spark, path, mapping)), mapping)


def read_parquet(spark: SparkSession, path: str, mapping: Mapping) -> DataFrame:
    """Parquet, whose columns must have the very types that are declared."""
    table = spark.read.options(**mapping.options).parquet(path)
    require_columns(path, table.columns, mapping)
    found = dict(table.dtypes)
    faults = [
        f"{name} is {found[name]}, not {kind}"
        for name, kind in mapping.columns.items()
        if found[name] != kind
    ]
    if faults:
        raise SourceRefused(f"{path}: {', '.join(faults)}")
    return chosen(table.withColumn(BROKEN_LINE, F.lit(None).cast("string")), mapping)


def stream_mapped(spark: SparkSession, folder: str, mapping: Mapping) -> DataFrame:
    """The files of a folder as they come; raises SourceRefused.

    A folder of CSV must hold a file already: its header is what later files must have.
    """
    try:
        schema: StructType | str = declared(mapping)
        if mapping.format is Format.CSV:
            schema = header(spark, folder, mapping)
        reader = spark.readStream.format(mapping.format).schema(schema).options(**mapping.options)
        if mapping.format is Format.CSV:
            reader = reader.options(**WHOLE_LINES)
        if mapping.format is not Format.PARQUET:
            reader = reader.options(**CORRUPT)
        return chosen(reader.load(folder), mapping)
    except SparkFailure as error:
        raise SourceRefused(f"cannot read {folder}: {root_cause(error)}") from None


def since(table: DataFrame, mapping: Mapping, mark: str | None) -> DataFrame:
    """The rows from a watermark on, itself and what may be late included.

    Rows that say no watermark are always among them.
    """
    if mark is None or mapping.watermark is None:
        return table
    kind = mapping.columns[mapping.watermark]
    column, first = F.col(mapping.watermark).try_cast(kind), F.lit(mark).cast(kind)
    if mapping.lateness is not None:
        first = first - F.expr(
            mapping.lateness if kind in WHOLE else f"interval {mapping.lateness}"
        )
    return table.where(column.isNull() | (column >= first))


def header(spark: SparkSession, path: str, mapping: Mapping) -> StructType:
    """The columns of a CSV file as text, and `broken_line`; raises SourceRefused."""
    found = spark.read.options(**mapping.options).csv(path, header=True).columns
    require_columns(path, found, mapping)
    return texts((*found, BROKEN_LINE))


def declared(mapping: Mapping) -> str:
    """The declared columns and `broken_line`, as Spark reads schemas."""
    columns = {**mapping.columns, BROKEN_LINE: "string"}
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def chosen(table: DataFrame, mapping: Mapping) -> DataFrame:
    """The declared columns and `broken_line`, blanks as null."""
    kinds = dict(table.dtypes)
    return table.select(*(cell(name, kinds[name]) for name in mapping.columns), BROKEN_LINE)


def cell(name: str, kind: str) -> Column:
    """A cell, null where it is blank text."""
    column = F.col(name)
    return F.when(F.trim(column) != "", column).alias(name) if kind == "string" else column


def require_columns(path: str, found: list[str], mapping: Mapping) -> None:
    """Raise SourceRefused naming every column that is not there, and what is."""
    if missing := [name for name in mapping.columns if name not in found]:
        has = ", ".join(found) or "none"
        raise SourceRefused(f"{path} lacks the columns {', '.join(missing)}; it has {has}")
