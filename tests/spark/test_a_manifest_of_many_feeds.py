"""A manifest of many runs, which are summed up, and of two feeds at the same time."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding import manifest
from spark.feeding.judging import Standing
from spark.feeding.manifest import Manifest
from spark.feeding.numbering import number_facts
from spark.job.failures import JobRefused
from spark.job.files import SparkFiles
from spark.read.facts import SourceFacts
from spark.schemas import REJECTED_ROWS
from spark.send.datasource import EventWriter
from tests.spark.bookings import GROUP, LINES, Bank, DriverKilled, fact, facts_of
from tests.spark.recording import recorded


def changed(amount: int) -> list[str]:
    """The lines, but for one: a run with one event."""
    return [LINES[0].replace(",0,2", f",{amount},2"), *LINES[1:]]


@pytest.mark.proof
def test_what_is_sent_after_summaries_is_what_would_be_sent_without(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 2)
    for amount in range(1, 7):
        bank.feed(changed(amount))

    history = bank.history
    assert (history.newest, history.summarised, history.unsent) == (6, 6, [])
    assert history.find_watermark("bank", "booked") == "2026-01-05T00:00:00.000Z"
    assert history.find_meaning("bank", "booked") is not None
    assert sorted(f"{s.run} {s.step}" for s in history.steps) == sorted(
        f"{run} {step}" for run in range(1, 7) for step in ("planned", "sent")
    )
    assert bank.manifest.read_fed("bank", history).count() == 14
    bank.sent()

    # A change, an old state again, a new row, and one that comes late.
    lines = [*changed(1), "acc-0,50,5,2026-01-05 00:00:00", "acc-0,-1,5,2026-01-05 00:00:00"]
    found = bank.feed(lines).standings

    assert {name: count for name, count in found.items() if count} == {
        Standing.SAME: 8,
        Standing.CHANGED: 1,
        Standing.NEW: 1,
        Standing.LATE: 1,
    }
    assert bank.sent() == [
        ("acc-0", 8, '{"amount":5}'),
        ("acc-0", 9, '{"amount":1}'),
        ("acc-0", 10, '{"amount":5}'),
    ]


@pytest.mark.proof
def test_the_last_two_summaries_are_kept_and_older_ones_removed(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 1)
    for amount in range(1, 5):
        bank.feed(changed(amount))

    for table in ("summaries", "summary"):
        assert bank.manifest.list_runs(table) == [3, 4]


@pytest.mark.proof
def test_when_the_driver_dies_before_a_summary_counts_the_runs_themselves_are_read(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 2)
    create = SparkFiles.create

    def dies(files: SparkFiles, place: str, text: str) -> bool:
        if place.endswith("summary.json"):
            raise DriverKilled
        return create(files, place, text)

    bank.feed(changed(1))
    with monkeypatch.context() as patch:
        patch.setattr(SparkFiles, "create", dies)
        with pytest.raises(DriverKilled):
            bank.feed(changed(2))
    bank.sent()

    assert bank.history.summarised == 0
    assert bank.feed(changed(2)).standings["unchanged"] == 9
    assert bank.history.summarised == 2
    assert bank.feed(changed(3)).standings["changed"] == 1
    assert bank.sent() == [("acc-0", 4, '{"amount":3}')]


@pytest.mark.proof
def test_runs_are_not_summed_up_while_one_is_unsent(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "mark_sent", lambda *_: None)
        patch.setattr(Manifest, "mark_lane_sent", lambda *_: None)
        bank.feed(changed(1))

    assert bank.history.summarised == 0
    bank.sent()
    assert bank.feed(changed(1)).resumed == 9
    assert len(bank.sent()) == 9


@pytest.mark.proof
def test_of_two_feeds_that_sum_up_the_same_runs_one_summary_stays(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 2)
    bank.feed(changed(1))
    first, second = (bank.manifest for _ in range(2))
    create, has_come = SparkFiles.create, False

    def overtaken(files: SparkFiles, place: str, text: str) -> bool:
        nonlocal has_come
        if place.endswith("summary.json") and not has_come:
            has_come = True
            second.summarise()
        return create(files, place, text)

    monkeypatch.setattr(Manifest, "summarise", lambda _: None)
    bank.feed(changed(2))
    monkeypatch.undo()
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 2)
    monkeypatch.setattr(SparkFiles, "create", overtaken)
    first.summarise()

    path = bank.folder / "manifest"
    document = json.loads((path / "summaries/run=2/summary.json").read_text())
    assert document["feed"] == second.feed
    assert [folder.name for folder in (path / "summary/run=2").iterdir()] == [f"feed={second.feed}"]


def booked(spark: SparkSession, count: int) -> SourceFacts:
    """So many bookings of three accounts, as a source without a mapping."""
    facts = [fact(f"acc-{n % 3}", f"k{n}", f"{n:02}", n) for n in range(count)]
    table = facts_of(spark, facts)
    rejects = spark.createDataFrame([], REJECTED_ROWS)
    repeated = spark.createDataFrame([], "session string, row string")
    return SourceFacts(table, table, rejects, repeated, F.expr("true"), ())


@pytest.mark.proof
def test_a_feed_that_begins_while_another_sends_goes_on_from_its_numbers(
    bank: Bank, spark: SparkSession, sink: Path
) -> None:
    class Overtaken(EventWriter):
        """Sends only after another feed has come and gone."""

        def send(self, rows: DataFrame, events: int) -> Any:
            told.append(bank.feed(booked(spark, 6)))
            return super().send(rows, events)

    told: list[Any] = []
    told.append(bank.feed(booked(spark, 4), Overtaken))

    assert [(each.resumed, each.counts.sent) for each in told] == [(4, 6), (0, 4)]
    said = {(m["session"], m["sequence"]): set[str]() for m in recorded(sink)}
    for message in recorded(sink):
        said[message["session"], message["sequence"]].add(message["body"])
    assert said == {(f"acc-{n % 3}", n // 3): {f'{{"amount":{n}}}'} for n in range(6)}
    assert (bank.history.newest, bank.history.unsent) == (2, [])


@pytest.mark.proof
def test_of_two_feeds_that_plan_one_run_the_second_is_refused_by_the_first_s_name(
    bank: Bank, spark: SparkSession
) -> None:
    first, second = (bank.manifest for _ in range(2))
    plan, other = (
        number_facts(facts_of(spark, [fact("a", "k", "01", amount)]), GROUP) for amount in (1, 2)
    )

    events = first.write_plan(1, plan), second.write_plan(1, other)
    assert events == (1, 1)
    bound = first.bind(1, 1, None)
    with pytest.raises(JobRefused) as refused:
        second.bind(1, 1, None)

    assert f"in use: the feed {first.feed} has bound run 1 at {bound.since}" in str(refused.value)
    assert first.feed != second.feed
    fed = second.read_fed(GROUP, bank.history).collect()
    assert [row["body"] for row in fed] == ['{"amount":1}']
    assert first.bind(1, 1, None).events == 1, "its own name, asked for twice, is its own"


def test_a_name_is_given_to_one_writer_and_its_file_is_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    files, place = SparkFiles(spark), f"file://{tmp_path}/steps/step.json"

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: files.create(place, f'{{"writer": {n}}}'), range(8)))

    assert won.count(True) == 1
    assert json.loads((tmp_path / "steps/step.json").read_text()) == {"writer": won.index(True)}
    assert [file.name for file in (tmp_path / "steps").iterdir()] == ["step.json"]


def open_lake(scheme: str) -> tuple[SparkFiles, MagicMock]:
    """Files on a file system of Hadoop's that lets nothing be replaced, and that itself."""
    lake, spark, taken = MagicMock(), MagicMock(), set[str]()
    lake.getUri().getScheme.return_value = scheme
    # What is there may come between this answer and the rename.
    lake.exists.return_value = False

    def rename(_draft: MagicMock, target: MagicMock) -> bool:
        is_free = target.place not in taken
        taken.add(target.place)
        return is_free

    def parse_path(place: str) -> MagicMock:
        return MagicMock(place=place, **{"getFileSystem.return_value": lake})

    lake.rename.side_effect = rename
    spark.sparkContext._jvm.org.apache.hadoop.fs.Path = parse_path
    return SparkFiles(spark), lake


def test_a_file_system_that_gives_a_name_twice_is_refused(spark: SparkSession) -> None:
    with pytest.raises(JobRefused, match="viewfs:/steps is on viewfs"):
        open_lake("viewfs")[0].require_exclusive("viewfs:/steps")
    with pytest.raises(JobRefused, match='No FileSystem for scheme "nowhere"'):
        Manifest(spark, "nowhere://steps").require_exclusive()


def test_a_plain_path_is_refused_where_each_machine_has_a_disk_of_its_own() -> None:
    files, _ = open_lake("file")
    files.spark.sparkContext.master = "spark://head:7077"

    with pytest.raises(JobRefused, match="fed/bookings is a path on the disk of each machine of s"):
        files.require_exclusive("fed/bookings")

    files.require_exclusive("file:///shared/fed")
    files.spark.sparkContext.master = "local[2]"
    files.require_exclusive("fed/bookings")


def test_in_a_lake_a_name_that_is_taken_refuses_the_rename() -> None:
    files, lake = open_lake("abfss")
    files.require_exclusive("abfss://lake/steps")

    won = [files.create("abfss://lake/steps/step.json", text) for text in ("first", "second")]

    assert won == [True, False]
    assert [write.args for write in lake.create().write.mock_calls] == [(b"first",), (b"second",)]
    assert lake.delete.call_count == 2, "a draft is removed whether it was renamed or not"
