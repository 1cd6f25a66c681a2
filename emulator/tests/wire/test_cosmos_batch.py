"""Transactional batches, as the service documents them, through both clients: all or nothing."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from wire.cosmos_account import RunningAccount, running_account
from wire.cosmos_clients import done

pytestmark = pytest.mark.wire


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        yield running


def entry(item_id: str, **rest: Any) -> dict[str, Any]:
    """An item of the one session these tests use."""
    return {"id": item_id, "session": "DL1742", **rest}


def ids(account: RunningAccount) -> list[str]:
    """The ids in that session, in order."""
    query = account.journal.query_items("SELECT VALUE c.id FROM c", partition_key="DL1742")
    return [str(one) for one in query]


async def run(journal: Any, operations: list[Any]) -> list[Any]:
    """The results of a batch in that session; the client keeps nothing as it was given."""
    batch = deepcopy(operations)
    return list(await done(journal.execute_item_batch(batch, partition_key="DL1742")))


async def test_a_batch_applies_every_kind_of_operation_in_order(
    account: RunningAccount, journal: Any
) -> None:
    head = account.journal.create_item(entry("000", n=1))
    account.journal.create_item(entry("gone"))

    results = await run(
        journal,
        [
            ("read", ("000",)),
            ("create", (entry("001"),), {"if_none_match_etag": "*"}),
            ("replace", ("000", entry("000", n=2)), {"if_match_etag": head["_etag"]}),
            ("patch", ("000", [{"op": "incr", "path": "/n", "value": 1}])),
            ("upsert", (entry("001", n=3),)),
            ("delete", ("gone",)),
        ],
    )

    assert [one["statusCode"] for one in results] == [200, 201, 200, 200, 200, 204]
    assert results[0]["resourceBody"]["n"] == 1
    assert results[4]["eTag"] == account.journal.read_item("001", "DL1742")["_etag"]
    assert results[3]["resourceBody"] == account.journal.read_item("000", "DL1742")
    assert results[3]["resourceBody"]["n"] == 3
    assert ids(account) == ["000", "001"]


@pytest.mark.parametrize(
    ("failing", "status"),
    [
        (("create", (entry("000"),)), 409),
        (("read", ("missing",)), 404),
        (("replace", ("missing", entry("missing"))), 404),
        (("replace", ("000", entry("000")), {"if_match_etag": '"stale"'}), 412),
        (("upsert", (entry("000"),), {"if_match_etag": '"stale"'}), 412),
        (("delete", ("missing",)), 404),
        (("delete", ("000",), {"if_match_etag": '"stale"'}), 412),
        (("patch", ("missing", [{"op": "add", "path": "/n", "value": 1}])), 404),
        (("patch", ("000", [{"op": "remove", "path": "/absent"}])), 400),
        (("create", ({"id": "other", "session": "UA88"},)), 400),
        (("create", (entry("a/b"),)), 400),
    ],
)
async def test_one_failing_operation_undoes_the_whole_batch(
    account: RunningAccount, journal: Any, failing: Any, status: int
) -> None:
    account.journal.create_item(entry("000", n=1))
    around = [("create", (entry("001"),)), ("upsert", (entry("000", n=2),))]

    with pytest.raises(CosmosBatchOperationError) as failure:
        await run(journal, [*around, failing, ("create", (entry("002"),))])

    codes = [one["statusCode"] for one in failure.value.operation_responses]
    assert codes == [424, 424, status, 424]
    assert (failure.value.error_index, failure.value.status_code) == (2, status)
    assert ids(account) == ["000"]
    assert account.journal.read_item("000", "DL1742")["n"] == 1


async def test_a_failed_batch_leaves_no_trace_in_the_change_feed(
    account: RunningAccount, journal: Any
) -> None:
    account.journal.create_item(entry("000"))

    with pytest.raises(CosmosBatchOperationError):
        await run(journal, [("create", (entry("001"),)), ("create", (entry("000"),))])
    account.journal.create_item(entry("002"))

    feed = account.journal.query_items_change_feed(start_time="Beginning")
    assert [one["id"] for one in feed] == ["000", "002"]


async def test_a_batch_of_a_hundred_is_accepted_and_one_more_refused(
    account: RunningAccount, journal: Any
) -> None:
    creates = [("create", (entry(f"{at:03}"),)) for at in range(101)]

    await run(journal, creates[:100])
    with pytest.raises(CosmosHttpResponseError, match="100") as refusal:
        await run(journal, creates)

    assert refusal.value.status_code == 400
    assert ids(account) == [f"{at:03}" for at in range(100)]


async def test_a_batch_above_two_megabytes_is_refused(
    account: RunningAccount, journal: Any
) -> None:
    with pytest.raises(CosmosHttpResponseError) as refusal:
        await run(journal, [("create", (entry(f"{at}", text="x" * 1_100_000),)) for at in range(2)])

    assert refusal.value.status_code == 413
    assert ids(account) == []


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ({"operationType": "Execute", "id": "000"}, "Execute"),
        ({"operationType": "Read"}, "needs an id"),
        ({"operationType": "Read", "id": "000", "ifMatch": "x"}, "ifMatch on the batch operation"),
        ({"operationType": "Read", "id": "000", "ifNoneMatch": "x"}, "'ifNoneMatch' in a batch"),
        ({"operationType": "Create", "ifNoneMatch": '"1"'}, "'ifNoneMatch' in a batch"),
        ({"operationType": "Read", "id": "000", "partitionKey": "[1]"}, "of an atomic batch"),
        ({"operationType": ["Read"], "id": "000"}, "['Read']"),
    ],
)
def test_an_operation_that_is_not_offered_is_refused_by_name(
    account: RunningAccount, operation: dict[str, Any], reason: str
) -> None:
    headers = {
        "x-ms-documentdb-partitionkey": '["DL1742"]',
        "x-ms-cosmos-is-batch-request": "true",
        "x-ms-cosmos-batch-atomic": "true",
    }

    status, answer = account.send("POST", "/dbs/lockstep/colls/journal/docs", [operation], headers)

    assert status == 400
    assert reason in answer["message"]


def test_a_batch_counts_once_and_costs_the_sum_of_its_operations(account: RunningAccount) -> None:
    account.journal.execute_item_batch(
        [
            ("create", (entry("000"),)),
            ("create", (entry("001"),)),
            ("patch", ("001", [{"op": "add", "path": "/n", "value": 1}])),
            ("read", ("000",)),
        ],
        partition_key="DL1742",
    )

    row = account.counters.snapshot()["cosmos.journal"]["batch"]["200"]
    assert (row["count"], row["request_units"]) == (1, 6.0 + 6.0 + 12.0 + 2.0)
    assert account.counted("create") == {}


BULK = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "False"}
DIVIDED = "/dbs/lockstep/colls/divided/docs"
PKRANGE = "x-ms-documentdb-partitionkeyrangeid"


def fly(tail: str, item_id: str = "1") -> dict[str, Any]:
    """A create in bulk, as the JavaScript SDK writes it: the key is JSON in a text."""
    body = {"id": item_id, "tail": tail}
    return {"operationType": "Create", "partitionKey": f'["{tail}"]', "resourceBody": body}


def send_bulk(
    account: RunningAccount, operations: list[Any], headers: dict[str, str]
) -> tuple[int, list[dict[str, Any]]]:
    """The status of a request, and the results of its operations."""
    port = account.cosmos.port
    status, _, results = account.ask(port, "POST", DIVIDED, operations, headers)
    return status, results


def tails_by_range(account: RunningAccount) -> dict[int, list[str]]:
    """Some tails of each physical partition."""
    ring: dict[int, list[str]] = {}
    for number in range(40):
        account.divided.create_item({"id": "probe", "tail": f"N{number}"})
    for pkrange in range(5):
        headers = {PKRANGE: str(pkrange)}
        _, page = account.send("GET", DIVIDED, headers=headers)
        ring[pkrange] = sorted({one["tail"] for one in page["Documents"]})
    return ring


@pytest.mark.parametrize("goes_on", [True, False])
def test_operations_in_bulk_stand_alone_and_stop_at_an_error_unless_told_to_go_on(
    account: RunningAccount, goes_on: bool
) -> None:
    first, second, third = tails_by_range(account)[2][:3]
    operations = [fly(first), fly(second), fly(first), fly(third)]
    headers = BULK | {PKRANGE: "2", "x-ms-cosmos-batch-continue-on-error": str(goes_on)}

    status, results = send_bulk(account, operations, headers)

    query = "SELECT VALUE c.tail FROM c WHERE c.id = '1'"
    found = account.divided.query_items(query, enable_cross_partition_query=True)
    assert status == 207
    assert [one["statusCode"] for one in results] == [201, 201, 409, 201 if goes_on else 424]
    assert sorted(map(str, found)) == sorted([first, second, *([third] if goes_on else [])])


def test_bulk_for_another_physical_partition_is_gone_and_writes_nothing(
    account: RunningAccount,
) -> None:
    ring = tails_by_range(account)
    headers = BULK | {PKRANGE: "2", "x-ms-cosmos-batch-continue-on-error": "True"}

    status, results = send_bulk(account, [fly(ring[1][0]), fly(ring[2][0])], headers)

    assert status == 207
    assert [(one["statusCode"], one.get("subStatusCode")) for one in results] == [
        (410, 1002),
        (201, None),
    ]


def test_bulk_without_a_key_and_text_that_cannot_be_stored_fail_alone(
    account: RunningAccount,
) -> None:
    half = fly("N1", "half")
    half["resourceBody"]["text"] = "\ud800"
    nameless = {key: value for key, value in fly("N1").items() if key != "partitionKey"}
    number = fly("N1") | {"partitionKey": 7}
    headers = BULK | {"x-ms-cosmos-batch-continue-on-error": "True"}

    operations = [half, nameless, number, fly("N1", "good")]
    status, results = send_bulk(account, operations, headers)

    assert (status, [one["statusCode"] for one in results]) == (207, [400, 400, 400, 201])
    assert account.divided.read_item("good", "N1")["tail"] == "N1"


def test_a_batch_of_nothing_is_refused_in_the_words_that_clients_look_for(
    account: RunningAccount,
) -> None:
    status, answer = account.send("POST", DIVIDED, [], BULK)

    assert (status, answer["message"]) == (400, "Batch request has no operations.")
