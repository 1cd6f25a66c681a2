"""The change feed of an emulated account through real host processes into the sample app."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient

from local.cosmos.config import CosmosConfig
from local.cosmos.server import Cosmos
from local.faults import Action, Fault, Faults
from local.testing.patience import eventually
from wire.functions_host_process import HostProcess, running_host

pytestmark = pytest.mark.wire

CONFIG = {
    "Database": "sample",
    "Containers": [{"Name": "things", "PartitionKey": "/session"}],
}
RANGES = 4
IN_RANGES = {
    "Database": "sample",
    "Containers": [{"Name": "things", "PartitionKey": "/session", "Partitions": RANGES}],
}
SESSIONS = 24  # enough to find some in every range


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


@pytest.mark.parametrize(
    ("status", "is_dead"),
    [pytest.param(403, True, marks=pytest.mark.proof), (404, True), (503, False)],
)
def test_a_listener_that_is_refused_at_its_start_stays_dead_until_the_host_restarts(
    tmp_path: Path, status: int, is_dead: bool
) -> None:
    def count(host: HostProcess, text: str) -> int:
        lines = [line for line in host.log() if line.get("function") == "follow"]
        return sum(text in line["message"] for line in lines)

    faults = Faults()
    with Cosmos(CosmosConfig.parse(CONFIG), faults=faults) as account:
        faults.arm(Fault("cosmos.leases", Action.STATUS, status=status))
        with running_host(tmp_path, name="first", Cosmos=account.connection_string) as host:
            word = "stays dead" if is_dead else "trying again"
            eventually(lambda: count(host, word))
            faults.disarm()
            with CosmosClient(account.endpoint, account.key) as client:
                create(client.get_database_client("sample").get_container_client("things"), "a1")
            if not is_dead:
                eventually(lambda: ids_seen(host) == ["a1"])
                return
            with running_host(tmp_path, name="again", Cosmos=account.connection_string) as again:
                eventually(lambda: ids_seen(again) == ["a1"])
                assert ids_seen(host) == []
                assert (count(host, "stays dead"), count(host, "trying again")) == (1, 0)


def test_a_failing_function_does_not_hold_the_lease(
    account: Cosmos, things: ContainerProxy, tmp_path: Path
) -> None:
    with running_host(tmp_path, Cosmos=account.connection_string) as host:
        create(things, "a1", poison=True)
        eventually(lambda: ids_seen(host))
        create(things, "a2")

        eventually(lambda: "a2" in ids_seen(host))

        assert ids_seen(host) == ["a1", "a2"]
        lines = [line["message"] for line in host.log() if line["level"] == "error"]
        assert any("a poisoned document" in message for message in lines)
        assert any("1 changes are lost" in message for message in lines)


@pytest.mark.proof
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


@pytest.mark.proof
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


@pytest.fixture
def ranged() -> Iterator[Cosmos]:
    """An account whose container has several partition key ranges."""
    with Cosmos(CosmosConfig.parse(IN_RANGES)) as account:
        yield account


def write_round(account: Cosmos, number: int) -> set[str]:
    """Create one document in each session; the answer is their ids."""
    with CosmosClient(account.endpoint, account.key) as client:
        things = client.get_database_client("sample").get_container_client("things")
        for session in range(SESSIONS):
            things.create_item({"id": f"{session}-{number}", "session": f"s{session}", "n": number})
    return {f"{session}-{number}" for session in range(SESSIONS)}


def shares(account: Cosmos) -> list[int]:
    """How many leases each owner has, most first."""
    owners = [lease["Owner"] for lease in leases_of(account)]
    return sorted(Counter(owner for owner in owners if owner).values(), reverse=True)


def rounds_by_session(host: HostProcess) -> dict[str, list[int]]:
    """The rounds of each session as a host saw them, without immediate repetitions."""
    rounds: dict[str, list[int]] = {}
    for batch in host.seen("documents"):
        for document in batch:
            seen = rounds.setdefault(document["session"], [])
            if document["n"] not in seen[-1:]:
                seen.append(document["n"])
    return rounds


def test_two_hosts_share_the_ranges_and_one_takes_over_when_the_other_is_killed(
    ranged: Cosmos, tmp_path: Path
) -> None:
    connection = ranged.connection_string
    with running_host(tmp_path, name="first", Cosmos=connection) as first:
        alone = write_round(ranged, 0)
        eventually(lambda: set(ids_seen(first)) == alone)
        assert shares(ranged) == [RANGES]

        with running_host(tmp_path, name="second", Cosmos=connection) as second:
            eventually(lambda: shares(ranged) == [RANGES // 2, RANGES // 2])
            shared = write_round(ranged, 1)
            eventually(lambda: {*ids_seen(first), *ids_seen(second)} >= shared)
            eventually(lambda: all(shared & {*ids_seen(host)} for host in (first, second)))

            before = rounds_by_session(first)
            first.process.kill()
            orphaned = write_round(ranged, 2)
            eventually(lambda: set(ids_seen(second)) >= orphaned)

            assert shares(ranged) == [RANGES]
            after = rounds_by_session(second)
    assert all(rounds == sorted(rounds) for rounds in (*before.values(), *after.values()))
    both = {s: {*before.get(s, ()), *after.get(s, ())} for s in {*before, *after}}
    assert both == {f"s{session}": {0, 1, 2} for session in range(SESSIONS)}
