"""Rows of any table as facts, by a declared mapping; of one key the newest counts."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.job.failures import JobRefused
from spark.read.facts import map_rows
from spark.read.mapping import SourceMapping
from spark.read.sources import filter_since, read_table, stream_table
from spark.schemas import BROKEN_LINE, FACTS
from tests.spark.bookings import COLUMNS, DOCUMENT, assert_same_table

BOOKED: dict[str, Any] = {
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
SHARED = BOOKED["columns"] | {"share": "double", "photo": "binary"}
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
    # A byte that is no UTF-8, as surrogateescape has it.
    "undecodable text": "2026-01-02 03:04:05,acc-7,2,1,Z\udcfcrich,account.add",
    "repeated key": '2026-01-02 03:04:05,acc-7,10,8,"Zürich, again",account.add',
}
# Microseconds of the instant, and the numbers of the lines, with the sign taken out.
INSTANT = f"{2**63 + 1767323045000000:020}"
FOUND = [
    (
        "acc-7",
        f'["2026-01-02 03:04:05","{line}"]',
        [INSTANT, f"{2**63 + line:020}"],
        "account.add",
        body,
        "2026-01-02T03:04:05.000Z",
        None,
    )
    for line, body in (
        (-2, '{"amount":1.50,"text":"Zürich, first"}'),
        (10, '{"amount":7.00,"text":null}'),
    )
]


def mapping(**changes: object) -> SourceMapping:
    """The mapping, but for some fields; None takes one away."""
    document = {name: value for name, value in (BOOKED | changes).items() if value is not None}
    return SourceMapping.parse(document)


def test_rows_become_facts_or_rejects_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "booked.csv"
    lines = "\n".join((HEADER, *GOOD, *BAD.values())) + "\n"
    file.write_bytes(lines.encode(errors="surrogateescape"))

    found = map_rows(read_table(spark, str(file), mapping()), mapping()).persist()

    facts = found.where("reason is null").select(*FACTS.names)
    assert_same_table(facts, spark.createDataFrame(FOUND, FACTS))
    rejected = found.where("reason is not null").collect()
    assert sorted(row["reason"] for row in rejected) == sorted(BAD)
    broken = next(row for row in rejected if row["reason"] == "broken line")
    assert json.loads(broken["row"])["broken_line"] == BAD["broken line"]


def test_json_and_parquet_say_what_csv_says(spark: SparkSession, tmp_path: Path) -> None:
    csv = tmp_path / "booked.csv"
    csv.write_text("\n".join((HEADER, *GOOD)) + "\n")
    expected = spark.createDataFrame(FOUND, FACTS)
    columns = [f"cast({name} as {kind}) {name}" for name, kind in BOOKED["columns"].items()]
    typed = read_table(spark, str(csv), mapping()).selectExpr(*columns)
    typed.write.json(str(tmp_path / "json"))
    typed.write.parquet(str(tmp_path / "parquet"))

    for form in ("json", "parquet"):
        declared = mapping(format=form)
        facts = map_rows(read_table(spark, str(tmp_path / form), declared), declared)
        assert_same_table(facts.select(*FACTS.names), expected)

    # The bytes of a text in Parquet are not looked at by whoever writes them.
    broken = typed.withColumn("text", F.expr("cast(X'5afc' as string)"))
    broken.write.parquet(str(tmp_path / "broken"))
    declared = mapping(format="parquet")
    checked = map_rows(read_table(spark, str(tmp_path / "broken"), declared), declared).collect()
    assert {row["reason"] for row in checked} == {"undecodable text"}

    other = mapping(format="parquet", columns=BOOKED["columns"] | {"amount": "int"})
    with pytest.raises(JobRefused, match=r"amount is decimal\(10,2\), not int"):
        read_table(spark, str(tmp_path / "parquet"), other)
    formatted = mapping(format="parquet", formats={"booked": "yyyy"})
    for read_any in (read_table, stream_table):
        with pytest.raises(JobRefused, match="format of booked would have no effect on timestamp"):
            read_any(spark, str(tmp_path / "parquet"), formatted)
    with pytest.raises(JobRefused, match="lacks the columns colour; it has booked, account"):
        read_table(spark, str(csv), mapping(columns=BOOKED["columns"] | {"colour": "string"}))


@pytest.mark.parametrize(
    ("kind", "lateness", "found"),
    [
        ("timestamp", None, ["2026-01-10", "2026-01-11", None]),
        ("timestamp", "36 hours", ["2026-01-09", "2026-01-10", "2026-01-11", None]),
        ("date", "2 days", ["2026-01-08", "2026-01-09", "2026-01-10", "2026-01-11", None]),
    ],
)
def test_rows_that_come_late_are_read_as_far_back_as_they_may_be_late(
    spark: SparkSession, kind: str, lateness: str | None, found: list[str | None]
) -> None:
    days = [("2026-01-07",), ("2026-01-08",), ("2026-01-09",), ("2026-01-10",), ("2026-01-11",)]
    table = spark.createDataFrame([*days, (None,)], "booked string")
    declared = mapping(
        columns=BOOKED["columns"] | {"booked": kind}, watermark="booked", lateness=lateness
    )

    read = filter_since(table, declared, "2026-01-10")

    assert [row["booked"] for row in read.collect()] == found


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"key": None, "body": None}, "lacks key, body"),
        ({"speed": 9}, "has no speed"),
        ({"format": "xlsx"}, "format 'xlsx' is none of csv, json, parquet"),
        ({"type": "account.add"}, "either type or type_column"),
        ({"order": "line"}, "order must be a list of columns, not 'line'"),
        (
            {"format": "table", "columns": SHARED, "order": ["share"]},
            "share is double: that cannot be an order",
        ),
        (
            {"format": "table", "columns": SHARED, "key": ["photo"]},
            "photo is binary: only a body can hold that",
        ),
        ({"body": ["colour"]}, "no type is declared for the columns colour"),
        ({"lateness": "2 days"}, "lateness needs a watermark"),
        ({"watermark": "line", "lateness": "2 days"}, "that is int cannot be '2 days' late"),
        ({"watermark": "booked", "lateness": "2"}, "that is timestamp cannot be '2' late"),
        ({"options": {"Mode": "DROPMALFORMED"}}, "the options Mode are the feed's own"),
        ({"options": ["sep"]}, "options must be an object"),
        ({"options": {"dateFormat": "d"}}, "options dateFormat would have no effect on csv"),
        ({"options": {"timestampFormat": "d", "sep": ";"}}, "options timestampFormat would have"),
        ({"options": {"timeZone": "CET"}, "format": "json"}, "no effect on json; .* in formats"),
        ({"options": {"seperator": ";"}}, "options seperator would have no effect"),
        ({"formats": ["yyyy"]}, "formats must give columns their format"),
        ({"formats": {"colour": "yyyy"}}, "no type is declared for the columns colour"),
        ({"formats": {"text": "yyyy"}}, "text is string, which has no format"),
        ({"formats": {"amount": "0.0"}}, r'amount, a decimal\(10,2\), can only be ","'),
        ({"formats": {"booked": "HH:mm"}}, "a date pattern of Spark's with a year"),
        ({"formats": {"booked": "yyyy 'at"}}, "a date pattern of Spark's with a year"),
        ({"formats": {"booked": "YYYY ww"}}, "a date pattern of Spark's with a year"),
        ({"formats": {"booked": "yyyy.SSSSSSSSS"}}, "a date pattern of Spark's with a year"),
        (
            {"columns": BOOKED["columns"] | {"booked": "date"}, "formats": {"booked": "yyyy X"}},
            "booked is date: the zone that its format names would be dropped",
        ),
        ({"session": 5}, "session must be text, not 5"),
        ({"body": ["text", "text"]}, "body names text more than once"),
        ({"time": "line"}, "line is int: a time is string, date, timestamp, timestamp_ntz"),
        ({"time": "amount"}, r"amount is decimal\(10,2\): a time is string"),
        ({"type_column": None, "type": "lockstep.x"}, "'lockstep.x' is the app's own"),
        ({"type_column": None, "type": "t" * 257}, "the type has 257 characters, over 256"),
        ({"version": "age"}, "no type is declared for the columns age"),
        (
            {"format": "table", "columns": SHARED, "version": "share"},
            "share is double: that cannot be an order",
        ),
        ({"watermark": "amount", "lateness": "2 days"}, r"that is decimal\(10,2\) cannot be '2"),
        ({"columns": {"a.b": "string"}}, "cannot be mapped under the name 'a.b'"),
        ({"columns": {"broken_line": "string"}}, "under the name 'broken_line'"),
        ({"columns": {"account": "interval"}}, "'account' cannot have the type 'interval'"),
        ({"columns": {"tags": "map<int,int>"}}, "tags is map<int,int>: no cell of csv can hold"),
        (
            {"format": "json", "columns": {"tags": "struct<date:int,at:array<timestamp>>"}},
            "in json a timestamp within it would be cut; declare it as a string",
        ),
    ],
)
def test_a_mapping_that_cannot_be_used_is_refused(
    changes: dict[str, object], complaint: str
) -> None:
    with pytest.raises(JobRefused, match=complaint):
        mapping(**changes)


def test_columns_may_have_the_names_that_the_feed_uses_itself(spark: SparkSession) -> None:
    names = ("row", "fact", "watermark", "reason", "session", "a column")
    table = spark.createDataFrame(
        [tuple(n * 2 for n in names)], ", ".join(f"`{n}` string" for n in names)
    )
    declared = mapping(
        columns=dict.fromkeys(names, "string"),
        session="session",
        key=["row", "a column"],
        order=["fact"],
        body=["reason", "watermark"],
        type_column="a column",
        time=None,
    )

    found = map_rows(
        table.withColumn("broken_line", F.lit(None).cast("string")), declared
    ).collect()

    key, body = '["rowrow","a columna column"]', '{"reason":"reasonreason","watermark":'
    assert [(row["session"], row["key"], row["body"], row["reason"]) for row in found] == [
        ("sessionsession", key, body + '"watermarkwatermark"}', None)
    ]


def test_a_mapping_file_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(JobRefused, match=r"cannot read .*nowhere\.json"):
        SourceMapping.read(tmp_path / "nowhere.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(JobRefused, match="holds no JSON object"):
        SourceMapping.read(tmp_path / "list.json")


VERSIONED = DOCUMENT | {"columns": COLUMNS | {"seen": "int", "rev": "int"}}
type Cells = tuple[str | None, ...]


def outcomes(spark: SparkSession, rows: list[Cells], **more: str) -> list[tuple[str, str | None]]:
    """Each row's body with the reason of its rejection, sorted."""
    columns = ", ".join(f"{name} string" for name in (*VERSIONED["columns"], BROKEN_LINE))
    table = spark.createDataFrame([(*row, None) for row in rows], columns)
    found = map_rows(table, SourceMapping.parse(VERSIONED | more)).collect()
    return sorted(((row["body"], row["reason"]) for row in found), key=str)


# The amounts neither rise nor fall with age, and 10 is after 9 only as a number.
STATES: list[Cells] = [
    ("a", "1", "50", "9", "1"),
    ("a", "1", "70", "10", "3"),
    ("a", "1", "40", "8", "2"),
]


def test_of_the_rows_with_one_key_the_newest_is_the_fact(spark: SparkSession) -> None:
    for more in ({"watermark": "seen"}, {"version": "rev"}):
        assert outcomes(spark, STATES, **more) == [
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
