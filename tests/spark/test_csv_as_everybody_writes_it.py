"""CSV by RFC 4180, as Python's csv module, pandas and Excel write it, is read back as it was."""

import csv
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from spark.read.facts import map_rows
from spark.read.mapping import SourceMapping
from spark.read.sources import read_table, stream_table

pytestmark = pytest.mark.spark

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
ROWS = [[note, SESSIONS[n % 4], str(n), note] for n, note in enumerate(NOTES)]


def mapping(**options: str) -> SourceMapping:
    """The notes, each a message."""
    document: dict[str, Any] = {
        "format": "csv",
        "columns": {"note": "string", "account": "string", "line": "int", "text": "string"},
        "session": "account",
        "key": ["line"],
        "order": ["line"],
        "body": ["note", "text"],
        "type": "note.add",
        "options": options,
    }
    return SourceMapping.parse(document)


def by_csv_module(file: Path, dialect: str, delimiter: str = ",") -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened, dialect, delimiter=delimiter).writerows([HEADER, *ROWS])


def by_pandas(file: Path) -> None:
    pd.DataFrame(ROWS, columns=HEADER).to_csv(file, index=False)


def by_excel(file: Path) -> None:
    """As Excel saves CSV UTF-8 in a country with decimal commas: a mark, semicolons, CR and LF."""
    by_csv_module(file, "excel", ";")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())


WRITERS: dict[str, Any] = {
    "csv, excel": (lambda file: by_csv_module(file, "excel"), {}),
    "csv, unix": (lambda file: by_csv_module(file, "unix"), {}),
    "pandas": (by_pandas, {}),
    "Excel": (by_excel, {"sep": ";"}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_each_note_and_each_session_is_read_as_it_was_written(
    spark: SparkSession, tmp_path: Path, writer: str
) -> None:
    write, options = WRITERS[writer]
    write(tmp_path / "notes.csv")

    found = read_table(spark, str(tmp_path / "notes.csv"), mapping(**options)).collect()

    assert [row["broken_line"] for row in found] == [None] * len(ROWS)
    assert [[row[name] for name in HEADER] for row in found] == ROWS


def test_a_folder_as_a_stream_reads_them_the_same(spark: SparkSession, tmp_path: Path) -> None:
    by_csv_module(tmp_path / "notes.csv", "excel")
    query = (
        stream_table(spark, str(tmp_path), mapping())
        .writeStream.format("memory")
        .queryName("notes")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)

    found = spark.table("notes").orderBy("line").collect()
    assert sorted([row[name] for name in HEADER] for row in found) == sorted(ROWS)


def test_a_quote_that_is_never_closed_is_a_broken_line_and_no_long_note(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "notes.csv"
    lines = ["note,account,line,text", "x,a,1,fine", 'y,a,2,"open', "z,a,3,lost", "w,a,4,lost"]

    for end in ("\n", ""):
        file.write_text("\n".join(lines) + end)
        found = map_rows(read_table(spark, str(file), mapping()), mapping()).collect()
        assert sorted(str(row["reason"]) for row in found) == ["None", "broken line"]


def test_a_mapping_may_say_that_lines_are_escaped_with_backslashes(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "notes.csv"
    file.write_text('note,account,line,text\n"a \\"b\\" c",s,1,x\n')

    options = {"escape": "\\", "multiLine": "false"}
    found = read_table(spark, str(file), mapping(**options)).collect()

    assert [row["note"] for row in found] == ['a "b" c']
