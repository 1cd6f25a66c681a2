"""The requests of langgraph-checkpoint-cosmosdb 0.4, a stranger's store of an agent's states.

It keeps every state under a key of its thread, finds a thread by the beginning of that key over all
partitions, and takes a 409 for a write that was there before.
"""

from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosResourceExistsError

from tests.wire.cosmos_account import RunningAccount, running_account

pytestmark = pytest.mark.wire

OF_ONE = "SELECT * FROM c WHERE c.partition_key=@partition_key AND c.id=@checkpoint_key"
OF_A_KEY = "SELECT * FROM c WHERE c.partition_key=@partition_key"
OF_A_THREAD = 'SELECT c["id"], c["partition_key"] FROM c WHERE STARTSWITH(c["partition_key"], @p)'
OF_RUNS = "SELECT c.id, c.partition_key FROM c WHERE ARRAY_CONTAINS(@ids, c.run_id)"
OF_IDS = "SELECT c.id FROM c WHERE STARTSWITH(c.id, @prefix)"


def open_store(account: RunningAccount) -> ContainerProxy:
    client = CosmosClient(account.cosmos.endpoint, account.cosmos.key)
    database = client.create_database_if_not_exists("agents")
    return database.create_container_if_not_exists("states", PartitionKey("/partition_key"))


def find(store: ContainerProxy, text: str, **values: Any) -> list[Any]:
    parameters = [{"name": f"@{name}", "value": value} for name, value in values.items()]
    return list(store.query_items(text, parameters, enable_cross_partition_query=True))


def state(thread: str, number: int, run: str) -> dict[str, Any]:
    key = f"checkpoint${thread}$"
    return {
        "partition_key": f"{key}$",
        "id": f"{key}${number}",
        "checkpoint": "AAECAw==",
        "type": "msgpack",
        "metadata": ["json", "e30="],
        "parent_checkpoint_id": "",
        "run_id": run,
    }


def test_an_agents_states_are_kept_found_and_deleted_thread_by_thread() -> None:
    with running_account() as account:
        store = open_store(account)
        open_store(account)  # a second agent finds what is there
        for thread in ("one", "two"):
            for number in range(3):
                store.create_item(state(thread, number, f"run{number}"))
        with pytest.raises(CosmosResourceExistsError):
            store.create_item(state("one", 0, "run0"))
        store.upsert_item(state("one", 0, "again"))

        key = "checkpoint$one$$"
        one = find(store, OF_ONE, partition_key=key, checkpoint_key=f"{key}1")
        newest = max(find(store, OF_A_KEY, partition_key=key), key=lambda found: found["id"])
        states = find(store, OF_A_THREAD, p="checkpoint$one$")
        runs = find(store, OF_RUNS, ids=["again", "run2"])
        ids = find(store, OF_IDS, prefix="checkpoint$two$")
        for found in states:
            store.delete_item(found["id"], partition_key=found["partition_key"])
        left = find(store, OF_A_THREAD, p="checkpoint$")

    assert [found["run_id"] for found in one] == ["run1"]
    assert newest["id"] == f"{key}2"
    assert sorted(found["id"] for found in states) == [f"{key}{n}" for n in range(3)]
    assert sorted(found["id"][-6:] for found in runs) == ["one$$0", "one$$2", "two$$2"]
    assert len(ids) == len(left) == 3
    assert {found["partition_key"] for found in left} == {"checkpoint$two$$"}
