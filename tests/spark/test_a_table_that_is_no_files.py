"""Tables in catalogs, ORC and DataFrames are fed; the files of a table format are not."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding import FeedConfig, feed
from spark.feeding.rejects import RowCounts
from spark.job.failures import JobRefused
from spark.read.facts import map_rows
from spark.read.mapping import SourceMapping
from spark.read.sources import read_table, stream_table

pytestmark = pytest.mark.spark

COLUMNS = {"account": "string", "line": "int", "amount": "int"}
ROWS = [("a", 1, 10), ("a", 2, 20), ("b", 1, 30)]


def mapping(form: str, **more: object) -> SourceMapping:
    """Bookings, in a format."""
    document = {"format": form, "columns": COLUMNS, "session": "account", "key": ["line"]}
    document |= {"order": ["line"], "body": ["amount"], "type": "account.add"}
    return SourceMapping.parse(document | more)


def bodies(spark: SparkSession, path: str, form: str) -> list[tuple[str, str]]:
    """What the rows state."""
    rows = map_rows(read_table(spark, path, mapping(form)), mapping(form))
    found = rows.where("reason is null").select("session", "body").collect()
    return sorted((row["session"], row["body"]) for row in found)


def test_orc_and_a_view_in_the_catalog_are_read(spark: SparkSession, tmp_path: Path) -> None:
    table = spark.createDataFrame(ROWS, "account string, line int, amount int")
    table.write.orc(str(tmp_path / "orc"))
    table.createOrReplaceTempView("bookings")
    expected = [("a", '{"amount":10}'), ("a", '{"amount":20}'), ("b", '{"amount":30}')]

    assert bodies(spark, str(tmp_path / "orc"), "orc") == expected
    assert bodies(spark, "bookings", "table") == expected
    with pytest.raises(JobRefused, match=r"cannot read nowhere: .*TABLE_OR_VIEW_NOT_FOUND"):
        bodies(spark, "nowhere", "table")


@pytest.mark.parametrize("inside", [".", "day=1"])
@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("Delta", "_delta_log/00000.json"),
        ("Hudi", ".hoodie/hoodie.properties"),
        ("Iceberg", "metadata/v1.metadata.json"),
    ],
)
def test_the_files_of_a_table_format_are_refused(
    spark: SparkSession, tmp_path: Path, kind: str, file: str, inside: str
) -> None:
    table = spark.createDataFrame(ROWS, "account string, line int, amount int")
    folder = tmp_path / "bookings"
    for day in (1, 2):
        table.write.parquet(str(folder / f"day={day}"))
    assert len(bodies(spark, str(folder / inside), "parquet")) > 0
    (folder / file).parent.mkdir()
    (folder / file).write_text("{}")

    with pytest.raises(JobRefused, match=f"bookings is a {kind} table"):
        read_table(spark, str(folder / inside), mapping("parquet"))
    with pytest.raises(JobRefused, match=f"bookings is a {kind} table"):
        stream_table(spark, str(folder / inside), mapping("parquet"))


@pytest.mark.parametrize("form", ["delta", "avro"])
def test_a_format_whose_package_is_missing_is_refused_with_its_name(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    wanted = rf"this Spark has no package for the format {form}; start it with \S+:\S*{form}"

    with pytest.raises(JobRefused, match=wanted):
        read_table(spark, str(tmp_path), mapping(form))
    with pytest.raises(JobRefused, match=wanted):
        stream_table(spark, str(tmp_path), mapping(form))


def test_a_folder_that_is_merely_called_metadata_is_no_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = spark.createDataFrame(ROWS, "account string, line int, amount int")
    table.write.parquet(str(tmp_path / "lake" / "bookings"))
    (tmp_path / "lake" / "metadata").mkdir()
    (tmp_path / "lake" / "metadata" / "notes.txt").touch()

    assert len(bodies(spark, str(tmp_path / "lake" / "bookings"), "parquet")) == 3


def test_any_dataframe_is_fed_with_its_own_types_or_as_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = spark.createDataFrame(
        [*ROWS, ("a", 2, 5), (None, 1, 1)], "account string, line int, amount int"
    )
    options = FeedConfig("bank", rejects=str(tmp_path / "rejects"), dry_run=True)

    for given in (table, table.withColumn("line", F.col("line").cast("string"))):
        found = feed(given, mapping("table"), options)
        expected = RowCounts(5, 3, 2, {"missing account": 1, "repeated key": 1})
        assert found.rows == expected

    wrong = table.withColumn("line", F.col("line").cast("double"))
    with pytest.raises(JobRefused, match="the table: line is double, not int"):
        feed(wrong, mapping("table"), options)
    with pytest.raises(JobRefused, match="the table lacks the columns amount"):
        feed(table.drop("amount"), mapping("table"), options)


def test_a_mapped_table_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    reads = spark.sparkContext.accumulator(0)

    def look(line: int) -> int:
        reads.add(1)
        return line

    counted = F.udf(look, "int").asNondeterministic()
    table = spark.createDataFrame(ROWS, "account string, line int, amount int")
    options = FeedConfig("bank", rejects=str(tmp_path / "rejects"), dry_run=True)

    found = feed(table.withColumn("line", counted("line")), mapping("table"), options)

    assert found.rows.rows == 3
    assert reads.value == 3


def test_a_time_that_is_no_time_is_a_reject(spark: SparkSession, tmp_path: Path) -> None:
    times = ["2026-01-02T03:04:05Z", "2026-01-02 03:04:05.25", "2026-01-02", "yesterday", "12:30"]
    lines = [
        json.dumps({"account": "a", "line": n, "amount": 1, "at": at}) for n, at in enumerate(times)
    ]
    (tmp_path / "in.json").write_text("\n".join(lines))
    declared = mapping("json", time="at", columns=COLUMNS | {"at": "string"})

    found = map_rows(read_table(spark, str(tmp_path / "in.json"), declared), declared).collect()

    reasons = {row["key"]: row["reason"] for row in found}
    assert [reasons[f'["{n}"]'] for n in range(5)] == [None, None, None, *["malformed at"] * 2]
