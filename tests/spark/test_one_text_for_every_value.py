"""A value has one text, whatever the session's zone and the hour are, and nothing of it is cut."""

import base64
import csv
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from local.cloud import Cloud
from spark.feeding import FeedConfig, feed
from spark.job.failures import JobRefused
from spark.read.facts import extract_facts, map_rows
from spark.read.mapping import SourceMapping
from spark.read.sources import filter_since, prepare_table, read_table
from tests.spark.bookings import DOCUMENT

# What is read of JSON in every run are numbers and nested columns; cells are texts in both.
JSON = pytest.param("json", marks=pytest.mark.proof)
# The zone whose summer is half an hour has all that the others have.
ZONES = [*(pytest.param(name, marks=pytest.mark.proof) for name in ("UTC", "America/New_York"))]
ZONES += [pytest.param("Australia/Lord_Howe")]
# A day and a half around each change of the clocks in these zones, and one before zones had names.
CHANGES = ["2026-03-08", "2026-03-29", "2026-04-04", "2026-10-03", "2026-10-25", "2026-11-01"]
DAYS = [datetime.fromisoformat(f"{day}T00:00:00+00:00") for day in (*CHANGES, "1850-01-01")]
INSTANTS = [
    day + timedelta(minutes=30 * n, microseconds=n * 250 * (n % 3))
    for day in DAYS
    for n in range(72)
]


@pytest.fixture(params=ZONES)
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def declare(form: str = "table", **named: str) -> SourceMapping:
    """A mapping of `account` and of these columns, of which all are in key, order and body."""
    roles = {name: named.pop(name) for name in ("time", "watermark", "lateness") if name in named}
    names = list(named)
    document = DOCUMENT | {"format": form, "key": names, "order": names, "body": names} | roles
    return SourceMapping.parse(document | {"columns": {"account": "string"} | named})


def tell(moment: datetime) -> str:
    """ISO 8601 with milliseconds, or microseconds if there are any."""
    spec = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    return moment.astimezone(UTC).isoformat(timespec=spec).removesuffix("+00:00")


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_a_time_is_the_same_text_in_every_zone_and_every_hour(
    spark: SparkSession, zone: str, kind: str
) -> None:
    shown = "Z" if kind == "timestamp" else ""
    table = spark.createDataFrame([(f"{tell(at)}{shown}",) for at in INSTANTS], "text string")
    table = table.select(F.lit("a").alias("account"), F.col("text").cast(kind).alias("at"))
    declared = declare(at=kind, time="at", watermark="at")

    found = map_rows(prepare_table(table, declared), declared).orderBy("place").collect()

    expected = [f"{tell(at)}{shown}" for at in sorted(INSTANTS)]
    assert [json.loads(row["body"])["at"] for row in found] == expected
    assert [row["time"] for row in found] == expected
    assert [row["watermark"] for row in found] == expected
    assert [row["reason"] for row in found] == [None] * len(INSTANTS)
    # A manifest of before, of a job whose zone was UTC, has the same keys.
    keys = [str(at.replace(tzinfo=None)) for at in sorted(INSTANTS)]
    read = [json.loads(row["key"])[0] for row in found]
    assert [str(datetime.fromisoformat(key)) for key in read] == keys
    assert not any(key.endswith(("0", "Z")) for key in read if "." in key)


@pytest.mark.parametrize("form", ["csv", JSON])
def test_a_time_without_a_zone_is_read_if_the_zone_has_it_once(
    spark: SparkSession, tmp_path: Path, zone: str, form: str
) -> None:
    walls = [at.replace(tzinfo=None) for at in INSTANTS]
    rows = [{"account": "a", "at": wall.isoformat(" ")} for wall in walls]
    table = read_table(spark, write(tmp_path, form, rows), declare(form, at="timestamp"))

    found = map_rows(table, declare(form, at="timestamp")).collect()

    told = {str(row["body"]): row["reason"] for row in found if row["reason"] is None}
    refused = {json.loads(row["row"])["at"]: row["reason"] for row in found if row["row"]}
    meant = {wall: find_instants(wall, zone) for wall in walls}
    bodies = {
        json.dumps({"at": tell(at[0]) + "Z"}, separators=(",", ":"))
        for at in meant.values()
        if len(at) == 1
    }
    assert set(told) == bodies
    assert refused == {
        wall.isoformat(" "): "malformed at" for wall, at in meant.items() if len(at) != 1
    }


def find_instants(wall: datetime, zone: str) -> list[datetime]:
    """The instants at which clocks of the zone show a time: none, one or two."""
    both = (wall.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1))
    shown = ZoneInfo(zone)
    return sorted({at for at in both if at.astimezone(shown).replace(tzinfo=None) == wall})


def write(folder: Path, form: str, rows: list[dict[str, Any]]) -> str:
    file = folder / f"in.{form}"
    with file.open("w", newline="", encoding="utf-8") as opened:
        if form == "json":
            opened.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(opened, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return str(file)


# Cells with their types, and the values in the body; None is a cell that is refused.
CELLS: list[tuple[str, str, object]] = [
    ("timestamp", "2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.123456Z"),
    ("timestamp", "2026-01-02 03:04:05.1234560000+02:00", "2026-01-02T01:04:05.123456Z"),
    ("timestamp", "2026-01-02 03:04:05 Europe/Paris", "2026-01-02T02:04:05.000Z"),
    ("timestamp", "2026-01-02", "2026-01-02T00:00:00.000Z"),
    ("timestamp", "2026-01-02T03:04:05.1234567Z", None),
    ("timestamp", "12:30", None),
    ("timestamp_ntz", "2026-01-02 03:04:05.5", "2026-01-02T03:04:05.500"),
    ("timestamp_ntz", "2026-01-02T03:04:05+02:00", None),
    ("timestamp_ntz", "2026-01-02T03:04:05Z", None),
    ("date", "2026-01-02", "2026-01-02"),
    ("date", "2026-01-02 00:00:00", "2026-01-02"),
    ("date", "2026-01-02 03:04:05", None),
    ("date", "202401", None),
    ("decimal(10,2)", "1.5", Decimal("1.50")),
    ("decimal(10,2)", "-1.5000", Decimal("-1.50")),
    ("decimal(10,2)", "1.505", None),
    ("decimal(10,2)", "1e-3", None),
    ("decimal(10,2)", "1.5055E1", None),
    ("decimal(10,2)", "1.55e1", Decimal("15.50")),
    (
        "decimal(38,18)",
        "12345678901234567890.123456789012345678",
        Decimal("12345678901234567890.123456789012345678"),
    ),
    ("string", "  ", "  "),
    ("string", " a ", " a "),
    ("int", "  ", "empty"),
]


@pytest.mark.parametrize("form", ["csv", JSON, pytest.param("table", marks=pytest.mark.proof)])
def test_a_cell_is_read_whole_or_refused(spark: SparkSession, tmp_path: Path, form: str) -> None:
    kinds = {f"c{n}": kind for n, (kind, _, _) in enumerate(CELLS)}
    columns = {"account": "string", "n": "int"} | kinds
    declared = SourceMapping.parse(
        DOCUMENT
        | {"format": form, "columns": columns, "key": ["n"], "order": ["n"], "body": [*kinds]}
    )
    blank = dict.fromkeys(kinds)
    rows = [
        {"account": "a", "n": n} | blank | {f"c{n}": text} for n, (_, text, _) in enumerate(CELLS)
    ]
    if form == "json":
        rows = [row for row in rows if row["c22"] is None]
    if form == "table":
        table = spark.createDataFrame(
            [tuple(None if v is None else str(v) for v in row.values()) for row in rows],
            ", ".join(f"{name} string" for name in columns),
        )
        table = prepare_table(table, declared)
    else:
        table = read_table(spark, write(tmp_path, form, rows), declared)

    found = map_rows(table, declared).collect()

    for row in found:
        n = int(json.loads(row["key"])[0])
        kind, text, value = CELLS[n]
        if value is None:
            assert row["reason"] == f"malformed c{n}", (kind, text)
        else:
            assert row["reason"] is None, (kind, text)
            body = json.loads(row["body"], parse_float=Decimal)
            expected = blank | ({} if value == "empty" else {f"c{n}": value})
            assert body == expected
            assert str(body[f"c{n}"]) == str(expected[f"c{n}"])
    assert len(found) == len(rows)


# Formats of data sets, with a cell as they have it and the value in the body; None is refused.
FORMATTED: list[tuple[str, str, str, object]] = [
    ("date", "MMM d yyyy", "Jan 1 2000", "2000-01-01"),
    ("date", "MMM d yyyy", "Foo 1 2000", None),
    ("timestamp_ntz", "yyyy/MM/dd HH:mm:ss", "2010/01/01 00:00:00", "2010-01-01T00:00:00.000"),
    ("date", "yyyy/MM/dd HH:mm:ss", "2010/01/01 00:00:00", "2010-01-01"),
    ("date", "yyyy/MM/dd HH:mm:ss", "2010/01/01 00:30:00", None),
    ("timestamp_ntz", "yyyy/MM/dd", "2010/02/31", None),
    ("timestamp_ntz", "yyyy/MM/dd", "2010/01/01 and more", None),
    ("timestamp_ntz", "d.M.yyyy HH:mm", "29.3.2026 02:30", "2026-03-29T02:30:00.000"),
    ("timestamp", "d.M.yyyy HH:mm", "29.3.2026 02:30", None),
    ("timestamp", "d.M.yyyy HH:mm", "25.10.2026 02:30", None),
    ("timestamp", "d.M.yyyy HH:mm XXX", "25.10.2026 02:30 +01:00", "2026-10-25T01:30:00.000Z"),
    (
        "timestamp",
        "d.M.yyyy HH:mm:ss.SSSSSS",
        "1.7.2026 02:30:00.000001",
        "2026-07-01T00:30:00.000001Z",
    ),
    ("timestamp", "yyyy-MM-dd'T'HH:mm", "2026-07-01T02:30", "2026-07-01T00:30:00.000Z"),
    ("decimal(12,2)", ",", "-1234,5", Decimal("-1234.50")),
    ("decimal(12,2)", ",", "1.234,50", None),
    ("decimal(12,2)", ",", "1234,505", None),
    ("double", ",", "0,25", Decimal("0.25")),
]


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
@pytest.mark.parametrize("form", ["csv", JSON])
def test_a_column_is_read_in_the_format_that_it_has(
    spark: SparkSession, tmp_path: Path, zone: str, form: str
) -> None:
    names = [f"c{n}" for n in range(len(FORMATTED))]
    kinds = {name: each[0] for name, each in zip(names, FORMATTED, strict=True)}
    document = {
        "format": form,
        "columns": {"account": "string", "n": "int"} | kinds,
        "formats": {name: each[1] for name, each in zip(names, FORMATTED, strict=True)},
    }
    roles = {"key": ["n"], "order": ["n"], "body": names}
    declared = SourceMapping.parse(DOCUMENT | document | roles)
    blank: dict[str, Any] = dict.fromkeys(names)
    rows = [
        {"account": "a", "n": n} | blank | {name: each[2]}
        for n, (name, each) in enumerate(zip(names, FORMATTED, strict=True))
    ]

    found = map_rows(read_table(spark, write(tmp_path, form, rows), declared), declared).collect()

    told = {int(json.loads(row["key"])[0]): row for row in found}
    for n, (name, each) in enumerate(zip(names, FORMATTED, strict=True)):
        body = json.loads(told[n]["body"], parse_float=Decimal)
        refused = None if each[3] is not None else f"malformed {name}"
        assert (told[n]["reason"], body) == (refused, blank | {name: each[3]}), each


NESTED = {
    "struct": "struct<when:timestamp,b:decimal(10,3),a:array<date>>",
    "array": "array<struct<at:timestamp_ntz,n:bigint>>",
    "map": "map<string,array<int>>",
    "days": "map<date,timestamp>",
    "binary": "binary",
    "flags": "array<boolean>",
}
NOON = datetime(2026, 10, 25, 0, 30, 0, 123456, tzinfo=UTC)
NESTED_ROWS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {
            "struct": (NOON, Decimal("1.500"), [date(2026, 1, 2), None]),
            "array": [(datetime.fromisoformat("2026-03-29T02:30"), 2**63 - 1), None],
            "map": {"b": [1, None], "a": [], "ü": None},
            "days": {date(2026, 1, 2): NOON, date(2025, 1, 2): None},
            "binary": b"\x00\xff\xfe",
            "flags": [True, False, None],
        },
        {
            "struct": {"a": ["2026-01-02", None], "b": Decimal("1.500"), "when": f"{tell(NOON)}Z"},
            "array": [{"at": "2026-03-29T02:30:00.000", "n": 2**63 - 1}, None],
            "map": {"a": [], "b": [1, None], "ü": None},
            "days": {"2025-01-02": None, "2026-01-02": f"{tell(NOON)}Z"},
            "binary": base64.b64encode(b"\x00\xff\xfe").decode(),
            "flags": [True, False, None],
        },
    ),
    (dict.fromkeys(NESTED), dict.fromkeys(NESTED)),
    (
        dict.fromkeys(NESTED) | {"struct": (None, None, []), "map": {}, "array": []},
        dict.fromkeys(NESTED)
        | {"struct": {"a": [], "b": None, "when": None}, "map": {}, "array": []},
    ),
]


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_nested_columns_are_json_with_every_digit_and_sorted_keys(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    """By way of Parquet that pyarrow wrote."""
    kinds: dict[str, pa.DataType] = {
        "struct": pa.struct(
            [
                ("when", pa.timestamp("us", tz="UTC")),
                ("b", pa.decimal128(10, 3)),
                ("a", pa.list_(pa.date32())),
            ]
        ),
        "array": pa.list_(pa.struct([("at", pa.timestamp("us")), ("n", pa.int64())])),
        "map": pa.map_(pa.string(), pa.list_(pa.int32())),
        "days": pa.map_(pa.date32(), pa.timestamp("us", tz="UTC")),
        "binary": pa.binary(),
        "flags": pa.list_(pa.bool_()),
    }
    given: dict[str, Any] = {
        name: [as_arrow(row[name]) for row, _ in NESTED_ROWS] for name in kinds
    }
    given["struct"] = [s and dict(zip(("when", "b", "a"), s, strict=True)) for s in given["struct"]]
    given["array"] = [
        rows and [at and dict(zip(("at", "n"), at, strict=True)) for at in rows]
        for rows in given["array"]
    ]
    columns = {name: pa.array(given[name], kind) for name, kind in kinds.items()}
    count = len(NESTED_ROWS)
    columns["account"], columns["n"] = pa.array(["a"] * count), pa.array(range(count), pa.int32())
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    document = {"columns": {"account": "string", "n": "int"} | NESTED, "body": list(NESTED)}
    roles = {"format": "parquet", "key": ["n"], "order": ["n"]}
    declared = SourceMapping.parse(DOCUMENT | document | roles)

    table = read_table(spark, str(tmp_path / "in.parquet"), declared)
    found = map_rows(table, declared).orderBy("place").collect()

    assert [row["reason"] for row in found] == [None] * count
    for row, (_, expected) in zip(found, NESTED_ROWS, strict=True):
        body = json.loads(row["body"], parse_float=Decimal)
        assert body == expected
        # Every object's keys are sorted, so a body has one text.
        again = json.dumps(
            json.loads(row["body"]), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        assert row["body"].replace("1.500", "1.5") == again
    assert '"b":1.500' in found[0]["body"]


def as_arrow(value: Any) -> Any:
    """A value as pyarrow takes it, with a map as pairs."""
    return list(value.items()) if isinstance(value, dict) else value


def test_nested_columns_of_json_are_read(spark: SparkSession, tmp_path: Path) -> None:
    value = {"a": [1, None], "b": {"x": "  ", "y": 0.25}}
    kinds = {"doc": "struct<b:map<string,string>,a:array<int>>"}
    text = {"a": [1, None], "b": {"x": "  ", "y": "0.25"}}
    rows = [{"account": "a", "doc": value}, {"account": "b", "doc": {"a": "no array"}}]
    roles = {"format": "json", "key": ["account"], "order": ["account"], "body": ["doc"]}
    document = DOCUMENT | {"columns": {"account": "string"} | kinds} | roles
    declared = SourceMapping.parse(document)

    found = map_rows(read_table(spark, write(tmp_path, "json", rows), declared), declared).collect()

    assert {row["session"]: row["reason"] for row in found} == {"a": None, "b": "broken line"}
    assert {"doc": text} in [json.loads(row["body"]) for row in found]

    with pytest.raises(JobRefused, match="doc is string, not struct"):
        prepare_table(spark.createDataFrame([("a", "{}")], "account string, doc string"), declared)
    undecodable = spark.sql(
        "select 'a' account, struct(map('x', cast(X'5afc' as string)) b, array(1) a) doc"
    )
    found = map_rows(prepare_table(undecodable, declared), declared).collect()
    assert [row["reason"] for row in found] == ["undecodable doc"]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("decimal(10,2)", marks=pytest.mark.proof),
        "decimal(38,10)",
        pytest.param("decimal(3,3)", marks=pytest.mark.proof),
    ],
)
def test_a_decimal_is_an_order_a_version_and_a_watermark(spark: SparkSession, kind: str) -> None:
    scale = int(kind.rstrip(")").split(",")[1])
    step = Decimal(1).scaleb(-scale)
    numbers = sorted([n * step for n in (-999, -100, -99, -10, -9, -1, 0, 1, 9, 10, 99, 100, 999)])
    if kind != "decimal(3,3)":
        numbers = [Decimal(-7000000), *numbers, Decimal(7000000)]
    rows = [("a", f"{n:f}") for n in reversed(numbers)]
    declared = declare(n=kind, watermark="n")
    table = prepare_table(spark.createDataFrame(rows, "account string, n string"), declared)

    source = extract_facts(table, declared)
    found = source.facts.orderBy("place").collect()
    source.release()

    read = [json.loads(row["body"], parse_float=Decimal)["n"] for row in found]
    assert [Decimal(n) for n in read] == numbers
    assert sorted(row["version"] for row in found) == [row["version"] for row in found]
    assert source.watermark is not None
    assert Decimal(source.watermark) == numbers[-1]
    left = filter_since(table, declared, source.watermark)
    assert [Decimal(row["n"]) for row in left.collect()] == numbers[-1:]
    late = declare(n=kind, watermark="n", lateness=f"{numbers[-1] - numbers[-2]:f}")
    left = filter_since(table, late, source.watermark)
    assert sorted(Decimal(row["n"]) for row in left.collect()) == numbers[-2:]


@pytest.mark.proof
def test_a_reader_finds_the_bytes_that_the_source_says(
    spark: SparkSession, tmp_path: Path, cloud: Cloud
) -> None:
    """Of plain azure-servicebus; the bodies are written out here from the cells."""
    told = [
        ("2026-11-01T05:30:00.000001Z", "1.10", "  "),
        ("2026-11-01T06:30:00.123Z", "-0.05", ' "a, b"\n'),
        ("2026-11-01T06:30:00.123400Z", "12345678.90", "Zürich 東京 \t"),
    ]
    rows = [dict(zip(("at", "n", "text"), row, strict=True)) | {"account": "a"} for row in told]
    columns = {"account": "string", "at": "timestamp", "n": "decimal(10,2)", "text": "string"}
    roles = {"key": ["at"], "order": ["n"], "body": ["at", "n", "text"], "time": "at"}
    declared = SourceMapping.parse(DOCUMENT | {"format": "csv", "columns": columns} | roles)
    spaces = {f"ServiceBus_{n}": each.connection_string for n, each in cloud.namespaces.items()}
    settings = spaces | {"Cosmos": cloud.cosmos.connection_string}
    settings["LOCKSTEP_REGIONS"] = ",".join(cloud.namespaces)
    options = FeedConfig("bank", rejects=str(tmp_path / "rejects"), settings=settings)
    table = read_table(spark, write(tmp_path, "csv", rows), declared)
    assert feed(table, declared, options).sending.counts.sent == len(told)

    with (
        ServiceBusClient.from_connection_string(spaces["ServiceBus_east"]) as client,
        client.get_queue_receiver("lockstep", session_id="a", max_wait_time=30) as receiver,
    ):
        found = [receiver.receive_messages(1, max_wait_time=30)[0] for _ in told]
        bodies = [b"".join(each.body).decode() for each in found]
        times = [(each.application_properties or {})[b"cloudEvents_time"] for each in found]

    in_order = sorted(told, key=lambda row: Decimal(row[1]))
    assert bodies == [
        f'{{"at":"{at}","n":{n},"text":{json.dumps(text, ensure_ascii=False)}}}'
        for at, n, text in in_order
    ]
    assert times == [at.encode() for at, _, _ in in_order]


def test_other_formats_and_options_mean_something_else() -> None:
    plain = declare("csv", at="date").describe("UTC")
    options = {"nullValue": "NA", "pathGlobFilter": "*.csv"}
    more = {"formats": {"at": "d.M.yyyy"}, "options": options}
    document = DOCUMENT | {"format": "csv", "columns": {"account": "string", "at": "date"}} | more
    roles = {"key": ["at"], "order": ["at"], "body": ["at"]}
    told = SourceMapping.parse(document | roles).describe("UTC")

    assert (plain["body"], told["body"]) == ("at date", "at date as d.M.yyyy")
    assert (plain["options"], told["options"]) == ("none", "nullValue 'NA'")


def test_numbers_of_json_keep_their_digits(spark: SparkSession, tmp_path: Path) -> None:
    numbers = ["1.50", "-0.05", "12345678901234567.12", "0.005"]
    lines = (f'{{"account": "a", "n": {n}}}\n' for n in numbers)
    (tmp_path / "in.json").write_text("".join(lines))
    document = {"format": "json", "columns": {"account": "string", "n": "decimal(19,2)"}}
    roles = {"key": ["n"], "order": ["account"], "body": ["n"]}
    declared = SourceMapping.parse(DOCUMENT | document | roles)

    found = map_rows(read_table(spark, str(tmp_path / "in.json"), declared), declared).collect()

    assert {row["body"]: row["reason"] for row in found} == {
        **{f'{{"n":{n}}}': None for n in numbers[:3]},
        '{"n":null}': "malformed n",
    }


@pytest.mark.parametrize("zone", ["America/New_York"], indirect=True)
def test_a_watermark_is_an_instant_in_the_hour_that_comes_twice(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    hours = [f"2026-11-01T0{hour}:30:00.000123Z" for hour in (4, 5, 6)]
    rows = [{"account": "a", "at": hour} for hour in hours]
    declared = declare("csv", at="timestamp", watermark="at")
    table = read_table(spark, write(tmp_path, "csv", rows), declared)

    source = extract_facts(table, declared)
    source.release()
    assert source.watermark == hours[-1]
    left = filter_since(table, declared, source.watermark)
    assert [row["at"] for row in left.collect()] == hours[-1:]
    # As a release of before wrote it: the first of the two, so none is left out.
    left = filter_since(table, declared, "2026-11-01 01:30:00.000123")
    assert [row["at"] for row in left.collect()] == hours[-2:]


def test_a_manifest_of_before_is_refused_by_name_only_where_its_texts_were_others() -> None:
    times, format_now = declare(at="timestamp"), "format 2, in UTC with all digits"
    assert times.describe("UTC")["times"] == format_now
    assert "times" not in declare(at="date").describe("Europe/Berlin")
    key_only = SourceMapping.parse(
        DOCUMENT | {"columns": {"account": "string", "line": "timestamp", "amount": "int"}}
    )
    assert "times" not in key_only.describe("UTC")
    assert key_only.describe("Europe/Berlin")["times"] == format_now
