"""Transactional batches: all or nothing, one operation after the other, isolated."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient as AsyncCosmosClient
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from tests.wire.cosmos_account import RunningAccount, running_account

pytestmark = pytest.mark.wire

WRITERS = 50
WON = 200


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


def test_a_batch_applies_every_kind_of_operation_in_order(account: RunningAccount) -> None:
    head = account.journal.create_item(entry("000", n=1))
    account.journal.create_item(entry("gone"))

    results = account.journal.execute_item_batch(
        [
            ("read", ("000",)),
            ("create", (entry("001"),)),
            ("replace", ("000", entry("000", n=2)), {"if_match_etag": head["_etag"]}),
            ("upsert", (entry("001", n=3),)),
            ("delete", ("gone",)),
        ],
        partition_key="DL1742",
    )

    assert [one["statusCode"] for one in results] == [200, 201, 200, 200, 204]
    assert results[0]["resourceBody"]["n"] == 1
    assert results[3]["eTag"] == account.journal.read_item("001", "DL1742")["_etag"]
    assert account.journal.read_item("000", "DL1742")["n"] == 2
    assert ids(account) == ["000", "001"]


@pytest.mark.parametrize(
    ("failing", "status"),
    [
        (("create", (entry("000"),)), 409),
        (("read", ("missing",)), 404),
        (("replace", ("missing", entry("missing"))), 404),
        (("replace", ("000", entry("000")), {"if_match_etag": '"stale"'}), 412),
        (("delete", ("missing",)), 404),
        (("create", ({"id": "other", "session": "UA88"},)), 400),
        (("create", (entry("a/b"),)), 400),
    ],
)
def test_one_failing_operation_undoes_the_whole_batch(
    account: RunningAccount, failing: Any, status: int
) -> None:
    account.journal.create_item(entry("000", n=1))

    with pytest.raises(CosmosBatchOperationError) as failure:
        account.journal.execute_item_batch(
            [
                ("create", (entry("001"),)),
                ("upsert", (entry("000", n=2),)),
                failing,
                ("create", (entry("002"),)),
            ],
            partition_key="DL1742",
        )

    codes = [one["statusCode"] for one in failure.value.operation_responses]
    assert codes == [424, 424, status, 424]
    assert (failure.value.error_index, failure.value.status_code) == (2, status)
    assert ids(account) == ["000"]
    assert account.journal.read_item("000", "DL1742")["n"] == 1


def test_a_failed_batch_leaves_no_trace_in_the_change_feed(account: RunningAccount) -> None:
    account.journal.create_item(entry("000"))

    with pytest.raises(CosmosBatchOperationError):
        account.journal.execute_item_batch(
            [("create", (entry("001"),)), ("create", (entry("000"),))], partition_key="DL1742"
        )
    account.journal.create_item(entry("002"))

    feed = account.journal.query_items_change_feed(start_time="Beginning")
    assert [one["id"] for one in feed] == ["000", "002"]


def test_a_batch_of_a_hundred_is_accepted_and_one_more_refused(account: RunningAccount) -> None:
    creates = [("create", (entry(f"{at:03}"),)) for at in range(101)]

    account.journal.execute_item_batch(creates[:100], partition_key="DL1742")
    with pytest.raises(CosmosHttpResponseError, match="100") as refusal:
        account.journal.execute_item_batch(creates, partition_key="DL1742")

    assert refusal.value.status_code == 400
    assert ids(account) == [f"{at:03}" for at in range(100)]


def test_a_batch_above_two_megabytes_is_refused(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError) as refusal:
        account.journal.execute_item_batch(
            [("create", (entry(f"{at}", text="x" * 1_100_000),)) for at in range(2)],
            partition_key="DL1742",
        )

    assert refusal.value.status_code == 413
    assert ids(account) == []


def test_patch_in_a_batch_is_refused_by_name(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError, match="Patch"):
        account.journal.execute_item_batch(
            [("patch", ("000", [{"op": "add", "path": "/n", "value": 1}]))], partition_key="DL1742"
        )


def test_a_batch_counts_once_and_costs_the_sum_of_its_operations(account: RunningAccount) -> None:
    account.journal.execute_item_batch(
        [("create", (entry("000"),)), ("create", (entry("001"),)), ("read", ("000",))],
        partition_key="DL1742",
    )

    row = account.counters.snapshot()["cosmos.journal"]["batch"]["200"]
    assert (row["count"], row["request_units"]) == (1, 6.0 + 6.0 + 2.0)
    assert account.counted("create") == {}


async def test_of_fifty_concurrent_batches_on_one_id_exactly_one_is_applied(
    account: RunningAccount,
) -> None:
    async with AsyncCosmosClient(account.cosmos.endpoint, account.cosmos.key) as client:
        journal = client.get_database_client("lockstep").get_container_client("journal")

        async def contend(writer: int) -> int:
            own = [("create", (entry(f"own-{writer}-{at}"),)) for at in range(3)]
            contested = ("create", (entry("000", writer=writer),))
            try:
                await journal.execute_item_batch([*own, contested], partition_key="DL1742")
            except CosmosBatchOperationError as failure:
                return failure.status_code or 0
            return WON

        outcomes = await asyncio.gather(*(contend(writer) for writer in range(WRITERS)))

    winners = [writer for writer, outcome in enumerate(outcomes) if outcome == WON]
    assert Counter(outcomes) == {WON: 1, 409: WRITERS - 1}
    assert ids(account) == ["000", *(f"own-{winners[0]}-{at}" for at in range(3))]
    assert account.journal.read_item("000", "DL1742")["writer"] == winners[0]
    assert account.counted("batch") == {"200": 1, "207": WRITERS - 1}


async def test_concurrent_read_modify_write_under_tags_loses_no_update(
    account: RunningAccount,
) -> None:
    account.journal.create_item(entry("total", n=0))
    async with AsyncCosmosClient(account.cosmos.endpoint, account.cosmos.key) as client:
        journal = client.get_database_client("lockstep").get_container_client("journal")

        async def increment() -> int:
            for tries in range(200):
                read = await journal.read_item("total", "DL1742")
                replacement = ("total", entry("total", n=read["n"] + 1))
                operation = ("replace", replacement, {"if_match_etag": read["_etag"]})
                try:
                    await journal.execute_item_batch([operation], partition_key="DL1742")
                except CosmosBatchOperationError:
                    continue
                return tries
            raise AssertionError("an increment never got through")

        refusals = sum(await asyncio.gather(*(increment() for _ in range(12))))

    assert account.journal.read_item("total", "DL1742")["n"] == 12
    assert refusals > 0, "the writers never met"
    assert account.counted("batch") == {"200": 12, "207": refusals}
