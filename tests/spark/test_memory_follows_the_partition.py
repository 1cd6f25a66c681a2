"""Ten times the rows in one partition need no more memory: a task holds a buffer, not its data."""

import resource
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.domain.message import Message
from spark.send.arranging import arrange_in_runs
from spark.send.datasource import LockstepDataSource
from spark.send.rows import SendCounts, SendMessages

pytestmark = pytest.mark.spark

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
    """Write this process's peak of memory down."""
    file.write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


class WeighingDataSource(LockstepDataSource):
    """The product's data source but for its last step."""

    open_sender = staticmethod(weighing)

    @classmethod
    def name(cls) -> str:
        return "lockstep_weighing"


def events(spark: SparkSession, count: int) -> DataFrame:
    """So many events of a few sessions."""
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
    writer = (
        arrange_in_runs(events(spark, count), 1).write.format("lockstep_weighing").mode("append")
    )
    writer.options(LOCKSTEP_REGIONS="east", ServiceBus_east="east", Cosmos=str(file)).save()
    return int(file.read_text()) / 1024


@pytest.mark.proof
def test_ten_times_the_rows_need_no_more_memory(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(ROWS_HANDED_OVER, "500")
    few = peak_mib(spark, FEW, tmp_path / "few")
    many = peak_mib(spark, MANY, tmp_path / "many")
    spark.conf.unset(ROWS_HANDED_OVER)

    assert many - few < GROWTH_MIB_MAX, f"{few:.0f} MiB, then {many:.0f} MiB"
