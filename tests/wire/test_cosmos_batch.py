"""Transactional batches, as the service documents them, through both clients: all or nothing."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from tests.wire.cosmos_account import RunningAccount, running_account
from tests.wire.cosmos_clients import done

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
            ("create", (entry("001"),)),
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
