"""An account of three regions through the unchanged azure-cosmos clients, and losing one."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from socket import create_connection, create_server
from typing import Any

import pytest
from azure.core.exceptions import AzureError
from azure.cosmos import ContainerProxy, CosmosClient
from azure.cosmos.aio import CosmosClient as AsyncCosmosClient

from local.control import Control
from local.cosmos.http.account import UnknownRegion
from local.cosmos.server import Cosmos
from local.faults import Action, Fault
from local.hosts import Hosts
from local.loopback import PortTaken
from local.testing.cloud import reserve_ports
from local.testing.control import request_json
from wire.cosmos_account import THREE_REGIONS, RunningAccount, running_account

pytestmark = pytest.mark.wire

ITEMS = "/dbs/lockstep/colls/journal/docs"
ITEM = f"{ITEMS}/000"
KEY = {"x-ms-documentdb-partitionkey": '["DL1742"]'}
ENTRY = {"id": "000", "session": "DL1742", "n": 0}
BATCH = {"x-ms-cosmos-is-batch-request": "true", "x-ms-cosmos-batch-atomic": "true"}
QUERY = {"x-ms-documentdb-isquery": "true"}
# With two regions the client's own check of a lost one may turn their order under a retry.
WEST_FIRST = ["west", "north", "east"]
# Connections that are cut are tried again by the pipeline first: not for long here.
IMPATIENT: dict[str, Any] = {"retry_backoff_factor": 0.01}


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account(config=THREE_REGIONS) as running:
        yield running


def client_of(account: RunningAccount, *preferred: str, **rest: Any) -> CosmosClient:
    """A client that would rather read in the first of these regions."""
    cosmos = account.cosmos
    return CosmosClient(
        cosmos.endpoint, cosmos.key, preferred_locations=list(preferred), **IMPATIENT, **rest
    )


def journal_of(client: CosmosClient) -> ContainerProxy:
    """The journal as one client sees it."""
    return client.get_database_client("lockstep").get_container_client("journal")


def ask(
    account: RunningAccount, region: str, method: str, path: str, *rest: Any
) -> tuple[int, Mapping[str, str], Any]:
    """One request to the endpoint of a region."""
    endpoint = account.cosmos.region_endpoints[region]
    return account.ask(int(endpoint.rstrip("/").rpartition(":")[2]), method, path, *rest)


def lose(account: RunningAccount, region: str) -> None:
    """Take a region down until all faults are lifted."""
    account.faults.arm(Fault("cosmos", Action.DOWN, region=region))


def test_the_account_names_its_regions_with_the_write_region_first(
    account: RunningAccount,
) -> None:
    account.cosmos.move_write_region("west")
    endpoints = account.cosmos.region_endpoints
    located = [
        {"name": name, "databaseAccountEndpoint": endpoints[name]}
        for name in ("west", "east", "north")
    ]

    documents = [ask(account, region, "GET", "/")[2] for region in endpoints]
    documents.append(account.send("GET", "/")[1])

    assert len({*endpoints.values(), account.cosmos.endpoint}) == 4
    for document in documents:
        assert document["writableLocations"] == located[:1]
        assert document["readableLocations"] == located
        assert document["enableMultipleWriteLocations"] is False


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("POST", ITEMS, {**ENTRY, "id": "001"}, KEY),
        ("POST", ITEMS, {**ENTRY, "n": 1}, {**KEY, "x-ms-documentdb-is-upsert": "true"}),
        ("PUT", ITEM, {**ENTRY, "n": 1}, KEY),
        ("PATCH", ITEM, {"operations": [{"op": "set", "path": "/n", "value": 1}]}, KEY),
        ("DELETE", ITEM, None, KEY),
        ("POST", ITEMS, [{"operationType": "Delete", "id": "000"}], {**KEY, **BATCH}),
        ("POST", "/dbs", {"id": "other"}, {}),
        ("DELETE", "/dbs/lockstep", None, {}),
    ],
)
def test_a_write_in_a_region_that_is_only_read_is_forbidden(
    account: RunningAccount, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    stored = dict(account.journal.create_item(dict(ENTRY)))

    status, told, answer = ask(account, "west", method, path, body, headers)

    assert (status, told["x-ms-substatus"], answer["code"]) == (403, "3", "Forbidden")
    assert list(account.journal.read_all_items()) == [stored]
    assert [one["id"] for one in account.client.list_databases()] == ["lockstep"]


def test_what_was_written_is_read_in_every_region(account: RunningAccount) -> None:
    stored = dict(account.journal.create_item(dict(ENTRY)))
    query = {"query": "SELECT * FROM c"}

    for region in account.cosmos.regions:
        assert ask(account, region, "GET", ITEM, None, KEY)[::2] == (200, stored)
        found = ask(account, region, "POST", ITEMS, query, {**KEY, **QUERY})[2]
        assert found["Documents"] == [stored]
        feed = ask(account, region, "GET", ITEMS, None, {**KEY, "A-IM": "Incremental Feed"})[2]
        assert [one["id"] for one in feed["Documents"]] == ["000"]


def test_a_client_reads_in_the_region_it_prefers(account: RunningAccount) -> None:
    account.journal.create_item(dict(ENTRY))
    account.arm(Action.STATUS, "read", region="west", status=449)

    with client_of(account, "north", "west") as other:
        assert journal_of(other).read_item("000", "DL1742")["n"] == 0
    with client_of(account, "west", "north") as other, pytest.raises(AzureError):
        journal_of(other).read_item("000", "DL1742")


def test_a_client_follows_the_write_region(account: RunningAccount) -> None:
    account.journal.create_item(dict(ENTRY))

    account.cosmos.move_write_region("north")
    account.journal.upsert_item({**ENTRY, "n": 1})
    account.journal.upsert_item({**ENTRY, "n": 2})

    assert account.journal.read_item("000", "DL1742")["n"] == 2
    assert account.counted("upsert").keys() == {"403", "200"}
    assert account.counted("upsert")["200"] == 2


async def test_the_asynchronous_client_follows_the_write_region(account: RunningAccount) -> None:
    account.journal.create_item(dict(ENTRY))
    cosmos = account.cosmos

    async with AsyncCosmosClient(
        cosmos.endpoint, cosmos.key, preferred_locations=["west", "east"], **IMPATIENT
    ) as client:
        journal = client.get_database_client("lockstep").get_container_client("journal")
        await journal.upsert_item({**ENTRY, "n": 1})
        cosmos.move_write_region("west")
        await journal.upsert_item({**ENTRY, "n": 2})
        found = await journal.read_item("000", "DL1742")

    assert found["n"] == 2
    assert account.counted("upsert")["200"] == 2


def test_reads_go_on_in_the_next_preferred_region(account: RunningAccount) -> None:
    account.journal.create_item(dict(ENTRY))

    with client_of(account, *WEST_FIRST) as client:
        journal = journal_of(client)
        assert journal.read_item("000", "DL1742")["n"] == 0
        lose(account, "west")

        assert journal.read_item("000", "DL1742")["n"] == 0
        journal.upsert_item({**ENTRY, "n": 1})
        assert [one["n"] for one in journal.query_items("SELECT * FROM c", partition_key="DL1742")]
        assert [one["n"] for one in journal.query_items_change_feed(start_time="Beginning")] == [1]


async def test_the_asynchronous_client_reads_on_in_the_next_preferred_region(
    account: RunningAccount,
) -> None:
    account.journal.create_item(dict(ENTRY))
    cosmos = account.cosmos

    async with AsyncCosmosClient(
        cosmos.endpoint, cosmos.key, preferred_locations=WEST_FIRST, **IMPATIENT
    ) as client:
        journal = client.get_database_client("lockstep").get_container_client("journal")
        assert (await journal.read_item("000", "DL1742"))["n"] == 0
        lose(account, "west")

        assert (await journal.read_item("000", "DL1742"))["n"] == 0
        await journal.upsert_item({**ENTRY, "n": 1})
        feed = journal.query_items_change_feed(start_time="Beginning")
        assert [one["n"] async for one in feed] == [1]


def test_a_client_can_start_while_its_preferred_region_is_lost(account: RunningAccount) -> None:
    account.journal.create_item(dict(ENTRY))
    lose(account, "east")
    account.cosmos.move_write_region("west")

    with client_of(account, "east", "west", "north") as client:
        journal_of(client).upsert_item({**ENTRY, "n": 1})
        assert journal_of(client).read_item("000", "DL1742")["n"] == 1


def test_without_the_write_region_writes_fail_until_it_is_moved(account: RunningAccount) -> None:
    stored = dict(account.journal.create_item(dict(ENTRY)))

    with client_of(account, *WEST_FIRST) as client:
        journal_of(client).read()
        lose(account, "east")
        with pytest.raises(AzureError):
            journal_of(client).upsert_item({**ENTRY, "n": 1})
        assert journal_of(client).read_item("000", "DL1742") == stored

    account.cosmos.move_write_region("west")
    with client_of(account, *WEST_FIRST) as client:
        journal_of(client).upsert_item({**ENTRY, "n": 2})
        assert journal_of(client).read_item("000", "DL1742")["n"] == 2


def test_a_region_that_comes_back_sends_old_clients_to_the_new_write_region(
    account: RunningAccount,
) -> None:
    with client_of(account, *WEST_FIRST) as client:
        journal_of(client).create_item(dict(ENTRY))
        lose(account, "east")
        account.cosmos.move_write_region("west")
        with pytest.raises(AzureError):
            journal_of(client).upsert_item({**ENTRY, "n": 1})
        account.faults.disarm()

        journal_of(client).upsert_item({**ENTRY, "n": 2})

        assert journal_of(client).read_item("000", "DL1742")["n"] == 2


@pytest.mark.parametrize("action", [Action.DOWN, Action.DROP_CONNECTION])
def test_when_the_write_region_is_gone_so_is_the_accounts_own_endpoint_until_writes_move(
    account: RunningAccount, action: Action
) -> None:
    account.faults.arm(Fault("cosmos", action, region="east"))
    for path, headers in ((ITEM, KEY), ("/", {})):
        with pytest.raises(ConnectionError):
            account.send("GET", path, headers=headers)
    for region in ("west", "north"):
        assert ask(account, region, "GET", "/")[2]["writableLocations"][0]["name"] == "east"

    account.cosmos.move_write_region("west")

    assert account.send("GET", "/")[1]["writableLocations"][0]["name"] == "west"
    assert account.send("POST", ITEMS, ENTRY, KEY)[0] == 201
    assert account.send("GET", ITEM, headers=KEY)[0] == 200


def test_when_the_write_region_is_silent_so_is_the_accounts_own_endpoint_until_writes_move(
    account: RunningAccount,
) -> None:
    silence = account.faults.arm(Fault("cosmos", Action.SILENT, region="east"))
    port = account.cosmos.port

    with create_connection(("127.0.0.1", port)) as silent, ThreadPoolExecutor() as threads:
        silent.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        written = threads.submit(ask, account, "east", "POST", ITEMS, ENTRY, KEY)
        for region in ("west", "north"):
            assert ask(account, region, "GET", "/")[2]["writableLocations"][0]["name"] == "east"
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.recv(1)
        assert not written.done()

        account.cosmos.move_write_region("west")
        assert account.send("GET", "/")[1]["writableLocations"][0]["name"] == "west"
        assert not written.done()

        account.faults.disarm(silence)
        with pytest.raises(ConnectionError):
            written.result()
        silent.setblocking(True)
        assert silent.recv(1) == b""
    assert not list(account.journal.read_all_items())


def test_without_the_write_region_a_client_starts_at_another_regions_own_endpoint_alone(
    account: RunningAccount,
) -> None:
    stored = dict(account.journal.create_item(dict(ENTRY)))
    lose(account, "east")

    with pytest.raises(AzureError), client_of(account):
        pass
    west = account.cosmos.region_endpoints["west"]
    with CosmosClient(west, account.cosmos.key, preferred_locations=["west"]) as client:
        assert journal_of(client).read_item("000", "DL1742") == stored


def test_regions_can_be_given_ports_and_one_that_is_taken_is_named() -> None:
    with reserve_ports() as port:
        region_ports = [port + 1, port + 2, port + 3]
        cosmos = Cosmos(THREE_REGIONS, port=port, region_ports=region_ports)
        with (
            create_server(("127.0.0.1", region_ports[-1])),
            pytest.raises(PortTaken, match=str(region_ports[-1])),
        ):
            cosmos.start()
        with cosmos:
            assert cosmos.port == port
            ends = [endpoint.rpartition(":")[2] for endpoint in cosmos.region_endpoints.values()]
            assert ends == [f"{number}/" for number in region_ports]


def test_an_account_of_one_region_has_one_endpoint() -> None:
    with running_account() as account:
        here = {"name": "East US", "databaseAccountEndpoint": account.cosmos.endpoint}
        document = account.send("GET", "/")[1]

        assert (document["writableLocations"], document["readableLocations"]) == ([here], [here])
        assert account.cosmos.region_endpoints == {}
        with pytest.raises(UnknownRegion, match="only East US"):
            account.cosmos.move_write_region("east")


def test_the_write_region_is_moved_over_the_control_endpoint(account: RunningAccount) -> None:
    control = Control(
        port=0,
        faults=account.faults,
        counters=account.counters,
        hosts=Hosts(()),
        cosmos=account.cosmos,
        depths=dict,
        contents=lambda _namespace, _queue: [],
        targets=account.cosmos.targets,
    )
    control.start()
    try:
        url = f"{control.url}/cosmos/write-region"
        regions = ["east", "west", "north"]
        assert request_json("GET", url) == (200, {"region": "east", "regions": regions})
        moved = (200, {"region": "west", "regions": regions})
        assert (request_json("POST", url, {"region": "west"}), request_json("GET", url)) == (
            moved,
            moved,
        )
        for wrong, word in (({"region": "south"}, "south"), ({}, "None"), ({"to": "east"}, "to")):
            status, answer = request_json("POST", url, wrong)
            assert (status, word in answer["error"]) == (400, True)
        down = {"component": "cosmos", "action": "down"}
        assert request_json("POST", f"{control.url}/faults", {**down, "region": "west"})[0] == 200
        assert request_json("POST", f"{control.url}/faults", {**down, "region": "south"})[0] == 400
    finally:
        control.stop()
    assert account.cosmos.write_region == "west"
