"""Unique keys through the unchanged azure-cosmos client."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceExistsError

from wire.cosmos_account import RunningAccount, running_account

pytestmark = pytest.mark.wire

POLICY = {"uniqueKeys": [{"paths": ["/name", "/address/zip"]}, {"paths": ["/mail"]}]}


@pytest.fixture(scope="module")
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        yield running


@pytest.fixture
def people(account: RunningAccount) -> Iterator[ContainerProxy]:
    key = PartitionKey("/county")
    made = account.database.create_container("people", key, unique_key_policy=POLICY)
    yield made
    account.database.delete_container(made)


def person(item_id: str, **rest: Any) -> dict[str, Any]:
    return {"id": item_id, "county": "York", "name": "Ann", "mail": item_id, **rest}


def test_no_two_items_of_a_partition_have_the_same_values(people: ContainerProxy) -> None:
    people.create_item(person("1", address={"zip": 1}))
    people.create_item(person("2", address={"zip": 2}))
    people.create_item(person("3", address={"zip": 1}, county="Mersey"))

    for write in (people.create_item, people.upsert_item):
        with pytest.raises(CosmosResourceExistsError):
            write(person("4", address={"zip": 1.0}))
    with pytest.raises(CosmosResourceExistsError):
        people.create_item(person("4", mail="2", address={"zip": 4}))
    with pytest.raises(CosmosResourceExistsError):
        people.replace_item("2", person("2", address={"zip": 1}))
    changes = [{"op": "set", "path": "/address/zip", "value": 1}]
    with pytest.raises(CosmosResourceExistsError):
        people.patch_item("2", "York", changes)

    people.replace_item("1", person("1", address={"zip": 1}, n=1))
    people.delete_item("1", "York")
    people.create_item(person("4", address={"zip": 1}))


def test_what_is_missing_counts_as_null(people: ContainerProxy) -> None:
    people.create_item(person("1"))

    with pytest.raises(CosmosResourceExistsError):
        people.create_item(person("2", address={"zip": None}))


def test_a_policy_is_kept_and_one_that_makes_no_sense_is_refused(
    account: RunningAccount, people: ContainerProxy
) -> None:
    assert people.read()["uniqueKeyPolicy"] == POLICY
    refused: list[dict[str, Any]] = [
        {"keys": []},
        {"uniqueKeys": [{"paths": []}]},
        {"uniqueKeys": [{"paths": ["a"]}]},
    ]
    for policy in refused:
        with pytest.raises(CosmosHttpResponseError, match="BadRequest"):
            account.database.create_container("c", PartitionKey("/a"), unique_key_policy=policy)
