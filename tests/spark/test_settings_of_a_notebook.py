"""A feed in a notebook: settings that come after Spark was started, and sessions of Connect."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame, SparkSession

from shared.domain.errors import InvalidOptions
from spark.feeding import ChangeLimit, ChangePolicy, FeedConfig, feed
from spark.feeding import dataframe as feeding
from spark.feeding.numbering import number_facts
from spark.job.failures import JobRefused
from spark.job.runtime import open_spark
from spark.job.settings import with_settings
from spark.schemas import FACTS
from spark.send.arranging import arrange_in_runs
from spark.send.datasource import EventWriter
from tests.spark.facts import GROUP, fact
from tests.spark.recording import RecordingDataSource, recorded
from tests.spark.test_a_table_that_is_no_files import ROWS, mapping


def events(spark: SparkSession, session: str) -> DataFrame:
    """Three events of a session."""
    facts = [fact(session, f"k{n}", f"{n:02}", n) for n in range(3)]
    return number_facts(spark.createDataFrame(facts, FACTS), GROUP)


def told(sink: Path) -> dict[str, str]:
    """Where the recording data source writes."""
    sink.mkdir()
    return {"LOCKSTEP_REGIONS": "east", "ServiceBus_east": "east", "Cosmos": str(sink)}


@pytest.mark.spark
def test_what_is_set_after_spark_was_started_is_seen(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in told(tmp_path / "sent").items():
        monkeypatch.setenv(name, value)
    table = spark.createDataFrame(ROWS, "account string, line int, amount int")
    monkeypatch.setattr(feeding, "EventWriter", partial(EventWriter, source=RecordingDataSource))

    feed(table, mapping("table"), FeedConfig(GROUP, rejects=str(tmp_path / "rejects")))
    spark.dataSource.register(with_settings(RecordingDataSource))
    own = arrange_in_runs(events(spark, "own"), 1).write.format("lockstep_recording")
    own.mode("append").save()

    found = sorted((m["session"], m["sequence"]) for m in recorded(tmp_path / "sent"))
    assert found == sorted([("a", 0), ("a", 1), ("b", 0), *(("own", n) for n in range(3))])


@pytest.mark.proof
@pytest.mark.spark
def test_two_feeds_at_the_same_time_send_with_the_settings_of_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [f"to-{n}" for n in range(4)]

    def send(name: str) -> None:
        writer = EventWriter(settings=told(tmp_path / name), source=RecordingDataSource)
        for _ in range(2):
            assert writer.send(events(spark, name), 3).sent == 3

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(send, names))

    found = {name: {m["session"] for m in recorded(tmp_path / name)} for name in names}
    assert found == {name: {name} for name in names}


class ConnectSession:
    """A session of Spark Connect, as far as it differs."""

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
        raise PySparkAttributeError("it depends on the JVM")


def test_a_session_without_a_driver_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", ConnectSession)

    with pytest.raises(JobRefused, match="session of Spark Connect"), open_spark(None):
        raise AssertionError("a job began")


def test_a_field_without_effect_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="late, changed_max would have no effect without"):
        FeedConfig(GROUP, late=ChangePolicy.REJECT, changed_max=ChangeLimit.parse("5%"))
    assert FeedConfig(GROUP, "fed", late=ChangePolicy.REJECT).late is ChangePolicy.REJECT
