"""Databases and containers, who may reach them, and what of them is not offered."""

from collections.abc import Iterator

import pytest
from azure.core.exceptions import HttpResponseError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import (
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from wire.cosmos_account import RunningAccount, running_account

pytestmark = pytest.mark.wire


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        yield running


def test_a_wrong_account_key_is_unauthorized(account: RunningAccount) -> None:
    wrong = "d3Jvbmcga2V5IHdyb25nIGtleQ=="

    with pytest.raises(HttpResponseError) as refusal:
        CosmosClient(account.cosmos.endpoint, wrong)

    assert refusal.value.status_code == 401
    assert "signature" in str(refusal.value)


def test_a_request_without_authorization_is_refused(account: RunningAccount) -> None:
    status, answer = account.send("GET", "/", headers={"authorization": ""})

    assert status == 401
    assert "missing" in answer["message"]


def test_stored_procedures_are_refused_by_name(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError, match="stored procedures"):
        list(account.journal.scripts.list_stored_procedures())


def test_replacing_a_container_is_refused_by_name(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError, match="does not offer PUT on colls"):
        account.database.replace_container("flights", PartitionKey("/tail"), default_ttl=30)


def test_databases_and_containers_are_created_listed_and_deleted(account: RunningAccount) -> None:
    database = account.client.create_database("ledger")
    database.create_container("entries", PartitionKey(path="/account"), default_ttl=30)

    with pytest.raises(CosmosResourceExistsError):
        account.client.create_database("ledger")
    with pytest.raises(CosmosResourceExistsError):
        database.create_container("entries", PartitionKey(path="/account"))
    assert [one["id"] for one in account.client.list_databases()] == ["ledger", "lockstep"]
    assert [one["id"] for one in database.list_containers()] == ["entries"]
    properties = database.get_container_client("entries").read()
    assert (properties["defaultTtl"], properties["partitionKey"]["paths"]) == (30, ["/account"])

    database.delete_container("entries")
    assert list(database.list_containers()) == []
    account.client.delete_database("ledger")
    with pytest.raises(CosmosResourceNotFoundError):
        database.read()


def test_a_container_created_again_is_known_from_the_old_one(account: RunningAccount) -> None:
    account.flights.create_item({"id": "old", "tail": "N1"})
    account.database.delete_container("flights")
    account.database.create_container("flights", PartitionKey(path="/tail"))

    account.flights.create_item({"id": "new", "tail": "N1"})

    assert [one["id"] for one in account.flights.read_all_items()] == ["new"]


def test_hierarchical_keys_are_refused_by_name(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError, match="hierarchical"):
        account.database.create_container(
            "deep", PartitionKey(path=["/tenant", "/user"], kind="MultiHash")
        )
