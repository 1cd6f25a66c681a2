"""What a write is told: options over the driver's environment, everything else refused."""

import pytest
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from shared.settings import InvalidSettings
from spark.job.settings import OptionRefused
from spark.schemas import EVENTS
from spark.send.datasource import (
    LockstepDataSource,
    PartitionSent,
    SchemaRefused,
    digest_sessions,
    require_schema,
    require_whole_sessions,
)
from spark.send.options import WriteOptions
from spark.send.rows import BrokenSequence, SendCounts

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


def test_an_option_may_be_written_in_camel_case_but_not_in_two_ways() -> None:
    options = WriteOptions.read(as_spark_gives_them(ownerLevel="3"))
    assert options.owner_level == 3
    with pytest.raises(OptionRefused, match="given twice"):
        WriteOptions.read(as_spark_gives_them(ownerLevel="3", owner_level="3"))


def test_settings_come_from_options_whatever_case_spark_leaves_them_in() -> None:
    options = WriteOptions.read(as_spark_gives_them())

    assert options.settings == SETTINGS | {"LOCKSTEP_REGION": "east"}
    assert options.rate_per_task is None


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


def test_the_rate_is_shared_between_the_partitions() -> None:
    options = WriteOptions.read(as_spark_gives_them(rate="100", partitions="4"))

    assert options.rate_per_task == 25.0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"rate": "100"}, "rate needs partitions"),
        ({"rate": "fast", "partitions": "2"}, "rate must be a number above zero, not 'fast'"),
        ({"rate": "0", "partitions": "2"}, "rate must be a number above zero"),
        ({"batch": "0"}, "batch must be a whole number from 1, not '0'"),
        ({"ServiceBus_north": "x"}, "unknown options: servicebus_north"),
        ({"gaps": "maybe"}, "gaps must be refuse or allow, not 'maybe'"),
        ({"owner_level": "32768"}, "owner_level must be within 0..32767, not '32768'"),
        ({"patience": "-1"}, "patience must be seconds from 0 on, not '-1'"),
        ({"progress": "stderr"}, "progress must be host:port/token, not 'stderr'"),
        ({"speed": "9"}, "unknown options: speed"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused(
    options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(OptionRefused, match=complaint):
        WriteOptions.read(as_spark_gives_them(**options))


def test_every_fault_of_a_schema_is_named() -> None:
    schema = StructType(
        [
            *(field for field in EVENTS if field.name not in ("sequence", "body", "time")),
            StructField("sequence", DoubleType()),
            StructField("time", LongType()),
            StructField("colour", StringType()),
        ]
    )

    with pytest.raises(SchemaRefused) as refused:
        require_schema(schema)

    assert str(refused.value) == (
        "not a table of events: no column 'body'; column 'sequence' is double, not bigint; "
        "column 'time' is bigint, not string; unknown column 'colour'"
    )


def test_overwriting_is_refused() -> None:
    with pytest.raises(OptionRefused, match="append"):
        LockstepDataSource(as_spark_gives_them()).writer(EVENTS, overwrite=True)


def test_a_session_cut_across_tasks_is_found_when_all_has_been_sent() -> None:
    counts = SendCounts(1)
    whole = [digest_sessions([("a", "g"), ("b", "g")]), digest_sessions([("c", "g"), ("a", "h")])]
    require_whole_sessions([PartitionSent(counts, each) for each in whole])

    cut = [*whole, digest_sessions([("d", "g"), ("b", "g")])]
    with pytest.raises(BrokenSequence, match="1 sessions are in more than one partition"):
        require_whole_sessions([PartitionSent(counts, each) for each in cut])


def test_partitions_without_a_rate_would_have_no_effect() -> None:
    with pytest.raises(OptionRefused, match="partitions has no effect without rate"):
        WriteOptions.read(as_spark_gives_them(partitions="4"))
