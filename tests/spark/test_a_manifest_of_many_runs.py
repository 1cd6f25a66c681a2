"""Runs are summed up: what a feed sends is the same, however many runs there were before."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.feeding import manifest
from spark.feeding.judging import Standing
from spark.feeding.manifest import Manifest
from spark.job.files import SparkFiles
from tests.spark.test_feed_by_a_manifest import LINES, DriverKilled, job, run, sent, source

pytestmark = [pytest.mark.spark, pytest.mark.proof]


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    folder = tmp_path / "sent"
    folder.mkdir()
    return folder


def changed(amount: int) -> list[str]:
    """The lines, but for one: a run with one event."""
    return [LINES[0].replace(",0,2", f",{amount},2"), *LINES[1:]]


def feed(spark: SparkSession, folder: Path, lines: list[str]) -> dict[str, int]:
    """The standings of one feed."""
    return run(job(spark, folder), source(spark, folder, lines)).standings


def test_what_is_sent_after_summaries_is_what_would_be_sent_without(
    spark: SparkSession, tmp_path: Path, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 2)
    for amount in range(1, 7):
        feed(spark, tmp_path, changed(amount))

    history = job(spark, tmp_path).manifest.read_history()
    assert (history.newest, history.summarised, history.unsent) == (6, 6, [])
    assert history.find_watermark("bank", "booked") == "2026-01-05 00:00:00"
    assert history.find_meaning("bank", "booked") is not None
    assert sorted(f"{s.run} {s.step}" for s in history.steps) == sorted(
        f"{run} {step}" for run in range(1, 7) for step in ("planned", "sent")
    )
    assert job(spark, tmp_path).manifest.read_fed("bank", history).count() == 14
    sent(sink)

    # A change, an old state again, a new row, and one that comes late.
    lines = [*changed(1), "acc-0,50,5,2026-01-05 00:00:00", "acc-0,-1,5,2026-01-05 00:00:00"]
    found = feed(spark, tmp_path, lines)

    assert {name: count for name, count in found.items() if count} == {
        Standing.SAME: 8,
        Standing.CHANGED: 1,
        Standing.NEW: 1,
        Standing.LATE: 1,
    }
    assert sent(sink) == [
        ("acc-0", 8, '{"amount":5}'),
        ("acc-0", 9, '{"amount":1}'),
        ("acc-0", 10, '{"amount":5}'),
    ]


def test_the_last_two_summaries_are_kept_and_older_ones_removed(
    spark: SparkSession, tmp_path: Path, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 1)
    for amount in range(1, 5):
        feed(spark, tmp_path, changed(amount))

    for table in ("summaries", "summary"):
        assert job(spark, tmp_path).manifest.list_runs(table) == [3, 4]


def test_when_the_driver_dies_before_a_summary_counts_the_runs_themselves_are_read(
    spark: SparkSession, tmp_path: Path, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 2)
    create = SparkFiles.create

    def dies(files: SparkFiles, place: str, text: str) -> bool:
        if place.endswith("summary.json"):
            raise DriverKilled
        return create(files, place, text)

    feed(spark, tmp_path, changed(1))
    with monkeypatch.context() as patch:
        patch.setattr(SparkFiles, "create", dies)
        with pytest.raises(DriverKilled):
            feed(spark, tmp_path, changed(2))
    sent(sink)

    assert job(spark, tmp_path).manifest.read_history().summarised == 0
    assert feed(spark, tmp_path, changed(2))["unchanged"] == 9
    assert job(spark, tmp_path).manifest.read_history().summarised == 2
    assert feed(spark, tmp_path, changed(3))["changed"] == 1
    assert sent(sink) == [("acc-0", 4, '{"amount":3}')]


def test_runs_are_not_summed_up_while_one_is_unsent(
    spark: SparkSession, tmp_path: Path, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "mark_sent", lambda *_: None)
        patch.setattr(Manifest, "mark_lane_sent", lambda *_: None)
        feed(spark, tmp_path, changed(1))

    assert job(spark, tmp_path).manifest.read_history().summarised == 0
    sent(sink)
    assert run(job(spark, tmp_path), source(spark, tmp_path, changed(1))).resumed == 9
    assert len(sent(sink)) == 9


def test_of_two_feeds_that_sum_up_the_same_runs_one_summary_stays(
    spark: SparkSession, tmp_path: Path, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 2)
    feed(spark, tmp_path, changed(1))
    first, second = (job(spark, tmp_path).manifest for _ in range(2))
    create, has_come = SparkFiles.create, False

    def overtaken(files: SparkFiles, place: str, text: str) -> bool:
        nonlocal has_come
        if place.endswith("summary.json") and not has_come:
            has_come = True
            second.summarise()
        return create(files, place, text)

    monkeypatch.setattr(Manifest, "summarise", lambda _: None)
    feed(spark, tmp_path, changed(2))
    monkeypatch.undo()
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 2)
    monkeypatch.setattr(SparkFiles, "create", overtaken)
    first.summarise()

    folders: list[Any] = list((tmp_path / "manifest/summary/run=2").iterdir())
    document = json.loads((tmp_path / "manifest/summaries/run=2/summary.json").read_text())
    assert [folder.name for folder in folders] == [f"feed={document['feed']}"]
    assert document["feed"] == second.feed
