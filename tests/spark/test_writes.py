"""Writes through real Spark, in batch and as a stream: tries again, restarts, and little memory."""

import json
import resource
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType

from shared.domain.message import Message
from spark.job.failures import find_root_cause
from spark.job.settings import OptionRefused
from spark.schemas import EVENTS
from spark.send.arranging import arrange_in_event_order, arrange_in_runs
from spark.send.datasource import LockstepDataSource
from spark.send.observed import observe_sending
from spark.send.rows import SendCounts, SendMessages
from tests.spark.bookings import settings
from tests.spark.recording import CLOSING, POINTS, WITHIN, RecordingDataSource, recorded

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


def told(folder: Path, sink: Path, tries_lost: int, point: str) -> dict[str, Any]:
    """The options of a write that is recorded, and loses so many tries at a point."""
    lost = {"LOCKSTEP_QUEUE": tries_lost, "LOCKSTEP_OUTPUT_QUEUE": point}
    return settings(sink) | lost | {"summary": str(folder / "counts.json")}


def counted(folder: Path) -> Any:
    return json.loads((folder / "counts.json").read_text())


def write(
    table: DataFrame, folder: Path, tries_lost: int = 0, point: str = WITHIN
) -> dict[str, int]:
    """Write through the recording data source; the counts."""
    table.sparkSession.dataSource.register(RecordingDataSource)
    writer = table.write.format("lockstep_recording").mode("append")
    writer.options(**told(folder, folder, tries_lost, point), batch=5, patience=0).save()
    return dict(counted(folder))


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_wherever_a_try_is_lost_the_next_one_sends_all_in_order_and_is_counted_once(
    spark: SparkSession, tmp_path: Path, point: str, lanes: int
) -> None:
    counts = write(arrange_in_event_order(rows(spark), lanes), tmp_path, 1, point)

    first, second = recorded(tmp_path, 0), recorded(tmp_path, 1)
    assert all(message in second for message in first)
    assert 0 < len(first) < 32 or point != WITHIN
    for session in FLEET:
        mine = [(m["sequence"], m["body"]) for m in second if m["session"] == session]
        assert mine == [(n, f'{{"n":{n}}}') for n in range(4)]
    assert counts["sent"] == len(second) == 32


def test_a_write_fails_in_one_line_when_every_try_failed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException) as failure:
        write(arrange_in_event_order(rows(spark), 1), tmp_path, 3)

    expected = "shared.domain.errors.OutcomeUnknown: both regions are out of reach"
    assert find_root_cause(failure.value) == expected
    assert len(recorded(tmp_path, 2)) > 0
    assert not (tmp_path / "counts.json").exists()


def test_a_table_that_is_not_events_is_refused_before_a_task_starts(spark: SparkSession) -> None:
    spark.dataSource.register(LockstepDataSource)
    table = rows(spark).drop("body").withColumnRenamed("time", "at")

    with pytest.raises(PySparkException) as failure:
        table.write.format("lockstep").mode("append").save()

    assert find_root_cause(failure.value).endswith(
        "SchemaRefused: not a table of events: no column 'body'; no column 'time'; "
        "unknown column 'at'"
    )


def put(folder: Path, name: str, numbers: range) -> None:
    """A file of events, the newest first."""
    folder.mkdir(exist_ok=True)
    events = [
        {"session": session, "sequence": n, "body": f'{{"n":{n}}}', "id": f"{session}-{n}"}
        for n in reversed(numbers)
        for session in ("a", "b", "c")
    ]
    lines = [json.dumps(event | {"group": "g", "type": "t"}) + "\n" for event in events]
    (folder / name).write_text("".join(lines))


def follow(spark: SparkSession, folder: Path, sink: Path, tries_lost: int = 0) -> dict[str, int]:
    """Write all there is to the recording data source; what the last batch's summary says."""
    spark.dataSource.register(RecordingDataSource)
    rows = spark.readStream.schema(EVENTS).json(str(folder / "in")).repartition(1, "session")
    writer = rows.writeStream.format("lockstep_recording").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.options(**told(folder, sink, tries_lost, CLOSING)).start().awaitTermination()
    return dict(counted(folder))


def test_each_batch_is_sent_in_order_and_a_broken_one_again_from_the_checkpoint(
    spark: SparkSession, tmp_path: Path, sink: Path
) -> None:
    put(tmp_path / "in", "1.json", range(3))

    with pytest.raises(PySparkException) as failure:
        follow(spark, tmp_path, sink, tries_lost=3)
    summary = follow(spark, tmp_path, sink)

    assert "both regions are out of reach" in find_root_cause(failure.value)
    # Whatever a broken try has sent, the last one sends all of it, in order.
    sent = recorded(sink, 0)[-9:]
    places = [(message["session"], message["sequence"]) for message in sent]
    assert places == [(session, number) for session in ("a", "b", "c") for number in range(3)]
    assert {json.dumps(m) for m in recorded(sink)} == {json.dumps(m) for m in sent}
    quiet = {"repeated": 0, "busy_seconds": 0.0}
    assert summary == quiet | {"batch": 0, "sent": 9, "pending": 3}

    put(tmp_path / "in", "2.json", range(3, 5))
    assert follow(spark, tmp_path, sink) == quiet | {"batch": 1, "sent": 6, "pending": 3}


def test_the_progress_of_a_stream_that_is_observed_shows_what_each_batch_has_sent(
    spark: SparkSession, tmp_path: Path, sink: Path
) -> None:
    pytest.importorskip("pandas", reason="not run: Spark asks for pandas")
    put(tmp_path / "in", "1.json", range(3))
    rows = spark.readStream.schema(EVENTS).json(str(tmp_path / "in")).repartition(1, "session")

    counts = observe_sending(rows, source=RecordingDataSource, **settings(sink))
    writer = counts.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()

    progress = [row for each in query.recentProgress for row in each["observedMetrics"].values()]
    assert [row.asDict() for row in progress] == [
        {"sent": 9, "pending": 3, "repeated": 0, "busy_seconds": 0.0}
    ]
    places = [(each["session"], each["sequence"]) for each in recorded(sink)]
    assert places == [(session, number) for session in ("a", "b", "c") for number in range(3)]
    with pytest.raises(OptionRefused):
        observe_sending(rows, source=RecordingDataSource, speed="high", **settings(sink))


def test_a_stream_is_checked_before_it_begins() -> None:
    source = LockstepDataSource({})

    with pytest.raises(OptionRefused, match="outputMode"):
        source.streamWriter(EVENTS, overwrite=True)
    with pytest.raises(ValueError, match="no column 'session'"):
        source.streamWriter(StructType([StructField("sequence", LongType())]), overwrite=False)


SESSIONS, BODY_BYTES = 50, 4_000
FEW, MANY = 3_000, 30_000
# Python looks for garbage now and then, so there is some; the bodies alone are twice as much.
GROWTH_MIB_MAX = MANY * BODY_BYTES / 2**20 / 2
# Spark hands rows over in batches; they are to be many, whichever way the rows are held.
ROWS_HANDED_OVER = "spark.sql.execution.arrow.maxRecordsPerBatch"


@asynccontextmanager
async def weighing(settings: Mapping[str, str]) -> AsyncIterator[SendMessages]:
    """Sends nowhere; at the end writes down how much memory the worker has had at most, in KiB."""

    async def send(messages: Sequence[Message]) -> SendCounts:
        return SendCounts(len(messages), pending=0)

    yield send
    note(Path(settings["Cosmos"]))


def note(file: Path) -> None:
    file.write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


class WeighingDataSource(LockstepDataSource):
    """The product's data source but for its last step."""

    open_sender = staticmethod(weighing)

    @classmethod
    def name(cls) -> str:
        return "lockstep_weighing"


def large_events(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(
        F.concat(F.lit("acc-"), F.col("id") % SESSIONS).alias("session"),
        F.lit("bank").alias("group"),
        F.floor(F.col("id") / SESSIONS).alias("sequence"),
        F.lit("account.add").alias("type"),
        F.format_string('{"n":%d,"text":"' + "x" * BODY_BYTES + '"}', "id").alias("body"),
        F.sha2(F.col("id").cast("string"), 256).alias("id"),
        F.lit(None).cast("string").alias("time"),
    )


def peak_mib(spark: SparkSession, count: int, file: Path) -> float:
    """What the worker of a write of so many events has needed at most."""
    spark.dataSource.register(WeighingDataSource)
    rows = arrange_in_runs(large_events(spark, count), 1)
    rows.write.format("lockstep_weighing").mode("append").options(**settings(file)).save()
    return int(file.read_text()) / 1024


@pytest.mark.proof
def test_ten_times_the_rows_need_no_more_memory(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(ROWS_HANDED_OVER, "500")
    few = peak_mib(spark, FEW, tmp_path / "few")
    many = peak_mib(spark, MANY, tmp_path / "many")
    spark.conf.unset(ROWS_HANDED_OVER)

    assert many - few < GROWTH_MIB_MAX, f"{few:.0f} MiB, then {many:.0f} MiB"
