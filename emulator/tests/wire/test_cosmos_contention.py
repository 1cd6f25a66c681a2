"""Two hundred workers want the same thing at once: one gets it, and nothing is ever half done."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from wire.cosmos_account import RunningAccount, running_account

pytestmark = pytest.mark.wire

WORKERS, CLIENTS = 200, 4
WON = 0  # the outcome of a worker; other outcomes are the status of its refusal

type Work = Callable[[ContainerProxy, int], Awaitable[Any]]


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        running.journal.create_item(entry("head", n=0))
        yield running


@pytest.fixture
async def journals(account: RunningAccount) -> AsyncIterator[list[ContainerProxy]]:
    """The journal as seen by several clients, each with connections of its own."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(CLIENTS):
            client = CosmosClient(account.cosmos.endpoint, account.cosmos.key)
            await stack.enter_async_context(client)
            found.append(client.get_database_client("lockstep").get_container_client("journal"))
        yield found


def entry(item_id: str, **rest: Any) -> dict[str, Any]:
    """An item of the one session these tests use."""
    return {"id": item_id, "session": "DL1742", **rest}


async def contend(journals: list[ContainerProxy], work: Work) -> list[int]:
    """The outcome of each worker."""

    async def outcome(worker: int) -> int:
        try:
            await work(journals[worker % CLIENTS], worker)
        except CosmosBatchOperationError as failure:
            return failure.status_code or -1
        except CosmosHttpResponseError as refusal:
            return refusal.status_code or -1
        return WON

    return await asyncio.gather(*(outcome(worker) for worker in range(WORKERS)))


def winner_of(outcomes: list[int], refusal: int) -> int:
    """The one worker that won, when all others were refused in the same way."""
    assert Counter(outcomes) == {WON: 1, refusal: WORKERS - 1}
    return outcomes.index(WON)


def stored(account: RunningAccount, item_id: str) -> dict[str, Any]:
    """An item as it is now, without its system properties."""
    read = account.journal.read_item(item_id, "DL1742")
    return {name: value for name, value in read.items() if not name.startswith("_")}


async def test_one_of_two_hundred_creates_an_item(
    account: RunningAccount, journals: list[ContainerProxy]
) -> None:
    outcomes = await contend(
        journals, lambda journal, worker: journal.create_item(entry("000", by=worker))
    )

    assert stored(account, "000") == entry("000", by=winner_of(outcomes, 409))


async def test_one_of_two_hundred_replaces_an_item_under_its_tag(
    account: RunningAccount, journals: list[ContainerProxy]
) -> None:
    tag = account.journal.read_item("head", "DL1742")["_etag"]

    outcomes = await contend(
        journals,
        lambda journal, worker: journal.replace_item(
            "head",
            entry("head", n=worker),
            etag=tag,
            match_condition=MatchConditions.IfNotModified,
        ),
    )

    assert stored(account, "head") == entry("head", n=winner_of(outcomes, 412))


async def test_one_of_two_hundred_patches_an_item_on_a_condition(
    account: RunningAccount, journals: list[ContainerProxy]
) -> None:
    outcomes = await contend(
        journals,
        lambda journal, worker: journal.patch_item(
            "head",
            "DL1742",
            [
                {"op": "set", "path": "/by", "value": worker},
                {"op": "incr", "path": "/n", "value": 1},
            ],
            filter_predicate="from c where NOT IS_DEFINED(c.by)",
        ),
    )

    assert stored(account, "head") == entry("head", n=1, by=winner_of(outcomes, 412))


async def test_two_hundred_increments_are_all_kept(
    account: RunningAccount, journals: list[ContainerProxy]
) -> None:
    increment = [{"op": "incr", "path": "/n", "value": 1}]

    outcomes = await contend(
        journals, lambda journal, _: journal.patch_item("head", "DL1742", increment)
    )

    assert Counter(outcomes) == {WON: WORKERS}
    assert stored(account, "head") == entry("head", n=WORKERS)


async def test_one_of_two_hundred_batches_is_applied_and_nobody_sees_a_half(
    account: RunningAccount, journals: list[ContainerProxy]
) -> None:
    def batch(journal: ContainerProxy, worker: int) -> Awaitable[Any]:
        own = [("create", (entry(f"own-{worker:03}-{at}"),)) for at in range(3)]
        count = ("patch", ("head", [{"op": "incr", "path": "/n", "value": 1}]))
        claim = ("create", (entry("000", by=worker),))
        return journal.execute_item_batch([*own, count, claim], partition_key="DL1742")

    seen: list[list[Any]] = []
    watching = asyncio.create_task(watch(journals[0], seen))
    outcomes = await contend(journals, batch)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)

    winner = winner_of(outcomes, 409)
    whole = ["000", *(f"own-{winner:03}-{at}" for at in range(3))]
    assert await ids(journals[0]) == ["000", "head", *whole[1:]]
    assert stored(account, "000") == entry("000", by=winner)
    assert stored(account, "head") == entry("head", n=1)
    assert len(seen) > 1
    assert all(one in (["head"], ["000", "head", *whole[1:]]) for one in seen)
    assert account.counted("batch") == {"200": 1, "207": WORKERS - 1}


async def watch(journal: ContainerProxy, seen: list[list[Any]]) -> None:
    """Note the ids of the session over and over, until cancelled."""
    while True:
        seen.append(await ids(journal))


async def ids(journal: ContainerProxy) -> list[Any]:
    """The ids of the session, in order."""
    query = journal.query_items("SELECT VALUE c.id FROM c ORDER BY c.id", partition_key="DL1742")
    return [one async for one in query]


async def test_concurrent_read_modify_write_under_tags_loses_no_update(
    account: RunningAccount, journals: list[ContainerProxy]
) -> None:
    async def increment(journal: ContainerProxy) -> int:
        for tries in range(200):
            read = await journal.read_item("head", "DL1742")
            replacement = ("head", entry("head", n=read["n"] + 1))
            operation = ("replace", replacement, {"if_match_etag": read["_etag"]})
            try:
                await journal.execute_item_batch([operation], partition_key="DL1742")
            except CosmosBatchOperationError:
                continue
            return tries
        raise AssertionError("an increment never got through")

    refusals = sum(await asyncio.gather(*(increment(journals[at % CLIENTS]) for at in range(12))))

    assert stored(account, "head") == entry("head", n=12)
    assert refusals > 0, "the writers never met"
    assert account.counted("batch") == {"200": 12, "207": refusals}
