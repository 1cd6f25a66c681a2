"""Through real Structured Streaming: sorted batches, and a restart from the checkpoint."""

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from spark.job.failures import find_root_cause
from spark.job.settings import OptionRefused
from spark.schemas import EVENTS
from spark.send.datasource import LockstepDataSource
from tests.spark.recording import CLOSING, RecordingDataSource, recorded

pytestmark = pytest.mark.spark


def put(folder: Path, name: str, numbers: range) -> None:
    """A file of events, the newest first."""
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps(
            {
                "session": session,
                "group": "g",
                "sequence": n,
                "type": "t",
                "body": f'{{"n":{n}}}',
                "id": f"{session}-{n}",
            }
        )
        for n in reversed(numbers)
        for session in ("a", "b", "c")
    ]
    (folder / name).write_text("\n".join(lines) + "\n")


def follow(spark: SparkSession, folder: Path, *, tries_lost: int = 0) -> dict[str, int]:
    """Write all there is to the recording data source; what the last batch's summary says."""
    spark.dataSource.register(RecordingDataSource)
    sink, summary = folder / "sent", folder / "counts.json"
    sink.mkdir(exist_ok=True)
    rows = spark.readStream.schema(EVENTS).json(str(folder / "in")).repartition(1, "session")
    writer = rows.writeStream.format("lockstep_recording").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).options(
        LOCKSTEP_REGIONS="east",
        LOCKSTEP_QUEUE=tries_lost,
        LOCKSTEP_OUTPUT_QUEUE=CLOSING,
        ServiceBus_east="east",
        Cosmos=str(sink),
        summary=str(summary),
    )
    writer.start().awaitTermination()
    found: dict[str, int] = json.loads(summary.read_text())
    return found


def test_each_batch_is_sent_in_order_and_a_broken_one_again_from_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "in", "1.json", range(3))

    with pytest.raises(PySparkException) as failure:
        follow(spark, tmp_path, tries_lost=3)
    told = follow(spark, tmp_path)

    assert "both regions are out of reach" in find_root_cause(failure.value)
    # Whatever a broken try has sent, the last one sends all of it, in order.
    sent = recorded(tmp_path / "sent", 0)[-9:]
    places = [(message["session"], message["sequence"]) for message in sent]
    assert places == [(session, number) for session in ("a", "b", "c") for number in range(3)]
    assert {json.dumps(m) for m in recorded(tmp_path / "sent")} == {json.dumps(m) for m in sent}
    assert told == {"batch": 0, "sent": 9, "pending": 3}

    put(tmp_path / "in", "2.json", range(3, 5))
    assert follow(spark, tmp_path) == {"batch": 1, "sent": 6, "pending": 3}


def test_a_stream_is_checked_before_it_begins() -> None:
    source = LockstepDataSource({})

    with pytest.raises(OptionRefused, match="outputMode"):
        source.streamWriter(EVENTS, overwrite=True)
    with pytest.raises(ValueError, match="no column 'session'"):
        source.streamWriter(StructType([StructField("sequence", LongType())]), overwrite=False)
