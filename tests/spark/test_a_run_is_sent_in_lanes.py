"""A run is sent in lanes, and what a feed has sent of it before it died is left out by the next."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding.manifest import Manifest
from spark.schemas import EVENTS
from spark.send.arranging import arrange_in_event_order, arrange_in_runs, find_lane
from spark.send.datasource import EVENTS_A_LANE, LANES_MAX, EventWriter
from tests.spark.recording import recorded
from tests.spark.test_feed_by_a_manifest import DriverKilled, job, run, sent, source

pytestmark = pytest.mark.spark

LANES = 3
LINES = [f"acc-{n % 12},{n},{n},2026-01-01 00:00:00" for n in range(36)]


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    folder = tmp_path / "sent"
    folder.mkdir()
    return folder


class DyingWriter(EventWriter):
    """Sends everything; the driver dies before it has noted that."""

    def send(self, rows: DataFrame, events: int) -> Any:
        super().send(rows, events)
        raise DriverKilled


def feed_until_death(spark: SparkSession, folder: Path, noted: Sequence[int]) -> None:
    """A feed whose driver has heard of the end of these lanes only."""
    mark = Manifest.mark_lane_sent

    def mark_noted(manifest: Manifest, step: Any, lane: int) -> None:
        if lane in noted:
            mark(manifest, step, lane)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Manifest, "mark_lane_sent", mark_noted)
        dying = job(spark, folder, DyingWriter)
        dying = replace(dying, writer=replace(dying.writer, lanes=LANES))
        with pytest.raises(DriverKilled):
            run(dying, source(spark, folder, LINES))


@pytest.mark.proof
@pytest.mark.parametrize("noted", [[], [0], [1, 2], [0, 1, 2]])
def test_when_a_driver_dies_the_lanes_that_were_sent_are_left_out_and_the_others_sent_again(
    spark: SparkSession, tmp_path: Path, sink: Path, noted: list[int]
) -> None:
    feed_until_death(spark, tmp_path, noted)
    lanes = {m["session"]: int(file.name.partition("-")[0]) for file, m in read_lanes(sink)}
    everything = sent(sink)
    assert len(everything) == 36

    # Another number of lanes would put the sessions into other tasks.
    other = job(spark, tmp_path)
    other = replace(other, writer=replace(other.writer, lanes=5))
    result = run(other, source(spark, tmp_path, LINES))

    left = [event for event in everything if lanes[event[0]] not in noted]
    assert (result.resumed, sent(sink)) == (len(left), left)
    assert result.standings["unchanged"] == 36
    assert job(spark, tmp_path).manifest.read_history().unsent == []
    assert not (tmp_path / "manifest/lanes/run=1").exists()


def read_lanes(sink: Path) -> list[tuple[Path, Any]]:
    """Each message with the file of the task that sent it, which has its partition's number."""
    found = []
    for file in sink.glob("*.jsonl"):
        alone = sink / "alone"
        alone.mkdir()
        file.rename(alone / file.name)
        found += [(file, each) for each in recorded(alone)]
        (alone / file.name).rename(file)
        alone.rmdir()
    return found


def test_a_quiet_feed_too_records_its_lanes_while_it_sends(
    spark: SparkSession, tmp_path: Path, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []
    monkeypatch.setattr(Manifest, "mark_lane_sent", lambda *args: noted.append(args[2]))
    quiet = job(spark, tmp_path)
    quiet = replace(quiet, writer=replace(quiet.writer, lanes=LANES))
    run(quiet, source(spark, tmp_path, LINES))
    assert sorted(noted) == [0, 1, 2]


@pytest.mark.parametrize("arrange", [arrange_in_runs, arrange_in_event_order])
def test_a_session_s_lane_is_the_partition_that_spark_puts_it_in(
    spark: SparkSession, arrange: Any
) -> None:
    rows = [(f"s-{n % 40} é", "bank", n // 40, "t", "1", f"i-{n}", None) for n in range(200)]
    arranged = arrange(spark.createDataFrame(rows, EVENTS), 7)
    found = arranged.select(F.spark_partition_id().alias("is"), find_lane(7).alias("lane"))
    assert {(row["is"], row["lane"]) for row in found.collect()} == {(n, n) for n in range(7)}


@pytest.mark.parametrize(
    ("lanes", "rate", "events", "chosen"),
    [
        (None, None, 0, 1),
        (None, None, 1, 1),
        (None, None, EVENTS_A_LANE + 1, 2),
        (None, None, 10**9, LANES_MAX),
        (40, None, 1, 40),
        # A rate is shared by tasks that run at the same time: this Spark has two cores.
        (None, 10.0, 10**9, 2),
        (40, 10.0, 1, 40),
    ],
)
def test_the_number_of_lanes_follows_from_the_events_and_not_from_the_cluster(
    spark: SparkSession, lanes: int | None, rate: float | None, events: int, chosen: int
) -> None:
    assert EventWriter(rate=rate, lanes=lanes).choose_lanes(spark, events) == chosen
