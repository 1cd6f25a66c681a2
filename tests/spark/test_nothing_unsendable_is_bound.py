"""What judging accepts, sending accepts: nothing is bound that the sending task would refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.feeding import FeedConfig, FeedResult, feed
from spark.feeding.judging import ChangePolicies, plan_events
from spark.feeding.manifest import Manifest
from spark.schemas import PLAN
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
    "a body that is too large": ({"text": "x" * 250_000}, "the body has 250011 bytes, over 250000"),
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


WAYS = [("manifest", False), ("manifest", True), (None, False), (None, True)]


@pytest.mark.parametrize(
    ("manifest", "dry"),
    [WAYS[0], *(pytest.param(*way, marks=pytest.mark.proof) for way in WAYS[1:])],
)
def test_a_table_of_nothing_sendable_is_rejected_whole_and_binds_nothing(
    spark: SparkSession,
    recorded_here: None,
    sink: Path,
    tmp_path: Path,
    manifest: str | None,
    dry: bool,
) -> None:
    place = manifest and str(tmp_path / manifest)
    rows = [spoil(1, {"account": "saga:1"})]

    told = feed_rows(spark, tmp_path, rows, manifest=place, dry_run=dry)

    assert told.sending.standings["unsendable"] == 1
    assert told.sending.counts.sent == 0
    assert len(list_rejects(tmp_path)) == (0 if dry else 1)
    assert list_sent(sink) == []
    if place:
        assert Manifest(spark, place).read_history().steps == ()


@pytest.mark.proof
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
