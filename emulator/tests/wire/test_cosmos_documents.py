"""What a document and a request must be like, and what operations on items cost."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError

from wire.cosmos_account import RunningAccount, running_account

pytestmark = pytest.mark.wire

ITEMS = "/dbs/lockstep/colls/journal/docs"


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        yield running


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"id": "a/b", "session": "s"}, "forbidden characters"),
        ({"id": "a\\b", "session": "s"}, "forbidden characters"),
        ({"id": "a?b", "session": "s"}, "forbidden characters"),
        ({"id": "a#b", "session": "s"}, "forbidden characters"),
        ({"id": "é" * 512, "session": "s"}, "is not allowed"),
        ({"id": 7, "session": "s"}, "not a string"),
        ({"id": "a", "session": "s", "ttl": 0}, "ttl"),
        ({"id": "a", "session": ["s"]}, "partition key"),
        ({"id": "a", "session": "s" * 3000}, "2048 bytes"),
        ({"id": "a", "session": "s", "text": "half \ud800"}, "surrogate"),
        ({"id": "a", "session": "half \ud800"}, "surrogate"),
    ],
)
def test_a_document_against_the_rules_is_refused_with_the_reason(
    account: RunningAccount, document: dict[str, Any], reason: str
) -> None:
    key = {"x-ms-documentdb-partitionkey": json.dumps([document["session"]])}

    status, answer = account.send("POST", ITEMS, document, key)

    assert status == 400
    assert reason in answer["message"]


@pytest.mark.parametrize("item_id", ["a" + "é" * 511, "a\tb", "a\r\nb", "a%2Fb", "a "])
def test_an_id_of_1023_bytes_or_with_odd_characters_is_read_back(
    account: RunningAccount, item_id: str
) -> None:
    key = {"x-ms-documentdb-partitionkey": '["DL1742"]'}

    # The SDK itself refuses to write some of them.
    status, _ = account.send("POST", ITEMS, {"id": item_id, "session": "DL1742"}, key)

    assert status == 201
    assert account.journal.read_item(item_id, "DL1742")["id"] == item_id


def test_an_item_above_two_megabytes_is_refused(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError) as refusal:
        account.journal.create_item({"id": "0", "session": "s", "text": "x" * 2 * 1024 * 1024})

    assert refusal.value.status_code == 413


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_request_above_four_megabytes_is_refused(
    account: RunningAccount, is_chunked: bool
) -> None:
    pieces = [b"x" * 1024 * 1024] * 5
    connection = HTTPConnection("127.0.0.1", account.cosmos.port, timeout=60)
    # A body whose length is not known beforehand is sent in chunks.
    connection.request("POST", ITEMS, iter(pieces) if is_chunked else b"".join(pieces))
    with connection.getresponse() as response:
        status, answer = response.status, json.loads(response.read())
    connection.close()

    assert (status, answer["message"]) == (413, "a request may have 4194304 bytes at most")


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
        ({"x-ms-documentdb-pre-trigger-include": "check"}, "x-ms-documentdb-pre-trigger-include"),
        ({"X-MS-Indexing-Directive": "Exclude"}, "x-ms-indexing-directive"),
        ({"x-ms-documentdb-partitionkeyrangeid": "7"}, "range"),
        ({"If-None-Match": '"1"'}, "If-None-Match on a write"),
        (
            {
                "x-ms-cosmos-is-batch-request": "true",
                "x-ms-cosmos-batch-atomic": "true",
                "x-ms-cosmos-batch-continue-on-error": "true",
            },
            "atomic batches that continue on error",
        ),
    ],
)
def test_a_header_that_is_not_honoured_is_refused_by_name(
    account: RunningAccount, headers: dict[str, str], reason: str
) -> None:
    key = {"x-ms-documentdb-partitionkey": '["DL1742"]'}

    status, answer = account.send("POST", ITEMS, {"id": "0", "session": "DL1742"}, key | headers)

    assert status in (400, 410)
    assert reason in answer["message"]


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
