"""What judging accepts, sending accepts: nothing is bound that the sending task would refuse."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.domain.message import BODY_BYTES_MAX
from spark.feeding import FeedConfig, FeedResult, feed
from spark.feeding.judging import ChangePolicies, judge_as_new, plan_events, select_unsendable
from spark.feeding.manifest import Manifest
from spark.read.facts import map_rows
from spark.read.mapping import SourceMapping
from spark.schemas import BROKEN_LINE, EVENTS, FACTS, PLAN
from spark.send.rows import build_messages
from tests.spark.bookings import GROUP, assert_same_table, bound, fact, stood
from tests.spark.recording import recorded

NAMES = ("account", "line", "kind", "at", "text")
GOOD = ("a", 1, "account.add", "2026-01-02T03:04:05Z", "x")
SAID: dict[str, Any] = {
    "format": "table",
    "columns": dict.fromkeys(NAMES, "string") | {"line": "int"},
    "session": "account",
    "key": ["line"],
    "order": ["line"],
    "body": ["text"],
    "type_column": "kind",
    "time": "at",
}
# Cells that sending refuses, each beside a good row, and what it says of them.
POISON: dict[str, tuple[dict[str, Any], str]] = {
    "a saga's session": ({"account": "saga:1"}, "session 'saga:1' is a saga's"),
    "a session of 65 emoji": ({"account": chr(0x1F6E9) * 65}, "the session has 130 characters"),
    "a type of the app": ({"kind": "lockstep.x"}, "type 'lockstep.x' is the app's own"),
    "a type of 257 characters": ({"kind": "t" * 257}, "the type has 257 characters, over 256"),
    "a type with a line break": ({"kind": "a\nb"}, "the type holds control characters"),
    "the year 0": ({"at": "0000-01-01"}, "the time is not in ISO 8601"),
    "the year 10000": ({"at": "+10000-01-01"}, "the time is not in ISO 8601"),
    "no time at all": ({"at": "yesterday"}, "the time is not in ISO 8601"),
    "only a clock": ({"at": "12:30"}, "the time is not in ISO 8601"),
    "a body that is too large": ({"text": "x" * BODY_BYTES_MAX}, "the body has 1000011 bytes"),
    # Under a million bytes, and over what a document takes with each letter as a number.
    "a body that is too large once escaped": ({"text": "ü" * 250_000}, "the body, escaped, is"),
}


def tabulate(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, ", ".join(f"{n} {SAID['columns'][n]}" for n in NAMES))


def feed_rows(
    spark: SparkSession, folder: Path, rows: list[tuple[Any, ...]], **options: Any
) -> FeedResult:
    told = {"manifest": str(folder / "manifest"), "rejects": str(folder / "rejects")} | options
    return feed(tabulate(spark, rows), SAID, FeedConfig(GROUP, **told))


def list_rejects(folder: Path) -> list[str]:
    files = sorted((folder / "rejects").glob("part-*.json"))
    return [json.loads(line)["reason"] for file in files for line in file.read_text().splitlines()]


def list_sent(sink: Path) -> list[tuple[str, int, str]]:
    return sorted((m["session"], m["sequence"], m["body"]) for m in recorded(sink))


def spoil(line: int, cells: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((dict(zip(NAMES, GOOD, strict=True)) | {"line": line} | cells).values())


def test_what_sending_refuses_is_a_reject_in_its_own_words_and_all_else_is_sent(
    spark: SparkSession, recorded_here: None, sink: Path, tmp_path: Path
) -> None:
    bad = [spoil(2 * n, cells) for n, (cells, _) in enumerate(POISON.values())]
    good = [spoil(2 * n + 1, {"text": f"good {n}"}) for n in range(len(POISON))]

    told = feed_rows(spark, tmp_path, [*bad, *good])

    assert {name: count for name, count in told.sending.standings.items() if count} == {
        "new": len(good),
        "unsendable": len(bad),
    }
    found = list_rejects(tmp_path)
    assert len(found) == len(bad)
    for _, words in POISON.values():
        assert any(f"unsendable: {words}" in reason for reason in found), words
    expected = [("a", n, f'{{"text":"good {n}"}}') for n in range(len(good))]
    assert list_sent(sink) == expected
    history = Manifest(spark, str(tmp_path / "manifest")).read_history()
    assert (history.newest, history.unsent) == (1, [])

    # Judged again, and found again; the numbers go on, also of another group.
    again = feed_rows(spark, tmp_path, [*bad, *good, spoil(999, {"text": "late"})])
    assert (again.sending.resumed, again.sending.counts.sent) == (0, 1)
    assert list_sent(sink) == [*expected, ("a", len(good), '{"text":"late"}')]


def test_what_sending_refuses_gets_no_number_and_leaves_no_gap(spark: SparkSession) -> None:
    facts = [fact("a", f"k{n}", f"{n:02}", n) for n in range(3)]
    refused = (*facts[1][:3], "lockstep.x", *facts[1][4:])
    judged = stood(spark, [facts[0], refused, facts[2]], [])

    found = plan_events(judged, GROUP, ChangePolicies())

    expected = [bound(facts[0], 0), bound(facts[2], 1)]
    assert_same_table(found, spark.createDataFrame(expected, PLAN))


@pytest.mark.parametrize("manifest", [None, "manifest"])
def test_a_table_of_nothing_sendable_is_rejected_whole_and_binds_nothing(
    spark: SparkSession, recorded_here: None, sink: Path, tmp_path: Path, manifest: str | None
) -> None:
    place = manifest and str(tmp_path / manifest)
    rows = [spoil(1, {"account": "saga:1"})]

    dry = feed_rows(spark, tmp_path, rows, manifest=place, dry_run=True)
    told = feed_rows(spark, tmp_path, rows, manifest=place)

    for each in (dry, told):
        assert each.sending.standings["unsendable"] == 1
        assert each.sending.counts.sent == 0
    assert len(list_rejects(tmp_path)) == 1
    assert list_sent(sink) == []
    if place:
        assert Manifest(spark, place).read_history().steps == ()


def test_without_a_manifest_too_numbers_have_no_gap_where_a_row_was_refused(
    spark: SparkSession, recorded_here: None, sink: Path, tmp_path: Path
) -> None:
    rows = [spoil(n, {"text": str(n)}) for n in range(3)]
    rows.insert(1, spoil(9, {"kind": "lockstep.x"}))

    told = feed_rows(spark, tmp_path, rows, manifest=None)

    assert (told.sending.standings, told.sending.counts.sent) == ({"unsendable": 1}, 3)
    assert list_rejects(tmp_path) == [
        "unsendable: type 'lockstep.x' is the app's own: nobody outside may send it"
    ]
    assert list_sent(sink) == [("a", n, f'{{"text":"{n}"}}') for n in range(3)]


ODD_TEXTS = (
    *("", " ", "saga:", "saga:x", "lockstep.", "lockstep.y", "$", "here:a", "\x00", "\n", "\u2028"),
    *("0000-01-01", "9999-12-31", "10000-01-01", "2026-W01-1", "20260102", "2026-02-30", "12:30"),
    *("2026-01-02 03:04:05.25", "2026-01-02T03:04:05+25:00", "NaN", "{", '"', "\\", "é", "\ufeff"),
)
CHARACTERS = "aZ09 :.-TZ\t\u0085\u00e9\u4e2d\U0001f6e9\U00010ffff"
KINDS = ("string", "date", "timestamp", "timestamp_ntz")
# A year that Spark can write and Python cannot read.
FAR = "timestamp_micros(253402300800000000 + {})"


def draw_text(random: Random) -> str | None:
    match random.randrange(8):
        case 0:
            return None
        case 1 | 2 | 3:
            return random.choice(ODD_TEXTS)
        case 4:
            # Around the limits of ids and types.
            length = random.choice((64, 65, 127, 128, 129, 255, 256, 257))
            return random.choice("aé\U0001f6e9") * length
        case _:
            return "".join(random.choices(CHARACTERS, k=random.randrange(1, 12)))


def draw_table(spark: SparkSession, random: Random, rows: int) -> tuple[DataFrame, SourceMapping]:
    kind = random.choice(KINDS)
    columns = dict.fromkeys(NAMES, "string") | {"line": "int", "at": kind}
    drawn = [
        tuple(random.randrange(5) if name == "line" else draw_text(random) for name in NAMES)
        for _ in range(rows)
    ]
    table = spark.createDataFrame(drawn, ", ".join(f"{n} {SAID['columns'][n]}" for n in NAMES))
    if kind != "string":
        far = F.expr(FAR.format(random.randrange(10**17)))
        at = F.when(F.rand(random.randrange(99)) < 0.5, far).otherwise(F.now())
        table = table.withColumn("at", at.cast(kind))
    mapping = SourceMapping.parse(SAID | {"columns": columns})
    return table.withColumn(BROKEN_LINE, F.lit(None).cast("string")), mapping


TABLES = [pytest.param(3, 300), pytest.param(40, 250, marks=pytest.mark.proof)]


@pytest.mark.parametrize(("tables", "rows"), TABLES)
def test_whatever_a_table_holds_what_judging_accepts_sending_accepts(
    spark: SparkSession, tables: int, rows: int
) -> None:
    seed = Random().randrange(10**9)
    random, accepted, refused = Random(seed), 0, 0
    for _ in range(tables):
        facts = map_rows(*draw_table(spark, random, rows)).where("reason is null")
        judged = judge_as_new(facts.select(*FACTS.names)).persist()
        planned = plan_events(judged, GROUP, ChangePolicies()).select(*EVENTS.names).collect()
        unsendable = select_unsendable(judged, GROUP, ChangePolicies()).collect()

        assert len(build_messages(planned)) == len(planned), seed
        assert len(planned) + len(unsendable) == judged.count(), seed
        numbers: dict[str, list[int]] = {}
        for event in planned:
            numbers.setdefault(event["session"], []).append(event["sequence"])
        assert all(sorted(each) == list(range(len(each))) for each in numbers.values()), seed
        judged.unpersist()
        accepted, refused = accepted + len(planned), refused + len(unsendable)
    assert accepted > 0 < refused, seed
