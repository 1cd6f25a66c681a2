"""Tables in files, folders and catalogs are read as they were written, or refused by name."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding import FeedConfig, feed
from spark.feeding.rejects import RowCounts
from spark.job.failures import JobRefused, find_root_cause
from spark.read.facts import map_rows
from spark.read.mapping import SourceMapping
from spark.read.sources import BEGINS_OVER_LINES, read_table, stream_table
from tests.spark.bookings import ROWS, SCHEMA, declare


def bodies(spark: SparkSession, path: str, form: str) -> list[tuple[str, str]]:
    rows = map_rows(read_table(spark, path, declare(form)), declare(form))
    found = rows.where("reason is null").select("session", "body").collect()
    return sorted((row["session"], row["body"]) for row in found)


def test_orc_and_a_view_in_the_catalog_are_read(spark: SparkSession, tmp_path: Path) -> None:
    table = spark.createDataFrame(ROWS, SCHEMA)
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
    table = spark.createDataFrame(ROWS, SCHEMA)
    folder = tmp_path / "bookings"
    for day in (1, 2):
        table.write.parquet(str(folder / f"day={day}"))
    assert len(bodies(spark, str(folder / inside), "parquet")) > 0
    (folder / file).parent.mkdir()
    (folder / file).write_text("{}")

    for read_any in (read_table, stream_table):
        with pytest.raises(JobRefused, match=f"bookings is a {kind} table"):
            read_any(spark, str(folder / inside), declare("parquet"))


@pytest.mark.parametrize("form", ["delta", "avro"])
def test_a_format_whose_package_is_missing_is_refused_with_its_name(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    wanted = rf"this Spark has no package for the format {form}; start it with \S+:\S*{form}"

    for read_any in (read_table, stream_table):
        with pytest.raises(JobRefused, match=wanted):
            read_any(spark, str(tmp_path), declare(form))


def test_a_folder_that_is_merely_called_metadata_is_no_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = spark.createDataFrame(ROWS, SCHEMA)
    table.write.parquet(str(tmp_path / "lake" / "bookings"))
    (tmp_path / "lake" / "metadata").mkdir()
    (tmp_path / "lake" / "metadata" / "notes.txt").touch()

    assert len(bodies(spark, str(tmp_path / "lake" / "bookings"), "parquet")) == 3


def test_any_dataframe_is_fed_with_its_own_types_or_as_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = spark.createDataFrame([*ROWS, ("a", 2, 5), (None, 1, 1)], SCHEMA)
    options = FeedConfig("bank", rejects=str(tmp_path / "rejects"), dry_run=True)

    for given in (table, table.withColumn("line", F.col("line").cast("string"))):
        found = feed(given, declare("table"), options)
        expected = RowCounts(5, 3, 2, {"missing account": 1, "repeated key": 1})
        assert found.rows == expected

    wrong = table.withColumn("line", F.col("line").cast("double"))
    with pytest.raises(JobRefused, match="the table: line is double, not int"):
        feed(wrong, declare("table"), options)
    with pytest.raises(JobRefused, match="the table lacks the columns amount"):
        feed(table.drop("amount"), declare("table"), options)


def test_a_mapped_table_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    reads = spark.sparkContext.accumulator(0)

    def look(line: int) -> int:
        reads.add(1)
        return line

    counted = F.udf(look, "int").asNondeterministic()
    table = spark.createDataFrame(ROWS, SCHEMA)
    options = FeedConfig("bank", rejects=str(tmp_path / "rejects"), dry_run=True)

    found = feed(table.withColumn("line", counted("line")), declare("table"), options)

    assert found.rows.rows == 3
    assert reads.value == 3


BOOKED = pd.DataFrame([{"account": "acc-0", "line": 0, "amount": 0}])
BOOKED = BOOKED.astype({"line": "int32", "amount": "int32"})


def stream(spark: SparkSession, folder: Path, form: str) -> None:
    """Read a folder as a stream, until all that is there was read."""
    writer = stream_table(spark, str(folder), declare(form)).writeStream.format("noop")
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.proof
def test_a_csv_file_with_another_order_of_columns_is_refused_and_not_misread(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    BOOKED.to_csv(tmp_path / "in" / "1.csv", index=False)
    (tmp_path / "in" / "2.csv").write_text("line,account,amount\n7,acc-1,70\n")

    with pytest.raises(PySparkException) as of_stream:
        stream(spark, tmp_path / "in", "csv")
    with pytest.raises(Exception, match="FAILED_READ_FILE") as of_batch:
        read_table(spark, str(tmp_path / "in"), declare("csv")).collect()

    for error in (of_stream.value, of_batch.value):
        said = find_root_cause(error)
        assert "CSV header does not conform to the schema" in said
        assert re.search(r"/in/[12]\.csv", said), "which one is read first is Spark's to say"
        assert "\n" not in said


def test_a_parquet_file_with_another_type_is_refused_by_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    BOOKED.astype({"line": str}).to_parquet(tmp_path / "in" / "1.parquet")

    with pytest.raises(PySparkException) as failure:
        stream(spark, tmp_path / "in", "parquet")

    assert "1.parquet" in find_root_cause(failure.value)


def test_json_that_is_not_an_object_a_line_is_refused_with_what_to_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [{"account": "a", "line": n, "amount": n} for n in (1, 2)]
    (tmp_path / "rows.json").write_text("[" + ",\n".join(map(json.dumps, rows)) + "]")
    (tmp_path / "notes.txt").write_text("another file, which is not chosen\n")
    chosen = {"pathGlobFilter": "*.json"}
    remedy = re.escape('say "options": {"multiLine": "true"} in the mapping')

    for read in (read_table, stream_table):
        with pytest.raises(JobRefused, match=remedy):
            read(spark, str(tmp_path), declare("json", options=chosen))
    over_lines = declare("json", options=chosen | {"multiLine": "true"})
    found = read_table(spark, str(tmp_path), over_lines).collect()
    assert [row["amount"] for row in found] == [1, 2]

    for begin, is_over in (("[{", True), (" {", True), ('{"a":1}', False), ("what", False)):
        assert bool(BEGINS_OVER_LINES.match(begin)) is is_over


HEADER = ["note", "account", "line", "text"]
NOTES = [
    'he said "hi"',
    '"quoted"',
    "two\nlines",
    "\nfirst is empty",
    "CR and LF\r\nwithin",
    "a, comma",
    "back\\slash",
    'backslash and quote \\"x\\"',
    "ends with a backslash\\",
    'both "a"\nand\n"b", and ,',
    "semicolon; and\ttab",
    " blanks around ",
]
SESSIONS = ["plain", 'acc "seven"', "two\nlines", "a,b"]
NOTE_ROWS = [[note, SESSIONS[n % 4], str(n), note] for n, note in enumerate(NOTES)]


def declare_notes(**options: str) -> SourceMapping:
    columns = {"note": "string", "account": "string", "line": "int", "text": "string"}
    return declare("csv", columns=columns, body=["note", "text"], options=options)


def by_csv_module(file: Path, dialect: str, delimiter: str = ",") -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened, dialect, delimiter=delimiter).writerows([HEADER, *NOTE_ROWS])


def by_excel(file: Path) -> None:
    """As Excel saves CSV UTF-8 in a country with decimal commas: a mark, semicolons, CR and LF."""
    by_csv_module(file, "excel", ";")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())


NOTE_WRITERS: dict[str, Any] = {
    "csv, excel": (lambda file: by_csv_module(file, "excel"), {}),
    "csv, unix": (lambda file: by_csv_module(file, "unix"), {}),
    "pandas": (lambda file: pd.DataFrame(NOTE_ROWS, columns=HEADER).to_csv(file, index=False), {}),
    "Excel": (by_excel, {"sep": ";"}),
}


@pytest.mark.parametrize("writer", NOTE_WRITERS)
def test_each_note_and_each_session_is_read_as_it_was_written(
    spark: SparkSession, tmp_path: Path, writer: str
) -> None:
    write, options = NOTE_WRITERS[writer]
    write(tmp_path / "notes.csv")

    found = read_table(spark, str(tmp_path / "notes.csv"), declare_notes(**options)).collect()

    assert [row["broken_line"] for row in found] == [None] * len(NOTE_ROWS)
    assert [[row[name] for name in HEADER] for row in found] == NOTE_ROWS


def test_a_folder_as_a_stream_reads_them_the_same(spark: SparkSession, tmp_path: Path) -> None:
    by_csv_module(tmp_path / "notes.csv", "excel")
    stream = stream_table(spark, str(tmp_path), declare_notes()).writeStream.format("memory")
    stream.queryName("notes").trigger(availableNow=True).start().awaitTermination(60)

    found = spark.table("notes").orderBy("line").collect()
    assert sorted([row[name] for name in HEADER] for row in found) == sorted(NOTE_ROWS)


def test_a_quote_that_is_never_closed_is_a_broken_line_and_no_long_note(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "notes.csv"
    lines = ["note,account,line,text", "x,a,1,fine", 'y,a,2,"open', "z,a,3,lost", "w,a,4,lost"]

    for end in ("\n", ""):
        file.write_text("\n".join(lines) + end)
        found = map_rows(read_table(spark, str(file), declare_notes()), declare_notes()).collect()
        assert sorted(str(row["reason"]) for row in found) == ["None", "broken line"]


def test_a_mapping_may_say_that_lines_are_escaped_with_backslashes(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "notes.csv"
    file.write_text('note,account,line,text\n"a \\"b\\" c",s,1,x\n')

    options = {"escape": "\\", "multiLine": "false"}
    found = read_table(spark, str(file), declare_notes(**options)).collect()

    assert [row["note"] for row in found] == ['a "b" c']
