"""Rows of any table as facts, by a declared mapping: CSV, JSON and Parquet say the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.mapped import mapped
from spark.mapped_sources import read_mapped
from spark.mapping import Mapping, MappingRefused
from spark.schemas import FACTS
from spark.sources import SourceRefused
from tests.spark.flights import assert_same_table

DOCUMENT: dict[str, Any] = {
    "format": "csv",
    "columns": {
        "account": "string",
        "booked": "timestamp",
        "line": "int",
        "amount": "decimal(10,2)",
        "text": "string",
        "kind": "string",
    },
    "session": "account",
    "key": ["booked", "line"],
    "order": ["booked", "line"],
    "body": ["text", "amount"],
    "type_column": "kind",
    "time": "booked",
}
HEADER = "booked,account,line,amount,text,kind"
GOOD = (
    '2026-01-02 03:04:05,acc-7,-2,1.50,"Zürich, first",account.add',
    "2026-01-02 03:04:05,acc-7,10,7,,account.add",
)
BAD = {
    "broken line": "2026-01-02 03:04:05,acc-7",
    "missing account": "2026-01-02 03:04:05, ,1,1,x,account.add",
    "missing line": "2026-01-02 03:04:05,acc-7,,1,x,account.add",
    "missing kind": "2026-01-02 03:04:05,acc-7,1,1,x,",
    "malformed booked": "yesterday,acc-7,1,1,x,account.add",
    "malformed amount": "2026-01-02 03:04:05,acc-7,1,lots,x,account.add",
    "overlong account": f"2026-01-02 03:04:05,{'a' * 129},1,1,x,account.add",
}
# Microseconds of the instant, and the numbers of the lines, with the sign taken out.
INSTANT = f"{2**63 + 1767323045000000:020}"
FOUND = [
    (
        "acc-7",
        '["2026-01-02 03:04:05","-2"]',
        [INSTANT, "09223372036854775806"],
        "account.add",
        '{"amount":1.50,"text":"Zürich, first"}',
        "2026-01-02T03:04:05",
    ),
    (
        "acc-7",
        '["2026-01-02 03:04:05","10"]',
        [INSTANT, "09223372036854775818"],
        "account.add",
        '{"amount":7.00,"text":null}',
        "2026-01-02T03:04:05",
    ),
]


def mapping(**changes: object) -> Mapping:
    """The mapping, but for some fields; None takes one away."""
    document = {name: value for name, value in (DOCUMENT | changes).items() if value is not None}
    return Mapping.of(document)


@pytest.mark.spark
def test_rows_become_facts_or_rejects_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "booked.csv"
    file.write_text("\n".join((HEADER, *GOOD, *BAD.values())) + "\n")

    found = mapped(read_mapped(spark, str(file), mapping()), mapping()).persist()

    facts = found.where("reason is null").select(*FACTS.names)
    assert_same_table(facts, spark.createDataFrame(FOUND, FACTS))
    rejected = found.where("reason is not null").collect()
    assert sorted(row["reason"] for row in rejected) == sorted(BAD)
    broken = next(row for row in rejected if row["reason"] == "broken line")
    assert json.loads(broken["row"])["broken_line"] == BAD["broken line"]


@pytest.mark.spark
def test_json_and_parquet_say_what_csv_says(spark: SparkSession, tmp_path: Path) -> None:
    csv = tmp_path / "booked.csv"
    csv.write_text("\n".join((HEADER, *GOOD)) + "\n")
    expected = spark.createDataFrame(FOUND, FACTS)
    columns = [f"cast({name} as {kind}) {name}" for name, kind in DOCUMENT["columns"].items()]
    typed = read_mapped(spark, str(csv), mapping()).selectExpr(*columns)
    typed.write.json(str(tmp_path / "json"))
    typed.write.parquet(str(tmp_path / "parquet"))

    for form in ("json", "parquet"):
        declared = mapping(format=form)
        facts = mapped(read_mapped(spark, str(tmp_path / form), declared), declared)
        assert_same_table(facts.select(*FACTS.names), expected)

    other = mapping(format="parquet", columns=DOCUMENT["columns"] | {"amount": "int"})
    with pytest.raises(SourceRefused, match=r"amount is decimal\(10,2\), not int"):
        read_mapped(spark, str(tmp_path / "parquet"), other)
    with pytest.raises(SourceRefused, match="lacks the columns colour; it has booked, account"):
        read_mapped(spark, str(csv), mapping(columns=DOCUMENT["columns"] | {"colour": "string"}))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"key": None, "body": None}, "lacks key, body"),
        ({"speed": 9}, "has no speed"),
        ({"format": "xlsx"}, "format 'xlsx' is none of csv, json, parquet"),
        ({"type": "account.add"}, "either type or type_column"),
        ({"order": "line"}, "order must be a list of columns, not 'line'"),
        ({"order": ["amount"]}, r"amount is decimal\(10,2\): that cannot be an order"),
        ({"body": ["colour"]}, "no type is declared for the columns colour"),
        ({"columns": {"account": "map<int,int>"}}, "'account' cannot have the type 'map<int,int>'"),
    ],
)
def test_a_mapping_that_cannot_be_used_is_refused(
    changes: dict[str, object], complaint: str
) -> None:
    with pytest.raises(MappingRefused, match=complaint):
        mapping(**changes)


def test_a_mapping_file_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(MappingRefused, match=r"cannot read .*nowhere\.json"):
        Mapping.read(tmp_path / "nowhere.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(MappingRefused, match="holds no JSON object"):
        Mapping.read(tmp_path / "list.json")
