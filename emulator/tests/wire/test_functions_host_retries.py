"""Retry policies of the change feed, and timers over a restart, with real hosts."""

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import CosmosClient

from local.cloud import Cloud, CloudOptions
from local.config import parse_config
from local.cosmos.config import CosmosConfig
from local.cosmos.server import Cosmos
from local.functions_host.host import DRAIN_SECONDS
from local.testing.answers import KEY
from local.testing.patience import Patience, eventually
from wire.functions_host_process import HostProcess, running_host

pytestmark = pytest.mark.wire

APP = Path(__file__).parent / "feed_app"
CONFIG = {"Database": "sample", "Containers": [{"Name": "things", "PartitionKey": "/session"}]}


@pytest.fixture
def account() -> Iterator[Cosmos]:
    with Cosmos(CosmosConfig.parse(CONFIG)) as account:
        yield account


def create(account: Cosmos, *documents: dict[str, Any]) -> None:
    """Create documents of one session, one after the other."""
    with CosmosClient(account.endpoint, account.key) as client:
        things = client.get_database_client("sample").get_container_client("things")
        for document in documents:
            things.create_item({"session": "s", **document})


def wait_for(host: HostProcess, kind: str, expected: list[list[Any]]) -> None:
    """Wait until so many runs are there, and compare them."""
    eventually(lambda: len(host.seen(kind)) >= len(expected))
    assert host.seen(kind) == expected


def test_a_policy_without_end_holds_the_lease_until_the_function_succeeds(
    account: Cosmos, tmp_path: Path
) -> None:
    connection = account.connection_string
    create(account, {"id": "a1", "failures": 2}, {"id": "a2"})
    with running_host(tmp_path, APP, "first", Cosmos=connection) as first:
        eventually(lambda: first.seen("patient"))
        with running_host(tmp_path, APP, "second", Cosmos=connection) as second:
            wait_for(first, "patient", [["a1", 0, -1], ["a1", 1, -1], ["a1", 2, -1], ["a2", 0, -1]])

            assert second.seen("patient") == []


def test_a_policy_that_is_used_up_loses_the_changes_and_goes_on(
    account: Cosmos, tmp_path: Path
) -> None:
    create(account, {"id": "a1", "failures": 9}, {"id": "a2", "failures": 1}, {"id": "a3"})
    with running_host(tmp_path, APP, Cosmos=account.connection_string) as host:
        wait_for(
            host,
            "hasty",
            [["a1", 0, 2], ["a1", 1, 2], ["a1", 2, 2], ["a2", 0, 2], ["a2", 1, 2], ["a3", 0, 2]],
        )

        lost = [line for line in host.log() if "1 changes are lost" in line["message"]]
        assert [line["function"] for line in lost] == ["hasty"]


@pytest.mark.proof
def test_a_stop_between_two_tries_leaves_the_change_to_the_next_host(
    account: Cosmos, tmp_path: Path
) -> None:
    create(account, {"id": "a1", "failures": 1})
    with running_host(tmp_path, APP, "first", Cosmos=account.connection_string) as first:
        eventually(lambda: first.seen("patient"))
        patience = Patience(DRAIN_SECONDS)
        assert first.end() == 0
        assert not patience.is_over()
    with running_host(tmp_path, APP, "second", Cosmos=account.connection_string) as second:
        wait_for(second, "patient", [["a1", 0, -1], ["a1", 1, -1]])


def test_an_occurrence_missed_during_an_outage_is_made_up_once(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    kept = tmp_path / "data" / "timers" / "east" / "yearly.json"
    with running_host(tmp_path, APP, "first", LOCAL_HOST_DATA=data) as first:
        assert first.seen("timers") == []
        first.end()  # a killed one would keep its lock, and the second would wait for its end
    status = json.loads(kept.read_text())
    kept.write_text(json.dumps({**status, "Next": "2013-12-31T00:00:00+00:00"}))

    with running_host(tmp_path, APP, "second", LOCAL_HOST_DATA=data) as second:
        (run,) = eventually(lambda: second.seen("timers"))
        assert run["past_due"]
        assert run["schedule_status"]["Next"] == "2013-12-31T00:00:00+00:00"
        eventually(lambda: json.loads(kept.read_text())["Last"] > "2014")
        second.end()

    with running_host(tmp_path, APP, "third", LOCAL_HOST_DATA=data) as third:
        third.request("/admin/functions/yearly", "POST", KEY)
        runs = eventually(lambda: third.seen("timers"))
        assert [run["past_due"] for run in runs] == [False]


@pytest.mark.proof
def test_when_a_host_is_killed_its_timers_wait_until_their_locks_end(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    lock = tmp_path / "data" / "timers" / "east" / "yearly.lock"
    status = lock.with_suffix(".json")
    singleton = "AzureFunctionsJobHost__singleton__"
    settings = {
        "LOCAL_HOST_DATA": data,
        f"{singleton}listenerLockPeriod": "00:00:15",
        f"{singleton}listenerLockRecoveryPollingInterval": "00:00:15",
    }
    with running_host(tmp_path, APP, "first", **settings) as first:
        assert first.end(signal.SIGKILL)
    kept = json.loads(status.read_text())
    status.write_text(json.dumps({**kept, "Next": "2013-12-31T00:00:00+00:00"}))
    until = datetime.fromisoformat(json.loads(lock.read_text())["Until"])

    with running_host(tmp_path, APP, "second", **settings) as second:
        # It is past due, and would run at once.
        (run,) = eventually(lambda: second.seen("timers"))
        taken = [line for line in second.log() if line["message"] == "took the timer over"]
        second.end()

    assert run["past_due"]
    assert [datetime.fromisoformat(line["time"]) >= until for line in taken] == [True]
    assert datetime.fromisoformat(json.loads(lock.read_text())["Until"]) <= datetime.now(UTC)


def test_a_cloud_that_keeps_its_data_keeps_when_timers_ran(tmp_path: Path) -> None:
    config = parse_config(
        {
            "UserConfig": {},
            "Cosmos": CONFIG,
            "Hosts": {"Regions": ["east"], "Values": {"Cosmos": "{cosmos}"}},
        }
    )
    data = tmp_path / "data"

    with Cloud(config, CloudOptions(logs=tmp_path, app=APP, data=data)):
        status = json.loads((data / "hosts" / "timers" / "east" / "yearly.json").read_text())

    assert set(status) == {"Last", "LastUpdated", "Next"}
