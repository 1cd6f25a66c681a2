"""A run is sent in lanes of whole sessions in order; what was sent is left out later."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding.manifest import Manifest
from spark.schemas import EVENTS
from spark.send.arranging import RUN_EVENTS, arrange_in_event_order, arrange_in_runs, find_lane
from spark.send.datasource import EVENTS_A_LANE, LANES_MAX, EventWriter
from tests.spark.bookings import Bank, DriverKilled
from tests.spark.recording import recorded

LANES = 3
MANY_LINES = [f"acc-{n % 12},{n},{n},2026-01-01 00:00:00" for n in range(36)]


class DyingWriter(EventWriter):
    """Sends everything; the driver dies before it has noted that."""

    def send(self, rows: DataFrame, events: int) -> Any:
        super().send(rows, events)
        raise DriverKilled


def feed_until_death(bank: Bank, noted: Sequence[int]) -> None:
    """A feed whose driver has heard of the end of these lanes only."""
    mark = Manifest.mark_lane_sent

    def mark_noted(manifest: Manifest, step: Any, lane: int) -> None:
        if lane in noted:
            mark(manifest, step, lane)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Manifest, "mark_lane_sent", mark_noted)
        with pytest.raises(DriverKilled):
            bank.feed(MANY_LINES, DyingWriter, LANES)


@pytest.mark.proof
@pytest.mark.parametrize("noted", [[], [0], [1, 2], [0, 1, 2]])
def test_when_a_driver_dies_the_lanes_that_were_sent_are_left_out_and_the_others_sent_again(
    bank: Bank, sink: Path, noted: list[int]
) -> None:
    feed_until_death(bank, noted)
    lanes = {m["session"]: n for n in range(LANES) for m in recorded(sink, partition=n)}
    everything = bank.sent()
    assert len(everything) == 36

    # Another number of lanes would put the sessions into other tasks.
    result = bank.feed(MANY_LINES, lanes=5)

    left = [event for event in everything if lanes[event[0]] not in noted]
    assert (result.resumed, bank.sent()) == (len(left), left)
    assert result.standings["unchanged"] == 36
    assert bank.history.unsent == []
    assert not (bank.folder / "manifest/lanes/run=1").exists()


@pytest.mark.proof
def test_a_quiet_feed_too_records_its_lanes_while_it_sends(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []
    monkeypatch.setattr(Manifest, "mark_lane_sent", lambda *args: noted.append(args[2]))
    bank.feed(MANY_LINES, lanes=LANES)
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


DEEP, OTHERS, EACH = 600, 14, 100


def test_a_deep_session_takes_turns_with_the_others(spark: SparkSession) -> None:
    sessions = {"deep": DEEP} | {f"s{n:02}": EACH for n in range(OTHERS)}
    rows = [
        (session, "g", n, "t", "{}", f"{session}-{n}", None)
        for session, count in sessions.items()
        for n in reversed(range(count))
    ]

    lanes = arrange_in_runs(spark.createDataFrame(rows, EVENTS), 2).rdd.glom().collect()

    sent = [[(row["session"], row["sequence"]) for row in lane] for lane in lanes]
    assert sorted(place for lane in sent for place in lane) == sorted((r[0], r[2]) for r in rows)
    for lane in sent:
        for session in {session for session, _ in lane}:
            mine = [number for name, number in lane if name == session]
            assert mine == list(range(sessions[session]))
    deep = next(lane for lane in sent if ("deep", 0) in lane)
    others_end = max(place for place, (session, _) in enumerate(deep) if session != "deep")
    before = sum(1 for session, _ in deep[:others_end] if session == "deep")
    assert before <= EACH + RUN_EVENTS
