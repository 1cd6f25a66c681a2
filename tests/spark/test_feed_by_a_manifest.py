"""Feeds of one source over time: nothing twice, exactly what moved, whatever was cut short."""

import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark import feed
from spark.feeding import ChangeLimit, FeedConfig
from spark.feeding import dataframe as feeding
from spark.feeding.incremental import IncrementalFeed, SendResult
from spark.feeding.manifest import Manifest
from spark.feeding.rejects import account_for_rows
from spark.job.console import JobConsole
from spark.job.failures import JobRefused
from spark.read.facts import SourceFacts, extract_facts
from spark.read.mapping import SourceMapping
from spark.read.sources import filter_since, read_table
from spark.send.datasource import EventWriter
from tests.spark.recording import RecordingDataSource, recorded

pytestmark = pytest.mark.spark

DOCUMENT: dict[str, Any] = {
    "format": "csv",
    "columns": {"account": "string", "line": "int", "amount": "int", "seen": "timestamp"},
    "session": "account",
    "key": ["line"],
    "order": ["line"],
    "body": ["amount"],
    "type": "account.add",
    "watermark": "seen",
}
LINES = [f"acc-{n % 3},{n},{n * 10},2026-01-0{1 + n % 5} 00:00:00" for n in range(9)]


class DriverKilled(BaseException):
    """The driver is gone."""


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """The folder in which what is sent is recorded."""
    folder = tmp_path / "sent"
    folder.mkdir()
    return folder


def settings(folder: Path) -> dict[str, str]:
    """What the recording data source is told."""
    sink = str(folder / "sent")
    return {"LOCKSTEP_REGIONS": "east", "ServiceBus_east": "east", "Cosmos": sink} | {
        "LOCKSTEP_QUEUE": "0"
    }


def source(
    spark: SparkSession, folder: Path, lines: list[str], mark: str | None = None
) -> SourceFacts:
    """These lines as the job reads them; a new file each time, as a job is a new process."""
    file = folder / f"booked-{len(list(folder.glob('booked-*')))}.csv"
    file.write_text("\n".join(["account,line,amount,seen", *lines]) + "\n")
    mapping = SourceMapping.parse(DOCUMENT)
    return extract_facts(
        filter_since(read_table(spark, str(file), mapping), mapping, mark), mapping
    )


def job(
    spark: SparkSession, folder: Path, writer: type[EventWriter] = EventWriter, **options: Any
) -> IncrementalFeed:
    """The feed, with everything of its own in a folder."""
    manifest = str(folder / "manifest")
    return IncrementalFeed(
        Manifest(spark, manifest),
        FeedConfig("bank", manifest, "booked", str(folder / "rejects"), **options),
        writer(settings=settings(folder), source=RecordingDataSource),
        JobConsole("feed", is_quiet=True),
    )


def run(by_manifest: IncrementalFeed, facts: SourceFacts) -> SendResult:
    return by_manifest.run(facts, account_for_rows(facts, by_manifest.options.rejects))


def sent(sink: Path) -> list[tuple[str, int, str]]:
    """What has been sent since the last look, in the order of sessions and numbers."""
    found = [(m["session"], m["sequence"], m["body"]) for m in recorded(sink)]
    for file in sink.glob("*.jsonl"):
        file.unlink()
    return sorted(found)


def test_a_second_run_sends_nothing_and_three_changed_rows_are_three_events(
    spark: SparkSession, tmp_path: Path, sink: Path
) -> None:
    first = run(job(spark, tmp_path), source(spark, tmp_path, LINES))
    assert first.counts.sent == len(sent(sink)) == 9

    again = run(job(spark, tmp_path), source(spark, tmp_path, LINES))
    assert again.counts.sent == 0
    assert again.standings["unchanged"] == 9
    assert sent(sink) == []

    changed = [*LINES]
    for place in (1, 3, 7):
        changed[place] = changed[place].replace(f",{place * 10},", ",999,")
    third = run(job(spark, tmp_path), source(spark, tmp_path, changed))

    assert third.counts.sent == 3
    assert sent(sink) == [
        ("acc-0", 3, '{"amount":999}'),
        ("acc-1", 3, '{"amount":999}'),
        ("acc-1", 4, '{"amount":999}'),
    ]


class CachedTables(EventWriter):
    """Sends, and notes which tables are cached meanwhile."""

    seen: ClassVar[list[set[int]]] = []

    def send(self, rows: DataFrame, events: int) -> Any:
        """Send a plan."""
        self.seen.append(cached_tables(rows.sparkSession))
        return super().send(rows, events)


def cached_tables(spark: SparkSession) -> set[int]:
    """Spark's numbers of what is cached, which only Java tells."""
    return set(spark.sparkContext._jsc.getPersistentRDDs())


def test_nothing_of_the_source_is_cached_any_more_while_its_events_are_sent(
    spark: SparkSession, tmp_path: Path, sink: Path
) -> None:
    before = cached_tables(spark)
    facts = source(spark, tmp_path, LINES)
    by_manifest = job(spark, tmp_path, CachedTables)
    counts = account_for_rows(facts, by_manifest.options.rejects)
    assert cached_tables(spark) - before

    by_manifest.run(facts, counts)

    assert [seen - before for seen in CachedTables.seen] == [set()]
    assert len(sent(sink)) == 9


class KilledWriter(EventWriter):
    """A driver that is killed when everything, or nothing, was sent."""

    has_sent = False

    def send(self, rows: DataFrame, events: int) -> Any:
        """Perhaps send, and never come back."""
        if self.has_sent:
            super().send(rows, events)
        raise DriverKilled


class KilledWriterAfterSending(KilledWriter):
    """Killed between write and commit."""

    has_sent = True


@pytest.mark.parametrize(
    "killed", [KilledWriter, pytest.param(KilledWriterAfterSending, marks=pytest.mark.proof)]
)
def test_a_run_whose_driver_was_killed_is_sent_first_byte_for_byte(
    spark: SparkSession,
    tmp_path: Path,
    sink: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed: type[KilledWriter],
) -> None:
    # Nobody has heard of the end of a lane: see test_a_run_is_sent_in_lanes.
    monkeypatch.setattr(Manifest, "mark_lane_sent", lambda *_: None)
    with pytest.raises(DriverKilled):
        run(job(spark, tmp_path, killed), source(spark, tmp_path, LINES[:6]))
    before = sent(sink)
    # The source moves on before anybody looks after the broken run.
    changed = [LINES[0].replace(",0,2", ",777,2"), *LINES[1:]]

    told = run(job(spark, tmp_path), source(spark, tmp_path, changed))

    after = sent(sink)
    assert set(before) < set(after)
    assert told.resumed == 6
    assert ("acc-0", 0, '{"amount":0}') in after
    assert ("acc-0", 2, '{"amount":777}') in after
    assert len({(session, number) for session, number, _ in after}) == len(after) == 10
    assert job(spark, tmp_path).manifest.read_history().unsent == []


@pytest.mark.proof
def test_a_plan_that_was_never_bound_is_replaced(
    spark: SparkSession, tmp_path: Path, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise DriverKilled

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "write_step", dies)
        with pytest.raises(DriverKilled):
            run(job(spark, tmp_path), source(spark, tmp_path, LINES))
    assert sent(sink) == []

    told = run(job(spark, tmp_path), source(spark, tmp_path, LINES[:4]))

    assert (told.counts.sent, told.resumed) == (4, 0)
    assert len(sent(sink)) == 4
    manifest = job(spark, tmp_path).manifest
    assert manifest.read_fed("bank", manifest.read_history()).count() == 4


@pytest.mark.proof
def test_from_the_watermark_on_only_newer_rows_are_read(
    spark: SparkSession, tmp_path: Path, sink: Path
) -> None:
    run(job(spark, tmp_path), source(spark, tmp_path, LINES))
    mark = job(spark, tmp_path).manifest.read_history().find_watermark("bank", "booked")
    newer = ["acc-0,90,1,2026-02-01 00:00:00", "acc-0,91,2,2025-12-01 00:00:00"]
    sent(sink)

    moved = source(spark, tmp_path, [*LINES, *newer], mark)

    assert mark == "2026-01-05 00:00:00"
    assert sorted(row["key"] for row in moved.facts.collect()) == ['["4"]', '["90"]']
    assert run(job(spark, tmp_path), moved).counts.sent == 1
    assert sent(sink) == [("acc-0", 3, '{"amount":1}')]
    assert (
        job(spark, tmp_path).manifest.read_history().find_watermark("bank", "booked")
        == "2026-02-01 00:00:00"
    )


@pytest.mark.proof
def test_a_folder_is_followed_and_files_that_come_later_are_fed(
    spark: SparkSession, tmp_path: Path, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "open_spark", lambda _master: nullcontext(spark))
    recording = partial(EventWriter, settings=settings(tmp_path), source=RecordingDataSource)
    monkeypatch.setattr(feeding, "EventWriter", recording)
    for name, value in settings(tmp_path).items():
        monkeypatch.setenv(name, value)
    folder, mapping, summary = (tmp_path / name for name in ("in", "mapping.json", "sum.json"))
    folder.mkdir()
    mapping.write_text(json.dumps(DOCUMENT | {"format": "json"}))
    objects = [json_of(*line.split(",")) for line in LINES]
    words = [
        f"--source={folder}",
        f"--mapping={mapping}",
        f"--summary={summary}",
        "--stream",
        "--group=bank",
    ]
    words += [f"--{name}={tmp_path / name}" for name in ("manifest", "checkpoint", "rejects")]

    told = []
    for number, part in enumerate((objects[:6], objects[4:], [])):
        if part:
            (folder / f"{number}.json").write_text("\n".join(part) + "\n")
        assert feed.main(words) == 0
        told.append(json.loads(summary.read_text()))

    assert [(each["rows"], each["sent"]) for each in told] == [(6, 6), (5, 3), (0, 0)]
    assert [number for session, number, _ in sent(sink) if session == "acc-2"] == [0, 1, 2]
    history = job(spark, tmp_path).manifest.read_history()
    assert (history.newest, history.unsent) == (2, [])


@pytest.mark.proof
def test_two_groups_and_two_sources_of_one_manifest_have_their_own_watermarks(
    spark: SparkSession, tmp_path: Path, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "open_spark", lambda _master: nullcontext(spark))
    recording = partial(EventWriter, settings=settings(tmp_path), source=RecordingDataSource)
    monkeypatch.setattr(feeding, "EventWriter", recording)
    for name, value in settings(tmp_path).items():
        monkeypatch.setenv(name, value)
    mapping, summary = tmp_path / "mapping.json", tmp_path / "sum.json"
    mapping.write_text(json.dumps(DOCUMENT))
    # The second source has other sessions, and all its rows but the last are older.
    second = [line.replace("acc", "other") for line in LINES]
    for name, lines in (("one.csv", [*LINES[5:], LINES[4]]), ("two.csv", second)):
        (tmp_path / name).write_text("\n".join(["account,line,amount,seen", *lines]) + "\n")

    told = []
    for name, group in (("one", "a"), ("two", "a"), ("one", "b"), ("two", "a"), ("one", "b")):
        words = [f"--source={tmp_path / name}.csv", f"--group={group}", f"--mapping={mapping}"]
        words += [f"--{place}={tmp_path / place}" for place in ("manifest", "rejects")]
        assert feed.main([*words, f"--summary={summary}"]) == 0
        told.append(json.loads(summary.read_text()))
        sent(sink)

    assert [each["sent"] for each in told] == [5, 9, 5, 0, 0]
    assert [each["rows"] for each in told] == [5, 9, 5, 1, 1]


@pytest.mark.proof
def test_a_mapping_that_means_something_else_is_refused_with_the_difference(
    spark: SparkSession, tmp_path: Path, sink: Path
) -> None:
    run(job(spark, tmp_path), source(spark, tmp_path, LINES))
    sent(sink)
    booked = source(spark, tmp_path, LINES)
    assert booked.meaning is not None
    meant = dict(booked.meaning)
    told = {
        "body": "body was amount int, is amount bigint",
        "time zone": "time zone was UTC, is CET",
        "key": "key was line int, is id int",
    }

    for name, other in (("body", "amount bigint"), ("time zone", "CET"), ("key", "id int")):
        with pytest.raises(JobRefused, match=told[name]):
            run(job(spark, tmp_path), replace(booked, meaning=meant | {name: other}))
    assert sent(sink) == []

    assert run(job(spark, tmp_path), booked)
    wider = meant | {"body": "amount bigint"}
    line = replace(source(spark, tmp_path, [LINES[0].replace(",0,2", ",5,2")]), meaning=wider)
    assert run(job(spark, tmp_path, accept_mapping=True), line).counts.sent == 1
    with pytest.raises(JobRefused, match="body was amount bigint, is amount int"):
        run(job(spark, tmp_path), booked)


@pytest.mark.proof
def test_more_changed_rows_than_the_limit_send_nothing(
    spark: SparkSession, tmp_path: Path, sink: Path
) -> None:
    run(job(spark, tmp_path), source(spark, tmp_path, LINES))
    sent(sink)
    changed = [LINES[0].replace(",0,2", ",7,2"), LINES[1].replace(",10,2", ",7,2"), *LINES[2:]]
    limits = {"1": False, "2": True, "22%": False, "23%": True}

    for text, is_sent in limits.items():
        feeding_job = job(spark, tmp_path, changed_max=ChangeLimit.parse(text))
        if is_sent:
            run(feeding_job, source(spark, tmp_path, changed))
            assert len(sent(sink)) == 2
            changed = [line.replace(",7,2", ",8,2") for line in changed]
        else:
            with pytest.raises(JobRefused, match=r"2 of 9 rows .* are changed"):
                run(feeding_job, source(spark, tmp_path, changed))
            assert sent(sink) == []


@pytest.mark.parametrize("text", ["", "%", "-1", "5.5", "101%", "five", "1e3%"])
def test_a_limit_is_a_whole_number_or_a_share(text: str) -> None:
    with pytest.raises(ValueError, match="a whole number, or a share"):
        ChangeLimit.parse(text)


def json_of(account: str, line: str, amount: str, seen: str) -> str:
    """A line of the source as an object."""
    return json.dumps({"account": account, "line": int(line), "amount": int(amount), "seen": seen})
