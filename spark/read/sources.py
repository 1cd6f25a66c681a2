"""Read tables from files and catalogs: all of it, from a watermark on, or as a stream.

Every reader keeps a line that it cannot split into columns, whole, in the column `broken_line`, so
that no row disappears before it is counted.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark reader knows
from pyspark.sql.streaming.readwriter import DataStreamReader

from spark.job.failures import JobRefused, SparkFailure, find_root_cause
from spark.job.files import SparkFiles
from spark.read.mapping import (
    BODY_ONLY,
    DECIMAL,
    FILES_OPTIONS,
    WHOLE_NUMBERS,
    SourceFormat,
    SourceMapping,
)
from spark.read.values import is_cut_by_readers, read_column
from spark.schemas import BROKEN_LINE, build_text_schema

# CSV as RFC 4180 has it, and as Excel, pandas and Python's csv module write it: a quote within
# quotes is doubled, and a quoted cell may hold line breaks. Spark's own default is a backslash.
RFC_4180 = {"multiLine": True, "quote": '"', "escape": '"'}

# With column pruning Spark does not count the cells of a line, so a broken one would pass for a
# whole one. With an enforced schema it would read a file whose header has another order by
# position, with cells under the wrong names.
WHOLE_LINES = {"header": True, "columnPruning": False, "enforceSchema": False}
# Where a table format keeps which of a folder's files count. Its other files are removed versions.
TABLE_FOLDERS = {"_delta_log": "Delta", ".hoodie": "Hudi", "metadata": "Iceberg"}
# Formats that PySpark does not bring, with what it says if they are not there, and their packages.
NOT_FOUND = ("DATA_SOURCE_NOT_FOUND", "AVRO_DATA_SOURCE_NOT_ENABLED")
PACKAGES = {
    SourceFormat.DELTA: "io.delta:delta-spark_2.13",
    SourceFormat.AVRO: "org.apache.spark:spark-avro_2.13",
}
# The first line of JSON that is not one object a line.
BEGINS_OVER_LINES = re.compile(r"\s*(\[|\{\s*$)")
KEEP_BROKEN_LINES = {"columnNameOfCorruptRecord": BROKEN_LINE, "mode": "PERMISSIVE"}

type Reader = DataFrameReader | DataStreamReader


def read_table(spark: SparkSession, path: str, mapping: SourceMapping) -> DataFrame:
    """The columns of a mapping, and `broken_line`. Raises JobRefused, naming what is missing."""
    columns, options = list(mapping.columns), mapping.options
    try:
        match mapping.format:
            case SourceFormat.CSV:
                table = read_csv(spark, path, columns, options)
            case SourceFormat.JSON:
                table = read_json(spark, spark.read, path, mapping)
            case form:
                table = read_typed(spark, path, form, columns, options)
                require_types(path, table, mapping)
    except SparkFailure as error:
        raise JobRefused(describe_failure(path, mapping.format, error)) from None
    return select_columns(table, mapping)


def describe_failure(path: str, form: SourceFormat, error: PySparkException | Py4JJavaError) -> str:
    cause = find_root_cause(error)
    if form in PACKAGES and any(reason in cause for reason in NOT_FOUND):
        return (
            f"cannot read {path}: this Spark has no package for the format {form}; start it with "
            f"{PACKAGES[form]} in the version that fits (spark-submit --packages, or a library of "
            "the cluster)"
        )
    return f"cannot read {path}: {cause}"


def read_csv(
    spark: SparkSession,
    path: str,
    required: Sequence[str],
    options: Mapping[str, str],
    reader: Reader | None = None,
) -> DataFrame:
    """CSV with a header, every column as text; raises JobRefused for a column that it lacks.

    A line with another number of cells is broken, and so is one whose last quote is never closed:
    the lines after it are in its last cell.
    """
    options = complete_csv_options(spark, path, options)
    found = spark.read.options(**options).csv(path, header=True).columns
    require_columns(path, found, required)
    chosen = (reader or spark.read).options(**WHOLE_LINES, **KEEP_BROKEN_LINES).options(**options)
    table = chosen.csv(path, schema=build_text_schema((*found, BROKEN_LINE)))
    return mark_unclosed_quotes(table, options)


def read_json(spark: SparkSession, reader: Reader, path: str, mapping: SourceMapping) -> DataFrame:
    """JSON, one object a line; raises JobRefused for files that begin as others do."""
    given = {name.lower(): value for name, value in mapping.options.items()}
    if str(given.get("multiline")).lower() != "true":
        choice = {name: value for name, value in given.items() if name in FILES_OPTIONS}
        first = spark.read.options(**choice).text(path).first()
        if first is not None and BEGINS_OVER_LINES.match(first[0]):
            raise JobRefused(
                f"{path} is an array, or has objects of several lines, and would be read line by "
                'line: say "options": {"multiLine": "true"} in the mapping'
            )
    chosen = reader.options(**KEEP_BROKEN_LINES).options(**mapping.options)
    # Spark's reader of JSON rounds decimals, and cuts times, where a text would be refused.
    cut = [name for name, kind in mapping.columns.items() if is_cut_by_readers(kind)]
    texts = dict.fromkeys((*cut, *mapping.formats), "string")
    return chosen.json(path, schema=declare_schema({**mapping.columns, **texts}))


def complete_csv_options(
    spark: SparkSession, path: str, options: Mapping[str, str]
) -> dict[str, str]:
    """The options of a mapping over those of RFC 4180, in lower case.

    Lines that end with CR and LF are declared, because Spark would otherwise take the CR out of the
    line breaks within quotes too.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    found = {name.lower(): str(value) for name, value in RFC_4180.items()} | given
    if found["multiline"].lower() == "true" and "linesep" not in found:
        first = spark.read.text(path, lineSep="\n").first()
        if first is not None and first[0].endswith("\r"):
            found["linesep"] = "\r\n"
    return found


def mark_unclosed_quotes(table: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Keep a row as a broken line if its last cell holds whole lines of the file.

    Such a cell is what a quote that is never closed leaves. A text that has line breaks, and on one
    line of its own just as many separators as the file has, looks the same and is rejected too.
    """
    cells = [name for name in table.columns if name != BROKEN_LINE]
    if len(cells) == 1:
        return table
    separator = re.escape(options.get("sep") or options.get("delimiter") or ",")
    text = rf"((?!{separator})[^\n])*"
    line = rf"\n({text}{separator}){{{len(cells) - 1}}}{text}(\n|$)"
    last = F.col(f"`{cells[-1]}`")
    whole = F.when(last.rlike(line), F.to_json(F.array(*(f"`{name}`" for name in cells))))
    return table.withColumn(BROKEN_LINE, F.coalesce(BROKEN_LINE, whole))


def read_typed(
    spark: SparkSession,
    path: str,
    form: SourceFormat,
    required: Sequence[str],
    options: Mapping[str, str],
) -> DataFrame:
    """A table with at least the required columns, in which no line is broken.

    Raises JobRefused for files that a table format keeps, if they are read without it.
    """
    reader = spark.read.options(**options)
    if form is SourceFormat.TABLE:
        table = reader.table(path)
    else:
        refuse_table_folder(spark, path, form)
        table = reader.format(form).load(path)
    require_columns(path, table.columns, required)
    return table.withColumn(BROKEN_LINE, F.lit(None).cast("string"))


def prepare_table(table: DataFrame, mapping: SourceMapping) -> DataFrame:
    """A table of declared types or of text in the form of `read_table`; raises JobRefused."""
    require_columns("the table", table.columns, list(mapping.columns))
    require_types("the table", table, mapping, or_text=True)
    if BROKEN_LINE not in table.columns:
        table = table.withColumn(BROKEN_LINE, F.lit(None).cast("string"))
    return select_columns(table, mapping)


def refuse_table_folder(spark: SparkSession, path: str, form: SourceFormat) -> None:
    """Raise JobRefused if the files at a path belong to a table of another format."""
    files = SparkFiles(spark)
    place = files.parse_path(path)
    with suppress(*SparkFailure):  # Where nothing can be listed, the reader itself says why.
        place = files.find_system(place).makeQualified(place)
        while place is not None:
            for name, kind in TABLE_FOLDERS.items():
                inside = files.list_names(f"{place}/{name}")
                is_table = bool(inside)
                if kind == "Iceberg":
                    is_table = any(each.endswith(".metadata.json") for each in inside)
                if is_table and form != kind.lower():
                    raise JobRefused(
                        f"{place} is a {kind} table, and its files hold removed rows too; read it "
                        'with the format "delta", or as "table" by its name in the catalog'
                    )
            place = place.getParent()


def stream_table(spark: SparkSession, folder: str, mapping: SourceMapping) -> DataFrame:
    """A folder's files as they arrive; raises JobRefused.

    A folder of CSV must hold a file already, because later files must have the same header.
    """
    try:
        reader, options = spark.readStream, mapping.options
        match mapping.format:
            case SourceFormat.CSV:
                table = read_csv(spark, folder, list(mapping.columns), options, reader)
            case SourceFormat.JSON:
                table = read_json(spark, reader, folder, mapping)
            case SourceFormat.TABLE:
                return prepare_table(reader.options(**options).table(folder), mapping)
            case form:
                refuse_table_folder(spark, folder, form)
                reader = reader.format(form).options(**options)
                if form is SourceFormat.DELTA:
                    return prepare_table(reader.load(folder), mapping)
                table = reader.schema(declare_schema(mapping.columns)).load(folder)
                require_types(folder, table, mapping)
        return select_columns(table, mapping)
    except SparkFailure as error:
        raise JobRefused(describe_failure(folder, mapping.format, error)) from None


def filter_since(table: DataFrame, mapping: SourceMapping, watermark: str | None) -> DataFrame:
    """The rows from a watermark on, including it and rows that are late by as much as is allowed.

    Rows without a watermark are always included, so that they are rejected by name.
    """
    if watermark is None or mapping.watermark is None:
        return table
    kind = mapping.columns[mapping.watermark]
    column, first = read_column(table, mapping.watermark, mapping), F.lit(watermark).cast(kind)
    if mapping.lateness is not None:
        is_number = kind in WHOLE_NUMBERS or DECIMAL.fullmatch(kind)
        first = first - F.expr(mapping.lateness if is_number else f"interval {mapping.lateness}")
    return table.where(column.isNull() | (column >= first))


def declare_schema(kinds: Mapping[str, str]) -> str:
    columns = {**kinds, BROKEN_LINE: "string"}
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def select_columns(table: DataFrame, mapping: SourceMapping) -> DataFrame:
    """The declared columns and `broken_line`; blank text is null unless text is declared."""
    found = dict(table.dtypes)
    cells = (
        F.when(F.trim(F.col(name)) != "", F.col(name)).alias(name)
        if found[name] == "string" != kind
        else F.col(name)
        for name, kind in mapping.columns.items()
    )
    return table.select(*cells, BROKEN_LINE)


def require_columns(path: str, found: Sequence[str], required: Sequence[str]) -> None:
    if missing := [name for name in required if name not in found]:
        present = ", ".join(found) or "none"
        raise JobRefused(f"{path} lacks the columns {', '.join(missing)}; it has {present}")


def require_types(
    path: str, table: DataFrame, mapping: SourceMapping, *, or_text: bool = False
) -> None:
    found = dict(table.dtypes)
    faults = [
        f"{name} is {found[name]}, not {kind}"
        for name, kind in mapping.columns.items()
        if found[name] != kind
        and not (or_text and found[name] == "string" and not BODY_ONLY.fullmatch(kind))
    ]
    faults += [
        f"the format of {name} would have no effect on {found[name]}"
        for name in mapping.formats
        if found[name] != "string"
    ]
    if faults:
        raise JobRefused(f"{path}: {', '.join(faults)}")
