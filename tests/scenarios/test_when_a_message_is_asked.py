"""Clients ask over HTTP: a message acts once by its key, in its turn, and every client is told."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions.http.ingest import accept
from shared.domain.handler import Context, Handled
from shared.domain.producer import HTTP_GROUP
from shared.engine.build import Services
from shared.testkit.injected_faults import CallFault
from tests.asking import ask as request
from tests.asking import document
from tests.business import BusinessWorld
from tests.loop_clock import LoopClock, in_world
from tests.world import REGIONS, SKIP, Account, Amount, booked, in_place_of

SESSION = "acc-7"
DAY_SECONDS = 24 * 3600


def answering(clock: Any = None) -> BusinessWorld:
    """Two regions whose accounts answer, too."""
    world = BusinessWorld(clock=clock)

    @world.handlers.register("account.ask", state=Account, body=Amount)
    def ask(account: Account, body: Amount, _: Context) -> Handled[Account]:
        return Handled(booked(account, body), answer=booked(account, body))

    return world


@pytest.fixture
def world() -> BusinessWorld:
    return answering()


async def post(
    worker: Services,
    key: str = "k-1",
    amount: int = 1,
    *,
    prefer: str | None = "wait=10",
    kind: str = "account.ask",
    time: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """Status and document of one request."""
    headers = {"Idempotency-Key": key} | ({"Prefer": prefer} if prefer else {})
    query = {"type": kind} | ({"time": time} if time else {})
    body = f'{{"amount":{amount}}}'
    response = await accept(
        worker, request(body, headers=headers, route={"session": SESSION}, query=query)
    )
    if response.status_code in (200, 202, 422):
        assert response.headers.get("Preference-Applied") == prefer
    return response.status_code, document(response)


async def publish(worker: Services, key: str = "k-1", amount: int = 1) -> tuple[int, Any]:
    """Status and document, or the name of the error, of a request that a proxy stripped."""
    status, found = await post(worker, key, amount, prefer=None)
    return status, found.get("type") or found["sequence"]


async def deliver(world: BusinessWorld) -> None:
    """Both regions take what is in their queues."""
    for region in REGIONS:
        for sent in world.bus.messages(region, "in"):
            await getattr(world, region).consumer.consume(sent)


def answered(position: int, *amounts: int) -> tuple[int, dict[str, Any]]:
    said = {"session": SESSION, "message": "k-1", "answer": {"amounts": [*amounts]}}
    return 200, said | {"position": position, "version": position}


async def test_it_acts_once_and_every_region_gives_the_same_answer_at_any_time(
    world: BusinessWorld,
) -> None:
    first = await post(world.east)
    await post(world.east, "k-2", 2)
    world.clock.seconds += 5 * DAY_SECONDS

    again = [await post(getattr(world, region)) for region in REGIONS]

    assert first == answered(0, 1)
    assert again == [first, first]
    assert world.amounts() == [1, 2]
    assert not [*world.bus.messages("east", "in"), *world.bus.messages("west", "in")]


async def test_when_both_namespaces_are_dead_it_is_answered_all_the_same(
    world: BusinessWorld,
) -> None:
    with world.without(*REGIONS):
        assert await post(world.west) == answered(0, 1)


async def test_what_has_no_answer_and_no_state_of_its_own_says_so(world: BusinessWorld) -> None:
    assert await post(world.east, kind="account.add") == (
        200,
        {"session": SESSION, "message": "k-1", "answer": None, "position": 0, "version": 0},
    )


async def test_when_no_time_is_given_it_is_that_of_the_arrival(world: BusinessWorld) -> None:
    world.clock.seconds += 5

    @world.handlers.register("account.date", state=Account, body=Amount)
    def date(account: Account, _: Amount, context: Context) -> Handled[Account]:
        return Handled(account, answer=Amount(amount=int(context.now.timestamp())))

    _, found = await post(world.east, kind="account.date")

    assert found["answer"] == {"amount": int(world.clock.today())}


async def test_when_its_handler_failed_and_others_go_on_the_reason_is_the_answer(
    world: BusinessWorld,
) -> None:
    for region in REGIONS:
        status, found = await post(getattr(world, region), kind="account.hint")

        assert (status, found["type"]) == (422, "MessageFaulted")
        assert found["detail"] == "ArithmeticError: hints are not taken"
        assert (found["position"], found["halts"]) == (0, False)


async def test_when_a_fault_stops_the_session_those_behind_it_are_told_once_it_is_decided() -> None:
    world = answering()
    status, fault = await post(world.east, "k-0", kind="account.burn")
    waiting = await post(world.west, prefer="wait=1")

    await world.east.resolver.resolve(SESSION, SKIP)

    assert (status, fault["halts"]) == (422, True)
    assert waiting == (
        202,
        {"session": SESSION, "message": "k-1", "see": f"sessions/{SESSION}"},
    )
    assert await post(world.west) == answered(3, 1)
    status, skipped = await post(world.west, "k-0", kind="account.burn")
    assert (status, skipped["halts"]) == (422, False)
    assert "by mistake" in skipped["detail"]
    assert world.amounts() == [1]


@in_world(lambda: answering(LoopClock()))
async def test_when_many_are_asked_at_once_they_share_entries_and_have_an_answer_each(
    world: BusinessWorld,
) -> None:
    before_each(world, "append", lambda: asyncio.sleep(9))
    # The third is the second once more, and the fifth fails.
    keys = ["k-1", "k-2", "k-2", "k-3", "k-0", "k-4"]
    kinds = ["account.ask"] * 4 + ["account.hint", "account.ask"]

    async def ask_all(worker: Services) -> list[tuple[int, Any]]:
        found = await asyncio.gather(
            *(post(worker, k, int(k[-1]), kind=kind) for k, kind in zip(keys, kinds, strict=True))
        )
        return [(status, one.get("answer", one.get("detail"))) for status, one in found]

    first = await ask_all(world.east)

    amounts = world.amounts()
    assert sorted(amounts) == [1, 2, 3, 4]
    assert [len(entry["identities"]) for entry in world.entries()] == [2, 1, 1, 1]
    until = {amount: amounts[: place + 1] for place, amount in enumerate(amounts)}
    assert first == [
        *((200, {"amounts": until[amount]}) for amount in (1, 2, 2, 3)),
        (422, "ArithmeticError: hints are not taken"),
        (200, {"amounts": until[4]}),
    ]
    assert [await ask_all(getattr(world, region)) for region in REGIONS] == [first] * 2
    assert world.amounts() == amounts


@in_world(lambda: answering(LoopClock()))
async def test_when_what_comes_first_ends_in_time_the_answer_is_waited_for(
    world: BusinessWorld,
) -> None:
    # Longer than a message waits in its call before it is parked.
    world.outside.before = lambda: asyncio.sleep(22)
    paying = asyncio.create_task(post(world.east, "k-0", 5, kind="account.pay"))
    await asyncio.sleep(13)

    assert await post(world.west, prefer="wait=10") == answered(1, 5, 1)
    status, slow = await paying
    assert (status, slow["type"]) == (503, "OutcomeUnknown")
    # What was under way went on: it was not cut off with its caller's patience.
    assert (await post(world.east, "k-0", 5, kind="account.pay"))[0] == 200
    assert [amount for _, amount in world.outside.asked] == [5]


async def test_when_the_key_was_used_for_something_else_it_is_a_conflict(
    world: BusinessWorld,
) -> None:
    await post(world.east)

    for region in REGIONS:
        status, found = await post(getattr(world, region), amount=2)
        assert (status, found["type"]) == (409, "ContentConflict")
    assert world.amounts() == [1]


async def test_when_it_is_older_than_the_window_it_is_refused_by_name(
    world: BusinessWorld,
) -> None:
    old = (datetime.now(UTC) - timedelta(days=4_000)).isoformat()

    status, found = await post(world.east, time=old)

    assert (status, found["type"]) == (410, "TooOld")
    assert world.amounts() == []


async def test_when_its_entry_is_gone_nobody_acts_again(world: BusinessWorld) -> None:
    await post(world.east)
    await post(world.east, "k-2")
    del world.journal.partitions[SESSION]["000000000000"]

    status, found = await post(world.west)

    assert (status, found["type"]) == (410, "TooOld")
    assert world.amounts() == [1, 1]


async def test_when_its_handler_leaves_no_record_it_is_not_run(world: BusinessWorld) -> None:
    status, found = await post(world.east, kind="account.note")

    assert (status, found["type"]) == (400, "NotRecorded")
    assert "publish" in found["detail"]
    assert world.outside.asked == []


async def test_when_the_store_gives_no_answer_the_same_key_acts_once(world: BusinessWorld) -> None:
    for _ in range(20):
        world.journal.fault_plan.plan("append", CallFault.UNANSWERED)
    for _ in range(20):
        world.journal.fault_plan.plan("entry", CallFault.REFUSED)

    statuses = [(await post(world.west))[0] for _ in range(3)]
    world.journal.fault_plan.is_over = True

    assert statuses[0] == 503
    assert await post(world.west) == answered(0, 1)


# One key by both ways: a proxy strips `Prefer`, or a client's own retry drops it.


async def test_when_it_was_asked_publishing_it_changes_nothing(world: BusinessWorld) -> None:
    first = await post(world.east)

    again = [await publish(getattr(world, region)) for region in REGIONS]
    await publish(world.east, "k-2", 2)
    other = await publish(world.west, amount=3)
    await deliver(world)

    assert again == [(202, None), (202, None)]
    assert other == (409, "ContentConflict")
    assert world.amounts() == [1, 2]
    assert await post(world.west) == first


async def test_when_it_was_published_asking_waits_for_what_comes_of_it(
    world: BusinessWorld,
) -> None:
    assert await publish(world.east) == (202, 0)

    waiting = await post(world.west, prefer="wait=1")
    await deliver(world)

    assert waiting[0] == 202
    assert [await post(getattr(world, region)) for region in REGIONS] == [answered(0, 1)] * 2
    status, found = await post(world.west, amount=2)
    assert (status, found["type"]) == (409, "ContentConflict")
    assert world.amounts() == [1]


async def test_when_it_was_published_and_failed_asking_says_so(world: BusinessWorld) -> None:
    await post(world.east, prefer=None, kind="account.burn")
    await deliver(world)

    status, found = await post(world.west, kind="account.burn")

    assert (status, found["type"], found["halts"]) == (422, "MessageFaulted", True)


async def test_when_the_session_has_ended_who_asks_is_told(world: BusinessWorld) -> None:
    @world.handlers.register("account.close", state=Account, body=Amount)
    def close(account: Account, body: Amount, _: Context) -> Handled[Account]:
        return Handled(booked(account, body), ends=True)

    closed = await post(world.east, kind="account.close")

    for worker in (world.east, world.west):
        status, found = await post(worker, "k-2")
        assert (status, found["type"], found["position"]) == (409, "SessionEnded", 1)
        assert await post(worker, kind="account.close") == closed
    assert world.amounts() == [1]


async def test_when_what_was_published_is_compacted_asking_says_so(world: BusinessWorld) -> None:
    await publish(world.east)
    await publish(world.east, "k-2")
    await deliver(world)
    del world.journal.partitions[SESSION]["000000000000"]

    status, found = await post(world.worker("west"))

    assert (status, found["type"]) == (410, "TooOld")


def before_each(world: BusinessWorld, operation: str, do: Callable[[], Awaitable[Any]]) -> None:
    """Let something happen right before the next call of the journal."""

    @in_place_of(world.journal, operation, once=True)
    async def first(method: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Any:
        await do()
        return await method(*arguments, **named)


async def test_when_both_ways_take_a_key_at_the_same_moment_one_of_them_has_it(
    world: BusinessWorld,
) -> None:
    before_each(world, "append", lambda: publish(world.west))
    asked = await post(world.east, prefer="wait=1")
    await deliver(world)

    assert asked[0] == 202
    assert await post(world.east) == answered(0, 1)
    assert world.amounts() == [1]


async def test_when_an_ask_overtakes_a_publish_it_is_not_numbered(world: BusinessWorld) -> None:
    before_each(world, "save_ledger", lambda: post(world.west))

    assert await publish(world.east) == (202, None)

    assert world.bus.messages("east", "in") == []
    assert await publish(world.east, "k-2", 2) == (202, 0)
    await deliver(world)
    assert world.amounts() == [1, 2]
    ledger = await world.journal.ledger(SESSION, HTTP_GROUP)
    assert ledger is not None
    assert [bound.id for bound in ledger.ledger.remembered] == ["k-2"]
