"""Through real Spark: the second try of a task sends the same ids, numbers and bytes."""

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark.job.failures import find_root_cause
from spark.schemas import EVENTS
from spark.send.arranging import arrange_in_event_order
from spark.send.datasource import LockstepDataSource
from tests.spark.recording import POINTS, WITHIN, RecordingDataSource, recorded

pytestmark = pytest.mark.spark

FLEET = [f"N{number}" for number in range(8)]


def rows(spark: SparkSession) -> DataFrame:
    """Four events for each of eight aircraft."""
    return spark.createDataFrame(
        [
            (s, "flights", n, "flight.status", f'{{"n":{n}}}', f"{s}-{n}", f"2013-01-01T0{n}:00:00")
            for n in range(4)
            for s in FLEET
        ],
        EVENTS,
    )


def write(
    table: DataFrame, folder: Path, *, tries_lost: int = 0, point: str = WITHIN
) -> dict[str, int]:
    """Write through the recording data source; the counts the driver was told."""
    table.sparkSession.dataSource.register(RecordingDataSource)
    summary = folder / "counts.json"
    writer = table.write.format("lockstep_recording").mode("append")
    writer.options(
        LOCKSTEP_REGIONS="east",
        LOCKSTEP_QUEUE=tries_lost,
        LOCKSTEP_OUTPUT_QUEUE=point,
        ServiceBus_east="east",
        Cosmos=str(folder),
        batch=5,
        patience=0,
        summary=str(summary),
    ).save()
    counts: dict[str, int] = json.loads(summary.read_text())
    return counts


def test_the_second_try_sends_the_same_and_is_counted_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    counts = write(arrange_in_event_order(rows(spark), 2), tmp_path, tries_lost=1)

    first, second = recorded(tmp_path, 0), recorded(tmp_path, 1)
    assert 0 < len(first) < len(second) == 32
    assert all(message in second for message in first)
    assert sorted((message["session"], message["sequence"]) for message in second) == [
        (session, number) for session in FLEET for number in range(4)
    ]
    assert {message["body"] for message in second} == {'{"n":0}', '{"n":1}', '{"n":2}', '{"n":3}'}
    assert counts["sent"] == 32


@pytest.mark.parametrize("point", [point for point in POINTS if point != WITHIN])
def test_wherever_a_try_is_lost_the_next_one_sends_all_and_is_counted_once(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    counts = write(arrange_in_event_order(rows(spark), 1), tmp_path, tries_lost=1, point=point)

    first, second = recorded(tmp_path, 0), recorded(tmp_path, 1)
    assert all(message in second for message in first)
    for session in FLEET:
        assert [m["sequence"] for m in second if m["session"] == session] == [0, 1, 2, 3]
    assert counts["sent"] == len(second) == 32


def test_every_session_is_sent_in_its_order(spark: SparkSession, tmp_path: Path) -> None:
    write(arrange_in_event_order(rows(spark), 2), tmp_path)

    sent = recorded(tmp_path, 0)
    for session in FLEET:
        assert [m["sequence"] for m in sent if m["session"] == session] == [0, 1, 2, 3]


def test_a_write_fails_in_one_line_when_every_try_failed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException) as failure:
        write(arrange_in_event_order(rows(spark), 1), tmp_path, tries_lost=3)

    expected = "shared.domain.errors.OutcomeUnknown: both regions are out of reach"
    assert find_root_cause(failure.value) == expected
    assert len(recorded(tmp_path, 2)) > 0
    assert not (tmp_path / "counts.json").exists()


def test_rows_in_the_wrong_order_are_refused_before_they_are_sent(
    spark: SparkSession, tmp_path: Path
) -> None:
    disordered = (
        rows(spark).coalesce(1).sortWithinPartitions("session", "sequence", ascending=False)
    )

    with pytest.raises(PySparkException) as failure:
        write(disordered, tmp_path)

    assert "BrokenSequence: session 'N" in find_root_cause(failure.value)
    assert recorded(tmp_path, 0) == []


def test_a_table_that_is_not_events_is_refused_before_a_task_starts(spark: SparkSession) -> None:
    spark.dataSource.register(LockstepDataSource)
    table = rows(spark).drop("body").withColumnRenamed("time", "at")

    with pytest.raises(PySparkException) as failure:
        table.write.format("lockstep").mode("append").save()

    assert find_root_cause(failure.value).endswith(
        "SchemaRefused: not a table of events: no column 'body'; no column 'time'; "
        "unknown column 'at'"
    )
