"""The change feed of an emulated account through real host processes into the sample app."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient

from local.cosmos.config import CosmosConfig
from local.cosmos.server import Cosmos
from tests.wire.functions_host_process import HostProcess, eventually, running_host

pytestmark = pytest.mark.wire

CONFIG = {
    "Database": "sample",
    "Containers": [{"Name": "things", "PartitionKey": "/session"}],
}


@pytest.fixture
def account() -> Iterator[Cosmos]:
    with Cosmos(CosmosConfig.parse(CONFIG)) as account:
        yield account


@pytest.fixture
def things(account: Cosmos) -> Iterator[ContainerProxy]:
    with CosmosClient(account.endpoint, account.key) as client:
        yield client.get_database_client("sample").get_container_client("things")


def create(things: ContainerProxy, *ids: str, **fields: Any) -> None:
    """Create documents, one after the other."""
    for document_id in ids:
        things.create_item({"id": document_id, "session": document_id[:1], **fields})


def ids_seen(host: HostProcess) -> list[str]:
    """The ids of all documents handed over, in order."""
    return [document["id"] for batch in host.seen("documents") for document in batch]


def leases_of(account: Cosmos) -> list[dict[str, Any]]:
    """The lease documents."""
    with CosmosClient(account.endpoint, account.key) as client:
        container = client.get_database_client("sample").get_container_client("leases")
        return list(container.query_items("SELECT * FROM c", enable_cross_partition_query=True))


def test_changes_from_the_beginning_arrive_in_order_and_in_batches(
    account: Cosmos, things: ContainerProxy, tmp_path: Path
) -> None:
    create(things, "a1", "a2", "b1", "a3", size=5)
    with running_host(tmp_path, Cosmos=account.connection_string) as host:
        eventually(lambda: len(ids_seen(host)) == 4)
        create(things, "a4")

        eventually(lambda: len(ids_seen(host)) == 5)

        assert ids_seen(host) == ["a1", "a2", "b1", "a3", "a4"]
        assert all(len(batch) <= 3 for batch in host.seen("documents"))
        first = host.seen("documents")[0][0]
        assert (first["size"], first["session"]) == (5, "a")
        assert {"_etag", "_lsn", "_rid", "_ts"} <= first.keys()


def test_a_failing_function_does_not_hold_the_lease(
    account: Cosmos, things: ContainerProxy, tmp_path: Path
) -> None:
    with running_host(tmp_path, Cosmos=account.connection_string) as host:
        create(things, "a1", poison=True)
        eventually(lambda: ids_seen(host))
        create(things, "a2")

        eventually(lambda: "a2" in ids_seen(host))

        assert ids_seen(host) == ["a1", "a2"]
        said = [line["message"] for line in host.log() if line["level"] == "error"]
        assert any("a poisoned document" in message for message in said)
        assert any("1 changes are lost" in message for message in said)


def test_hosts_with_different_prefixes_both_see_every_change(
    account: Cosmos, things: ContainerProxy, tmp_path: Path
) -> None:
    connection = account.connection_string
    with (
        running_host(tmp_path, name="east", Cosmos=connection, SAMPLE_PREFIX="east") as east,
        running_host(tmp_path, name="west", Cosmos=connection, SAMPLE_PREFIX="west") as west,
    ):
        create(things, "a1", "b1", "c1")

        eventually(lambda: len(ids_seen(east)) == len(ids_seen(west)) == 3)

        assert ids_seen(east) == ids_seen(west) == ["a1", "b1", "c1"]


def test_hosts_with_one_prefix_share_and_the_second_takes_over_from_a_dead_one(
    account: Cosmos, things: ContainerProxy, tmp_path: Path
) -> None:
    connection = account.connection_string
    with running_host(tmp_path, name="first", Cosmos=connection) as first:
        create(things, "a1")
        eventually(lambda: ids_seen(first) == ["a1"])
        with running_host(tmp_path, name="second", Cosmos=connection) as second:
            create(things, "a2")
            eventually(lambda: ids_seen(first) == ["a1", "a2"])
            assert ids_seen(second) == []

            first.process.kill()
            create(things, "a3")

            eventually(lambda: "a3" in ids_seen(second))
            assert ids_seen(second)[-1] == "a3"


def test_a_host_that_stops_gives_its_lease_back_and_the_next_goes_on_from_there(
    account: Cosmos, things: ContainerProxy, tmp_path: Path
) -> None:
    connection = account.connection_string
    with running_host(tmp_path, name="first", Cosmos=connection) as first:
        create(things, "a1")
        eventually(lambda: ids_seen(first) == ["a1"])
        assert first.end() == 0
    (lease,) = leases_of(account)
    assert lease["Owner"] is None
    assert lease["ContinuationToken"]

    create(things, "a2")
    with running_host(tmp_path, name="second", Cosmos=connection) as second:
        eventually(lambda: ids_seen(second))

        assert ids_seen(second) == ["a2"]
