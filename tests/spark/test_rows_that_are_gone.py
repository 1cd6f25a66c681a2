"""What was fed, and is gone from the source: counted or sent as deleted, once, and new again."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark import feed as job
from spark.feeding import ChangeLimit, DeletedPolicy, FeedConfig, FeedResult, feed
from spark.feeding.judging import ChangePolicies, classify_facts, plan_events
from spark.job.failures import JobRefused
from spark.read.mapping import SourceMapping
from spark.schemas import PLAN
from tests.spark.bookings import DOCUMENT, GROUP, SCHEMA, Fact, bound, fact, facts_of
from tests.spark.recording import recorded

MAPPING = DOCUMENT | {"deleted_type": "account.removed"}
ANY = ChangeLimit.parse("100%")
SEND: dict[str, Any] = {"deleted": DeletedPolicy.SEND, "changed_max": ANY}
ROWS = [("a", 1, 10), ("a", 2, 20), ("a", 3, 30), ("b", 1, 10)]
WITHOUT_A2 = [row for row in ROWS if row[:2] != ("a", 2)]

type Sent = tuple[str, int, str, str]
type BookingRow = tuple[str | None, int, int]


@pytest.fixture
def fed(spark: SparkSession, recorded_here: None, sink: Path, tmp_path: Path) -> "Fed":
    return Fed(spark, tmp_path, sink)


class Fed:
    """Feeds of one manifest, and what each of them sent."""

    def __init__(self, spark: SparkSession, folder: Path, sink: Path) -> None:
        self.spark, self.folder, self.sink = spark, folder, sink

    def __call__(
        self, rows: list[Any], mapping: dict[str, Any] = MAPPING, **options: Any
    ) -> tuple[FeedResult, list[Sent]]:
        told = {"manifest": str(self.folder / "manifest"), "rejects": str(self.folder / "rejects")}
        config = FeedConfig(GROUP, **(told | {"source": "bookings"} | options))
        result = feed(self.spark.createDataFrame(rows, SCHEMA), mapping, config)
        found = [(m["session"], m["sequence"], m["type"], m["body"]) for m in recorded(self.sink)]
        for file in self.sink.glob("*.jsonl"):
            file.unlink()
        return result, sorted(found)


def test_what_is_gone_is_judged_so_and_is_the_last_of_its_session(spark: SparkSession) -> None:
    body = F.concat(F.lit("["), "key", F.lit("]"))
    deletion = F.struct(F.lit("gone").alias("type"), body.alias("body"))
    first = {key: fact("a", key, f"{n}", n) for n, key in enumerate(("1", "2", "3"))}

    def removed(session: str, key: str, place: str) -> Fact:
        return (session, key, [place, ""], "gone", f"[{key}]", None, None)

    past = [
        *(bound(first[key], n) for n, key in enumerate(first)),
        bound(removed("a", "2", "2"), 3),
        bound(fact("b", "9", "5", 5), 0),
        bound(removed("b", "9", "5"), 1),
        bound(fact("b", "8", "6", 6), 2),
    ]
    # Of the first session the third is gone, the second is back, and there is a new one.
    now = facts_of(spark, [first["1"], first["2"], fact("a", "4", "3", 4)])
    plan = spark.createDataFrame(past, PLAN)
    policies = ChangePolicies(deleted=DeletedPolicy.SEND)

    judged = classify_facts(now, plan, deletion, finds_gone=True)

    assert {(row["session"], row["key"]): row["standing"] for row in judged.collect()} == {
        ("a", "1"): "unchanged",
        ("a", "2"): "late",
        ("a", "3"): "deleted",
        ("a", "4"): "new",
        ("b", "8"): "deleted",
    }
    rows = plan_events(judged, GROUP, policies).collect()
    assert sorted((row["session"], row["sequence"], row["body"]) for row in rows) == [
        ("a", 4, first["2"][4]),
        ("a", 5, '{"amount":4}'),
        ("a", 6, "[3]"),
        ("b", 3, "[8]"),
    ]
    assert {row["key"] for row in classify_facts(now, plan, deletion).collect()} == {"1", "2", "4"}


@pytest.mark.proof
def test_what_is_gone_is_sent_once_after_all_else_and_is_new_when_it_comes_back(fed: Fed) -> None:
    fed(ROWS)

    result, sent = fed([*WITHOUT_A2, ("a", 4, 40)], **SEND)
    assert sent == [
        ("a", 3, "account.add", '{"amount":40}'),
        ("a", 4, "account.removed", '{"line":2}'),
    ]
    assert (result.sending.standings["deleted"], result.sending.standings["new"]) == (1, 1)
    assert (result.rows.rows, result.rows.events) == (4, 4)

    result, sent = fed([*WITHOUT_A2, ("a", 4, 40)], **SEND)
    assert (sent, result.sending.standings["deleted"]) == ([], 0)

    # It says what it said before it was deleted, and no feed looks for deletions.
    back = [*ROWS, ("a", 4, 40)]
    result, sent = fed(back, changed="reject")
    assert sent == [("a", 5, "account.add", '{"amount":20}')]
    assert "deleted" not in result.sending.standings
    assert fed(back, **SEND)[1] == []

    # Gone again, it is sent again, and so is a session of which nothing is left.
    result, sent = fed([row for row in back if row[:2] not in {("a", 2), ("b", 1)}], **SEND)
    assert sent == [
        ("a", 6, "account.removed", '{"line":2}'),
        ("b", 1, "account.removed", '{"line":1}'),
    ]


@pytest.mark.proof
def test_a_report_counts_and_sends_nothing_and_needs_no_type(fed: Fed) -> None:
    fed(ROWS, DOCUMENT)
    for dry_run in (True, False):
        told: dict[str, Any] = {"deleted": DeletedPolicy.REPORT, "dry_run": dry_run}
        result, sent = fed(WITHOUT_A2, DOCUMENT, **told)
        assert (result.sending.standings["deleted"], sent) == (1, [])
    with pytest.raises(JobRefused, match="--deleted send needs a deleted_type in the mapping"):
        fed(WITHOUT_A2, DOCUMENT, **SEND)


@pytest.mark.proof
def test_what_may_be_a_mistake_is_refused_and_sends_nothing(fed: Fed) -> None:
    fed(ROWS)

    # Two of four are more than a tenth, as with a file that is cut off.
    alone: dict[str, Any] = {"deleted": DeletedPolicy.SEND}
    with pytest.raises(
        JobRefused, match=r"2 of 4 rows that were fed before are deleted, over 0\.1 "
    ):
        fed(ROWS[:2], **alone)
    with pytest.raises(JobRefused, match="2 of 4 rows that were fed before are deleted, over 1;"):
        fed(ROWS[:2], **alone, changed_max=ChangeLimit.parse("1"))
    with pytest.raises(JobRefused, match=r"1 rows are gone, but .* \(1 missing account\)"):
        fed([*WITHOUT_A2, (None, 2, 20)], **SEND)
    assert list(fed.sink.iterdir()) == []

    fed([("c", 1, 1)], source="others")
    with pytest.raises(JobRefused, match="bank has fed others too by this manifest"):
        fed(ROWS, **SEND)


@pytest.mark.proof
def test_every_type_of_key_is_said_as_its_rows_said_it(
    spark: SparkSession, recorded_here: None, sink: Path, tmp_path: Path
) -> None:
    kinds = ["int", "string", "boolean", "decimal(9,2)", "date", "timestamp", "timestamp_ntz"]
    columns = {f"k{n}": kind for n, kind in enumerate(kinds)}
    mapping = MAPPING | {"columns": {"account": "string", **columns}, "key": list(columns)}
    mapping |= {"order": ["k0"], "body": list(columns)}
    cells = ["7", 'say "a"', "true", "1.50", "2026-10-25", "2026-10-25T00:30:00.125Z"]
    cells.append("2026-10-25 02:30:00.000001")
    schema = ", ".join(f"{name} string" for name in ("account", *columns))
    table = spark.createDataFrame([("a", *cells), ("b", *cells)], schema)
    told: dict[str, Any] = {"manifest": str(tmp_path / "fed")}
    told["rejects"] = str(tmp_path / "rejects")

    feed(table, mapping, FeedConfig(GROUP, **told))
    feed(table.where("account = 'a'"), mapping, FeedConfig(GROUP, **told, **SEND))

    added, removed = ([m for m in recorded(sink) if m["type"].endswith(t)] for t in ("add", "ved"))
    assert [m["session"] for m in removed] == ["b"]
    assert {m["body"] for m in added} == {m["body"] for m in removed}
    assert json.loads(removed[0]["body"])["k5"] == "2026-10-25T00:30:00.125Z"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"deleted_type": "account.add"}, "deleted_type is the type of the rows"),
        ({"deleted_type": "lockstep.gone"}, "is the app's own"),
        ({"deleted_type": 5}, "deleted_type must be text, not 5"),
    ],
)
def test_a_type_that_cannot_be_meant_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(JobRefused, match=complaint):
        SourceMapping.parse(DOCUMENT | changes)


def test_a_source_that_is_not_read_whole_is_refused(
    spark: SparkSession, recorded_here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = MAPPING | {"watermark": "line"}
    told = FeedConfig(GROUP, str(tmp_path / "fed"), deleted=DeletedPolicy.REPORT)
    for mapping, is_batch in ((watched, False), (MAPPING, True)):
        with pytest.raises(JobRefused, match="--deleted needs a source that is read whole"):
            feed(spark.createDataFrame(ROWS, SCHEMA), mapping, told, is_batch=is_batch)

    words = ["--source=s", "--mapping=m", "--group=g", "--deleted=send"]
    for more, said in (
        ([], "--deleted would have no effect without --manifest"),
        (["--manifest=m", "--stream", "--checkpoint=c"], "and not for a stream"),
    ):
        with pytest.raises(SystemExit):
            job.main([*words, *more])
        assert said in capsys.readouterr().err
