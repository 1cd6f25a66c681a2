"""A folder of files as a stream: each file once, and on from the checkpoint after a restart."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark.job.failures import find_root_cause
from spark.read.facts import map_rows
from spark.read.mapping import SourceMapping
from spark.read.sources import read_table, stream_table
from tests.spark.test_feed_by_a_manifest import DOCUMENT

pytestmark = pytest.mark.spark

type Rows = Sequence[dict[str, Any]]

COLUMNS = {"account": "string", "line": "int", "amount": "int"}


def declared(form: str) -> SourceMapping:
    """Bookings in a format."""
    document = DOCUMENT | {"format": form, "columns": COLUMNS}
    return SourceMapping.parse(
        {name: value for name, value in document.items() if name != "watermark"}
    )


def rows(numbers: range) -> Rows:
    """Bookings of two accounts."""
    return [{"account": f"acc-{n % 2}", "line": n, "amount": n * 10} for n in numbers]


def write_json(file: Path, rows: Rows) -> None:
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n")


def write_csv(file: Path, rows: Rows) -> None:
    lines = [",".join(rows[0]), *(",".join(str(cell) for cell in row.values()) for row in rows)]
    file.write_text("\n".join(lines) + "\n")


def write_parquet(file: Path, rows: Rows) -> None:
    kinds = (pyarrow.string(), pyarrow.int32(), pyarrow.int32())
    schema = pyarrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema), file)


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "json": write_json,
    "csv": write_csv,
    "parquet": write_parquet,
}


def read(spark: SparkSession, folder: Path, form: str) -> list[tuple[str, str]]:
    """What is new in a folder since the checkpoint: keys and bodies, or why there is none."""
    found: list[tuple[str, str]] = []

    def batch(table: DataFrame, _: int) -> None:
        validate_flights = map_rows(table, declared(form)).collect()
        found.extend((row["reason"] or row["key"], row["body"]) for row in validate_flights)

    stream = stream_table(spark, str(folder / "in"), declared(form)).writeStream
    stream = stream.foreachBatch(batch).trigger(availableNow=True)
    stream.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    return sorted(found)


@pytest.mark.proof
@pytest.mark.parametrize("form", WRITERS)
def test_each_file_is_read_once_and_a_restart_goes_on_from_the_checkpoint(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    (tmp_path / "in").mkdir()
    WRITERS[form](tmp_path / "in" / f"1.{form}", rows(range(3)))
    assert read(spark, tmp_path, form) == [
        ('["0"]', '{"amount":0}'),
        ('["1"]', '{"amount":10}'),
        ('["2"]', '{"amount":20}'),
    ]

    assert read(spark, tmp_path, form) == []

    WRITERS[form](tmp_path / "in" / f"2.{form}", rows(range(3, 5)))
    assert read(spark, tmp_path, form) == [('["3"]', '{"amount":30}'), ('["4"]', '{"amount":40}')]


@pytest.mark.proof
def test_a_csv_file_with_another_order_of_columns_is_refused_and_not_misread(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    write_csv(tmp_path / "in" / "1.csv", rows(range(1)))
    (tmp_path / "in" / "2.csv").write_text("line,account,amount\n7,acc-1,70\n")

    with pytest.raises(PySparkException) as of_stream:
        read(spark, tmp_path, "csv")
    with pytest.raises(Exception, match="FAILED_READ_FILE") as of_batch:
        read_table(spark, str(tmp_path / "in"), declared("csv")).collect()

    for error in (of_stream.value, of_batch.value):
        said = find_root_cause(error)
        assert "CSV header does not conform to the schema" in said
        assert re.search(r"/in/[12]\.csv", said), "which one is read first is Spark's to say"
        assert "\n" not in said


def test_a_parquet_file_with_another_type_is_refused_by_its_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    other = pyarrow.table({"account": ["acc-1"], "line": ["seven"], "amount": [1]})
    parquet.write_table(other, tmp_path / "in" / "1.parquet")

    with pytest.raises(PySparkException) as failure:
        read(spark, tmp_path, "parquet")

    assert "1.parquet" in find_root_cause(failure.value)
