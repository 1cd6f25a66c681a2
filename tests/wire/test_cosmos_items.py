"""Single items through the unchanged azure-cosmos client."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from tests.wire.cosmos_account import Clock, RunningAccount, running_account

pytestmark = pytest.mark.wire

ITEMS = "/dbs/lockstep/colls/journal/docs"


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        yield running


def own(document: dict[str, Any]) -> dict[str, Any]:
    """A document without its system properties."""
    return {name: value for name, value in document.items() if not name.startswith("_")}


def test_a_created_item_reads_back_with_its_system_properties(account: RunningAccount) -> None:
    item = {"id": "000", "session": "DL1742", "state": {"at": "Charlotte", "legs": [1, 2.5, None]}}

    created = account.journal.create_item(dict(item))
    read = account.journal.read_item("000", "DL1742")

    assert own(dict(read)) == item
    assert dict(read) == dict(created)
    assert {"_rid", "_self", "_etag", "_ts"} <= set(read)
    assert read["_ts"] == int(account.clock())


def test_creating_an_id_twice_in_a_partition_is_a_conflict(account: RunningAccount) -> None:
    account.journal.create_item({"id": "000", "session": "DL1742", "by": "east"})

    with pytest.raises(CosmosResourceExistsError):
        account.journal.create_item({"id": "000", "session": "DL1742", "by": "west"})

    assert account.journal.read_item("000", "DL1742")["by"] == "east"


def test_the_same_id_may_stand_in_two_partitions(account: RunningAccount) -> None:
    account.journal.create_item({"id": "000", "session": "DL1742"})
    account.journal.create_item({"id": "000", "session": "UA88"})

    assert account.journal.read_item("000", "UA88")["session"] == "UA88"


def test_a_replace_under_a_stale_tag_is_refused_and_changes_nothing(
    account: RunningAccount,
) -> None:
    first = account.journal.create_item({"id": "000", "session": "DL1742", "n": 1})
    condition = {"etag": first["_etag"], "match_condition": MatchConditions.IfNotModified}
    account.journal.replace_item("000", {"id": "000", "session": "DL1742", "n": 2}, **condition)

    with pytest.raises(CosmosAccessConditionFailedError):
        account.journal.replace_item("000", {"id": "000", "session": "DL1742", "n": 3}, **condition)

    assert account.journal.read_item("000", "DL1742")["n"] == 2


def test_a_replace_keeps_the_resource_id_and_changes_the_tag(account: RunningAccount) -> None:
    first = account.journal.create_item({"id": "000", "session": "DL1742"})

    second = account.journal.replace_item("000", {"id": "000", "session": "DL1742"})

    assert second["_rid"] == first["_rid"]
    assert second["_etag"] != first["_etag"]


def test_an_upsert_creates_and_then_replaces(account: RunningAccount) -> None:
    account.journal.upsert_item({"id": "000", "session": "DL1742", "n": 1})
    account.journal.upsert_item({"id": "000", "session": "DL1742", "n": 2})

    assert account.journal.read_item("000", "DL1742")["n"] == 2
    assert account.counted("upsert") == {"201": 1, "200": 1}


def test_an_upsert_under_a_stale_tag_is_refused(account: RunningAccount) -> None:
    first = account.journal.create_item({"id": "000", "session": "DL1742", "n": 1})
    account.journal.upsert_item({"id": "000", "session": "DL1742", "n": 2})

    with pytest.raises(CosmosAccessConditionFailedError):
        account.journal.upsert_item(
            {"id": "000", "session": "DL1742", "n": 3},
            etag=first["_etag"],
            match_condition=MatchConditions.IfNotModified,
        )


def test_a_deleted_item_is_gone_and_its_id_is_free_again(account: RunningAccount) -> None:
    first = account.journal.create_item({"id": "000", "session": "DL1742"})

    account.journal.delete_item("000", "DL1742")

    with pytest.raises(CosmosResourceNotFoundError):
        account.journal.read_item("000", "DL1742")
    again = account.journal.create_item({"id": "000", "session": "DL1742"})
    assert again["_etag"] != first["_etag"]
    assert again["_rid"] != first["_rid"]


def test_a_delete_under_a_stale_tag_is_refused(account: RunningAccount) -> None:
    first = account.journal.create_item({"id": "000", "session": "DL1742"})
    account.journal.replace_item("000", {"id": "000", "session": "DL1742"})

    with pytest.raises(CosmosAccessConditionFailedError):
        account.journal.delete_item(
            "000",
            "DL1742",
            etag=first["_etag"],
            match_condition=MatchConditions.IfNotModified,
        )


def test_replacing_or_deleting_what_is_absent_is_not_found(account: RunningAccount) -> None:
    with pytest.raises(CosmosResourceNotFoundError):
        account.journal.replace_item("000", {"id": "000", "session": "DL1742"})
    with pytest.raises(CosmosResourceNotFoundError):
        account.journal.delete_item("000", "DL1742")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"id": "a/b", "session": "s"}, "forbidden characters"),
        ({"id": "a\\b", "session": "s"}, "forbidden characters"),
        ({"id": "a?b", "session": "s"}, "forbidden characters"),
        ({"id": "a#b", "session": "s"}, "forbidden characters"),
        ({"id": "é" * 512, "session": "s"}, "1023 bytes"),
        ({"id": 7, "session": "s"}, "not a string"),
        ({"id": "a", "session": "s", "ttl": 0}, "ttl"),
        ({"id": "a", "session": ["s"]}, "partition key"),
        ({"id": "a", "session": "s" * 3000}, "2048 bytes"),
        ({"id": "a", "session": "s", "text": "half \ud800"}, "surrogate"),
    ],
)
def test_a_document_against_the_rules_is_refused_with_the_reason(
    account: RunningAccount, document: dict[str, Any], reason: str
) -> None:
    key = {"x-ms-documentdb-partitionkey": json.dumps([document["session"]])}

    status, answer = account.send("POST", ITEMS, document, key)

    assert status == 400
    assert reason in answer["message"]


def test_an_id_of_1023_bytes_is_accepted(account: RunningAccount) -> None:
    longest = "a" + "é" * 511

    account.journal.create_item({"id": longest, "session": "DL1742"})

    assert account.journal.read_item(longest, "DL1742")["id"] == longest


def test_an_item_above_two_megabytes_is_refused(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError) as refusal:
        account.journal.create_item({"id": "0", "session": "s", "text": "x" * 2 * 1024 * 1024})

    assert refusal.value.status_code == 413


def test_a_key_that_is_not_the_documents_is_refused(account: RunningAccount) -> None:
    key = {"x-ms-documentdb-partitionkey": '["UA88"]'}

    status, answer = account.send("POST", ITEMS, {"id": "000", "session": "DL1742"}, key)

    assert status == 400
    assert "differs" in answer["message"]


def test_keys_may_be_numbers_booleans_null_or_absent(account: RunningAccount) -> None:
    keys: list[Any] = [17, 2.5, True, None, {}]
    for at, key in enumerate(keys):
        document = {"id": f"i{at}"} if key == {} else {"id": f"i{at}", "session": key}
        account.journal.create_item(document)

    for at, key in enumerate(keys):
        assert account.journal.read_item(f"i{at}", key)["id"] == f"i{at}"


def test_a_document_of_128_levels_is_accepted(account: RunningAccount) -> None:
    deep: list[Any] = []
    for _ in range(126):
        deep = [deep]

    account.journal.create_item({"id": "0", "session": "s", "deep": deep})

    assert account.journal.read_item("0", "s")["deep"] == deep


def test_a_wrong_account_key_is_unauthorized(account: RunningAccount) -> None:
    wrong = "d3Jvbmcga2V5IHdyb25nIGtleQ=="

    with pytest.raises(HttpResponseError) as refusal:
        CosmosClient(account.cosmos.endpoint, wrong)

    assert refusal.value.status_code == 401
    assert "signature" in str(refusal.value)


def test_patch_is_refused_by_name(account: RunningAccount) -> None:
    account.journal.create_item({"id": "000", "session": "DL1742"})

    with pytest.raises(CosmosHttpResponseError, match="PATCH") as refusal:
        account.journal.patch_item("000", "DL1742", [{"op": "add", "path": "/n", "value": 1}])

    assert refusal.value.status_code == 400


def test_stored_procedures_are_refused_by_name(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError, match="stored procedures"):
        list(account.journal.scripts.list_stored_procedures())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not JSON"),
        ('{"id": "0", "session": "s", "n": NaN}', "NaN"),
        ("[1]", "must be a JSON object"),
        ('{"id": "0", "session": "s", "deep": ' + "[" * 128 + "]" * 128 + "}", "128 levels"),
    ],
)
def test_a_body_that_is_no_document_is_refused(
    account: RunningAccount, body: str, reason: str
) -> None:
    key = {"x-ms-documentdb-partitionkey": '["s"]'}

    status, answer = account.send("POST", ITEMS, body, key)

    assert status == 400
    assert reason in answer["message"]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"x-ms-consistency-level": "Telepathic"}, "Telepathic"),
        ({"x-ms-documentdb-pre-trigger-include": "check"}, "pre-triggers"),
        ({"x-ms-documentdb-partitionkeyrangeid": "7"}, "range"),
        ({"If-None-Match": "*"}, "If-None-Match on a write"),
        ({"x-ms-cosmos-is-batch-request": "true"}, "not atomic"),
    ],
)
def test_a_header_that_is_not_honoured_is_refused_by_name(
    account: RunningAccount, headers: dict[str, str], reason: str
) -> None:
    key = {"x-ms-documentdb-partitionkey": '["DL1742"]'}

    status, answer = account.send("POST", ITEMS, {"id": "0", "session": "DL1742"}, key | headers)

    assert status in (400, 410)
    assert reason in answer["message"]


def test_a_request_without_authorization_is_refused(account: RunningAccount) -> None:
    status, answer = account.send("GET", "/", headers={"authorization": ""})

    assert status == 401
    assert "missing" in answer["message"]


def test_charges_follow_the_table(account: RunningAccount) -> None:
    charges = []

    def keep(headers: Any, _: Any = None) -> None:
        charges.append(float(headers["x-ms-request-charge"]))

    small = {"id": "000", "session": "DL1742"}
    large = {"id": "100", "session": "DL1742", "text": "x" * 99 * 1024}
    account.journal.create_item(small, response_hook=keep)
    account.journal.create_item(large, response_hook=keep)
    account.journal.replace_item("000", small, response_hook=keep)
    account.journal.read_item("000", "DL1742", response_hook=keep)
    account.journal.read_item("100", "DL1742", response_hook=keep)
    account.journal.delete_item("000", "DL1742", response_hook=keep)

    assert charges == [6.0, 50.5, 12.0, 2.0, 20.0, 5.5]


def test_an_item_is_gone_when_its_time_to_live_is_over(account: RunningAccount) -> None:
    clock = account.clock
    assert isinstance(clock, Clock)
    account.journal.create_item({"id": "short", "session": "DL1742", "ttl": 60})
    account.journal.create_item({"id": "long", "session": "DL1742"})

    clock.seconds += 59
    assert account.journal.read_item("short", "DL1742")["ttl"] == 60
    clock.seconds += 1

    with pytest.raises(CosmosResourceNotFoundError):
        account.journal.read_item("short", "DL1742")
    assert account.journal.create_item({"id": "short", "session": "DL1742"})["id"] == "short"
    assert account.journal.read_item("long", "DL1742")["id"] == "long"


def test_time_to_live_means_nothing_where_the_container_has_it_switched_off(
    account: RunningAccount,
) -> None:
    clock = account.clock
    assert isinstance(clock, Clock)
    account.flights.create_item({"id": "short", "tail": "N1", "ttl": 1})

    clock.seconds += 1000

    assert account.flights.read_item("short", "N1")["id"] == "short"


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
