"""Rows with one key: the newest counts, whether they come in one batch or one after the other."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.job.failures import JobRefused
from spark.read.facts import map_rows
from spark.read.mapping import SourceMapping
from spark.schemas import BROKEN_LINE

pytestmark = pytest.mark.spark

DOCUMENT: dict[str, Any] = {
    "format": "json",
    "columns": {"account": "string", "line": "int", "amount": "int", "seen": "int", "rev": "int"},
    "session": "account",
    "key": ["line"],
    "order": ["line"],
    "body": ["amount"],
    "type": "account.add",
}
type Cells = tuple[str | None, ...]


def outcomes(spark: SparkSession, rows: list[Cells], **more: str) -> list[tuple[str, str | None]]:
    """Each row's body with the reason of its rejection, sorted."""
    columns = ", ".join(f"{name} string" for name in (*DOCUMENT["columns"], BROKEN_LINE))
    table = spark.createDataFrame([(*row, None) for row in rows], columns)
    found = map_rows(table, SourceMapping.parse(DOCUMENT | more)).collect()
    return sorted(((row["body"], row["reason"]) for row in found), key=str)


# The amounts neither rise nor fall with age, and 10 is after 9 only as a number.
ROWS: list[Cells] = [
    ("a", "1", "50", "9", "1"),
    ("a", "1", "70", "10", "3"),
    ("a", "1", "40", "8", "2"),
]


def test_of_the_rows_with_one_key_the_newest_is_the_fact(spark: SparkSession) -> None:
    for more in ({"watermark": "seen"}, {"version": "rev"}):
        assert outcomes(spark, ROWS, **more) == [
            ('{"amount":40}', "repeated key"),
            ('{"amount":50}', "repeated key"),
            ('{"amount":70}', None),
        ]


def test_a_version_says_it_better_than_a_watermark(spark: SparkSession) -> None:
    rows: list[Cells] = [("a", "1", "50", "9", "2"), ("a", "1", "40", "8", "3")]

    found = outcomes(spark, rows, watermark="seen", version="rev")

    assert found == [('{"amount":40}', None), ('{"amount":50}', "repeated key")]


def test_a_rejected_row_does_not_take_the_place_of_a_good_one(spark: SparkSession) -> None:
    # The rejected row is the newer one, and its body sorts first.
    rows: list[Cells] = [("a", "1", "lots", "9", "2"), ("a", "1", "40", "8", "1")]

    found = outcomes(spark, rows, watermark="seen")

    assert found == [('{"amount":40}', None), ('{"amount":null}', "malformed amount")]


def test_a_version_is_a_declared_column_that_can_be_an_order() -> None:
    with pytest.raises(JobRefused, match="no type is declared for the columns age"):
        SourceMapping.parse(DOCUMENT | {"version": "age"})
    columns = DOCUMENT["columns"] | {"rev": "double"}
    with pytest.raises(JobRefused, match="rev is double: that cannot be an order"):
        SourceMapping.parse(DOCUMENT | {"version": "rev", "columns": columns})
