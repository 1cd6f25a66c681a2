"""What a write is told: options, and the settings that a notebook has now."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from shared.domain.errors import InvalidOptions
from shared.settings import InvalidSettings
from spark.feeding import ChangeLimit, ChangePolicy, FeedConfig, feed
from spark.feeding.numbering import number_facts
from spark.job.failures import JobRefused
from spark.job.runtime import open_spark
from spark.job.settings import OptionRefused, with_settings
from spark.schemas import EVENTS, build_schema
from spark.send.arranging import arrange_in_runs
from spark.send.datasource import (
    EventWriter,
    LockstepDataSource,
    PartitionSent,
    SchemaRefused,
    digest_sessions,
    require_schema,
    require_whole_sessions,
)
from spark.send.options import WriteOptions
from spark.send.rows import BrokenSequence, SendCounts
from tests.spark.bookings import GROUP, ROWS, SCHEMA, declare, fact, facts_of, settings
from tests.spark.recording import RecordingDataSource, recorded

SETTINGS = {
    "LOCKSTEP_REGIONS": "east,west",
    "ServiceBus_east": "Endpoint=sb://east/",
    "ServiceBus_west__fullyQualifiedNamespace": "west.servicebus.windows.net",
    "Cosmos": "AccountEndpoint=https://journal/",
}


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("LOCKSTEP_REGION", raising=False)


def as_spark_gives_them(**options: str) -> dict[str, str]:
    """Spark hands options over in lower case."""
    return {name.lower(): value for name, value in (SETTINGS | options).items()}


def test_an_option_may_be_written_in_camel_case() -> None:
    assert WriteOptions.read(as_spark_gives_them(ownerLevel="3")).owner_level == 3


def test_settings_and_a_rate_for_all_come_from_options_whatever_case_spark_gives_them() -> None:
    options = WriteOptions.read(as_spark_gives_them())

    assert options.settings == SETTINGS | {"LOCKSTEP_REGION": "east"}
    assert options.rate_per_task is None
    shared = WriteOptions.read(as_spark_gives_them(rate="100", partitions="4"))
    assert shared.rate_per_task == 25.0


def test_settings_come_from_the_driver_s_environment_and_options_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)

    options = WriteOptions.read({"cosmos": "AccountEndpoint=https://other/"})

    assert options.settings["Cosmos"] == "AccountEndpoint=https://other/"
    assert options.settings["ServiceBus_east"] == SETTINGS["ServiceBus_east"]


def test_without_settings_the_first_missing_one_is_named() -> None:
    with pytest.raises(InvalidSettings, match="LOCKSTEP_REGIONS"):
        WriteOptions.read({})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"rate": "100"}, "rate needs partitions"),
        ({"partitions": "4"}, "partitions has no effect without rate"),
        ({"ownerLevel": "3", "owner_level": "3"}, "given twice"),
        ({"rate": "fast", "partitions": "2"}, "rate must be a number above zero, not 'fast'"),
        ({"rate": "0", "partitions": "2"}, "rate must be a number above zero"),
        ({"batch": "0"}, "batch must be a whole number from 1, not '0'"),
        ({"ServiceBus_north": "x"}, "unknown options: servicebus_north"),
        ({"gaps": "maybe"}, "gaps must be refuse or allow, not 'maybe'"),
        ({"owner_level": "32768"}, "owner_level must be within 0..32767, not '32768'"),
        ({"patience": "-1"}, "patience must be seconds from 0 on, not '-1'"),
        ({"progress": "stderr"}, "progress must be an address of a driver, not 'stderr'"),
        ({"speed": "9"}, "unknown options: speed"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused(
    options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(OptionRefused, match=complaint):
        WriteOptions.read(as_spark_gives_them(**options))


def test_every_fault_of_a_schema_is_named() -> None:
    kept = [field for field in EVENTS if field.name not in ("sequence", "body", "time")]
    others = build_schema(sequence=DoubleType(), time=LongType(), colour=StringType())

    with pytest.raises(SchemaRefused) as refused:
        require_schema(StructType([*kept, *others]))

    assert str(refused.value) == (
        "not a table of events: no column 'body'; column 'sequence' is double, not bigint; "
        "column 'time' is bigint, not string; unknown column 'colour'"
    )


def test_overwriting_is_refused() -> None:
    with pytest.raises(OptionRefused, match="append"):
        LockstepDataSource(as_spark_gives_them()).writer(EVENTS, overwrite=True)


def test_a_path_and_a_read_are_refused_with_what_to_do_instead() -> None:
    source = LockstepDataSource(as_spark_gives_them(path="/lake/events"))

    with pytest.raises(OptionRefused, match=r"to the queues of the app settings: save\(\) has no"):
        source.writer(EVENTS, overwrite=False)
    source.streamWriter(EVENTS, overwrite=False)
    with pytest.raises(OptionRefused, match=r'format\("lockstep.journal"\) reads the journal'):
        source.schema()


def test_a_task_without_a_share_of_the_rate_sends_nothing(
    monkeypatch: pytest.MonkeyPatch, sink: Path
) -> None:
    options = settings(sink) | {"rate": "100", "partitions": "2"}
    writer = RecordingDataSource(options).writer(EVENTS, overwrite=False)
    row = Row(**dict.fromkeys(EVENTS.names, "a") | {"sequence": 0, "body": "{}", "time": None})
    for partition in range(3):
        task = SimpleNamespace(partitionId=lambda at=partition: at, attemptNumber=lambda: 0)
        monkeypatch.setattr(TaskContext, "get", lambda of=task: of)
        if partition < 2:
            assert writer.write(iter([row])) == PartitionSent(
                SendCounts(1, pending=1), digest_sessions([("a", "a")])
            )
        else:
            with pytest.raises(OptionRefused, match="partitions=2, but the table has at least 3"):
                writer.write(iter([row]))

    assert len(recorded(sink)) == 2


def test_a_session_cut_across_tasks_is_found_when_all_has_been_sent() -> None:
    counts = SendCounts(1)
    whole = [digest_sessions([("a", "g"), ("b", "g")]), digest_sessions([("c", "g"), ("a", "h")])]
    require_whole_sessions([PartitionSent(counts, each) for each in whole])

    cut = [*whole, digest_sessions([("d", "g"), ("b", "g")])]
    with pytest.raises(BrokenSequence, match="1 sessions are in more than one partition"):
        require_whole_sessions([PartitionSent(counts, each) for each in cut])


def events(spark: SparkSession, session: str) -> DataFrame:
    facts = [fact(session, f"k{n}", f"{n:02}", n) for n in range(3)]
    return number_facts(facts_of(spark, facts), GROUP)


def test_what_is_set_after_spark_was_started_is_seen(
    spark: SparkSession, tmp_path: Path, sink: Path, recorded_here: None
) -> None:
    table = spark.createDataFrame(ROWS, SCHEMA)
    feed(table, declare("table"), FeedConfig(GROUP, rejects=str(tmp_path / "rejects")))
    spark.dataSource.register(with_settings(RecordingDataSource))
    own = arrange_in_runs(events(spark, "own"), 1).write.format("lockstep_recording")
    own.mode("append").save()

    found = sorted((m["session"], m["sequence"]) for m in recorded(sink))
    assert found == sorted([("a", 0), ("a", 1), ("b", 0), *(("own", n) for n in range(3))])


@pytest.mark.proof
def test_two_feeds_at_the_same_time_send_with_the_settings_of_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [f"to-{n}" for n in range(4)]

    def send(name: str) -> None:
        (tmp_path / name).mkdir()
        writer = EventWriter(settings=settings(tmp_path / name), source=RecordingDataSource)
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
