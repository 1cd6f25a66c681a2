"""Sagas run, compete, start twice and are told at the wrong time: each acts once, as planned."""

import asyncio
from collections import Counter

import pytest

from functions.handlers import orders
from shared.domain.errors import InvalidBody, UnknownType
from shared.domain.message import Message, Number
from shared.domain.saga.plan import SagaState
from shared.engine.sagas.sagas import SagaResponse
from tests.saga_stage import STAND_BY_SECONDS, Stage, Walk, order, stocked
from tests.sizes import IS_PROOF
from tests.world import REGIONS, require

# When a saga goes well: its Durable actions and strong writes, counted and printed.

# Name: what is ordered, whether it is approved, and how the saga ends.
COURSES = {
    "one line": (order(("p", 1)), None, SagaState.COMPLETED),
    "five lines": (order(*((f"p{n}", 1) for n in range(5))), None, SagaState.COMPLETED),
    "approved": (order(("p", 1), approval=60), "approved", SagaState.COMPLETED),
    "rejected": (order(("p", 1), approval=60), "rejected", SagaState.COMPENSATED),
    "sold out": (order(("p", 1), ("none", 1)), None, SagaState.COMPENSATED),
}


@pytest.mark.parametrize("course", COURSES)
async def test_actions_are_at_most_1_and_2_a_step_and_writes_2_and_1_a_step(course: str) -> None:
    placed, event, end = COURSES[course]
    stage = await stocked(Stage(orders.handlers), ["p", *(f"p{n}" for n in range(5))], 100)
    before = stage.fault_plan.calls.copy()
    await stage.start("o-1", placed)
    walk = await stage.walk("o-1")
    if event is not None:
        await stage.book().add_event("o-1", event)

    assert await walk.run() is end

    # A wait is a step, too: it is decided once, and recorded once.
    plan, done = walk.saga.plan, stage.record("o-1").outcomes
    steps = len(plan.steps) + len(plan.waits)
    actions = walk.activities + walk.timers
    writes = stage.fault_plan.calls["append"] - before["append"]
    undone = sum(outcome == "undone" for outcome in done.values())
    counted = f"{actions} actions, {writes} strong writes"
    print(f"{course}: {steps} steps, {undone} undone: {counted}")  # noqa: T201 - with pytest -s
    assert actions <= 1 + 2 * steps
    assert stage.fault_plan.calls["replace"] == 0
    if end is SagaState.COMPLETED:
        assert writes == steps + 2
    else:
        assert writes <= steps + undone + 2


async def test_the_other_region_stands_by_and_only_looks() -> None:
    stage = await stocked(Stage(orders.handlers), ["p"], 100)
    await stage.start("o-1", order(("p", 1)))
    walk = await stage.walk("o-1")
    await walk.run()
    before = stage.fault_plan.calls.copy()

    other = Walk(stage, "west", walk.saga, STAND_BY_SECONDS)

    assert await other.run() is SagaState.COMPLETED
    assert (other.timers, other.activities) == (1, 1)
    made = {
        call: n - before[call] for call, n in stage.fault_plan.calls.items() if n != before[call]
    }
    assert made == {"head": 1}


# When a saga is started twice, by request or by message, it begins once, with one content.

PLACED = order(("p", 60))
OTHER = order(("p", 61))
ONE_SOLD = {"received": 100, "left": 40, "shipped": 60, "reserved": {}}


@pytest.fixture
async def stage() -> Stage:
    return await stocked(Stage(orders.handlers), ["p"], 100)


async def test_from_both_regions_at_once_it_starts_once(stage: Stage) -> None:
    told = await asyncio.gather(*(stage.start("o-1", PLACED, region) for region in REGIONS))

    assert told == [ACCEPTED, ACCEPTED]
    assert len(stage.entries("saga:o-1")) == 1
    walks = [await stage.walk("o-1", region) for region in REGIONS]
    ends = await asyncio.gather(*(walk.run() for walk in walks))
    assert ends == [SagaState.COMPLETED, SagaState.COMPLETED]
    assert stage.state("stock:p")["shipped"] == 60


async def test_other_content_under_its_key_is_refused_even_after_its_end(stage: Stage) -> None:
    await stage.start("o-1", PLACED, "east")
    for _ in range(2):
        told = await stage.start("o-1", OTHER, "west")
        assert told == SagaResponse(is_accepted=False, reason="it was started with other content")
        if stage.record("o-1").state is SagaState.RUNNING:
            await (await stage.walk("o-1")).run()

    assert stage.record("o-1").state is SagaState.COMPLETED
    assert stage.state("stock:p")["shipped"] == 60


async def test_the_same_content_long_after_changes_nothing(stage: Stage) -> None:
    await stage.run("o-1", PLACED)
    before = stage.record("o-1")
    await stage.clock.sleep(30 * 24 * 3600)

    assert await stage.start("o-1", PLACED) == ACCEPTED
    assert stage.record("o-1") == before


async def test_a_numbered_message_starts_it_and_a_request_finds_it_started(stage: Stage) -> None:
    at = "2026-05-28T20:26:40+00:00"
    message = Message(
        "m-1", "saga:o-1", "order.place", PLACED.encode(), Number("shop", 0, 0), time=at
    )

    for region in REGIONS:
        await stage.worker(region).consumer.consume(message)
    told = await stage.start("o-1", PLACED)

    assert told == ACCEPTED
    assert stage.record("o-1").at == at
    assert await (await stage.walk("o-1")).run() is SagaState.COMPLETED


async def test_what_cannot_be_planned_starts_nothing_and_can_be_corrected(stage: Stage) -> None:
    with pytest.raises(InvalidBody, match="lines"):
        await stage.start("o-1", order())

    assert stage.entries("saga:o-1") == []
    assert await stage.run("o-1", PLACED) is SagaState.COMPLETED


# When a saga competes for stock, some are confirmed, and the others leave no trace.

ORDERS = 1_000 if IS_PROOF else 60
EACH = 3


async def test_of_two_orders_of_60_for_100_one_is_confirmed_and_40_are_left() -> None:
    for first, second in (REGIONS, REGIONS[::-1]):
        stage = await stocked(Stage(orders.handlers), ["p"], 100)
        ends = await asyncio.gather(
            stage.run("o-1", PLACED, first), stage.run("o-2", PLACED, second)
        )

        assert sorted(ends) == [SagaState.COMPENSATED, SagaState.COMPLETED]
        assert stage.state("stock:p") == ONE_SOLD
        (denied,) = [k for k in ("o-1", "o-2") if stage.record(k).state is SagaState.COMPENSATED]
        assert stage.record(denied).reason == "reserve.p: 40 left, 60 wanted"
        assert stage.state(f"order:{denied}")["status"] == "cancelled"
        assert stage.state("account:ada") == {"balance": 990, "paid": 10}


async def test_every_interleaving_of_two_reservations_keeps_the_stock() -> None:
    for turns in range(2**5):
        stage = await stocked(Stage(orders.handlers), ["p"], 100)
        for key in ("o-1", "o-2"):
            await stage.start(key, PLACED)
        going = [(await stage.walk(key)).steps() for key in ("o-1", "o-2")]
        for turn in range(5):
            await anext(going[turns >> turn & 1], None)
        for one in going:
            async for _ in one:
                pass

        ends = Counter(stage.record(key).state for key in ("o-1", "o-2"))
        assert ends == {SagaState.COMPLETED: 1, SagaState.COMPENSATED: 1}
        assert stage.state("stock:p") == ONE_SOLD


@pytest.mark.slow
async def test_many_orders_on_one_product_lose_and_invent_nothing() -> None:
    stage = await stocked(Stage(orders.handlers), ["p"], ORDERS, money=10 * ORDERS)
    for n in range(ORDERS):
        await stage.start(f"o-{n}", order(("p", EACH), amount=10))
    walks = [await stage.walk(f"o-{n}", ("east", "west")[n % 2]) for n in range(ORDERS)]

    # Side by side: each makes a step in turn, so that all reservations are open at once.
    going = [walk.steps() for walk in walks]
    while going:
        going = [one for one in going if await anext(one, None) is not None]

    ends = Counter(walk.told[-1] for walk in walks)
    assert ends == {
        SagaState.COMPLETED: ORDERS // EACH,
        SagaState.COMPENSATED: ORDERS - ORDERS // EACH,
    }
    left = ORDERS - ORDERS // EACH * EACH
    shipped = ORDERS - left
    expected = {"received": ORDERS, "left": left, "shipped": shipped, "reserved": {}}
    assert stage.state("stock:p") == expected
    assert stage.state("account:ada")["paid"] == 10 * ends[SagaState.COMPLETED]
    assert set(Counter(stage.taken()).values()) == {1}


# When a saga is told at the wrong time: early, late, twice or in contradiction.

WAITING = order(("p", 60), approval=3600)
UNTOUCHED = {"received": 100, "left": 100, "shipped": 0, "reserved": {}}


ACCEPTED = SagaResponse(is_accepted=True)


def refused(reason: str) -> SagaResponse:
    return SagaResponse(is_accepted=False, reason=reason)


@pytest.mark.parametrize(
    ("event", "end"), [("approved", SagaState.COMPLETED), ("rejected", SagaState.COMPENSATED)]
)
async def test_an_event_before_its_saga_is_kept(stage: Stage, event: str, end: SagaState) -> None:
    assert await stage.book("west").add_event("o-1", event) == ACCEPTED
    assert stage.record("o-1").state is SagaState.AWAITED

    assert await stage.run("o-1", WAITING) is end


@pytest.mark.parametrize("first", ["cancelled", "rejected"])
async def test_the_first_of_two_contradicting_events_decides(stage: Stage, first: str) -> None:
    await stage.start("o-1", WAITING)
    book = stage.book()
    deciding = book.cancel("o-1") if first == "cancelled" else book.add_event("o-1", first)
    assert await deciding == ACCEPTED
    late = await stage.book("west").add_event("o-1", "approved")

    assert late == refused(f"approval was decided: {first}")
    assert await (await stage.walk("o-1")).run() is SagaState.COMPENSATED
    assert stage.state("order:o-1")["status"] == "cancelled"
    assert not (await stage.book().add_event("o-1", "approved")).is_accepted
    assert stage.state("stock:p") == UNTOUCHED


async def test_cancelled_after_approved_turns_back_before_anything_is_paid(stage: Stage) -> None:
    await stage.start("o-1", WAITING)
    await stage.book().add_event("o-1", "approved")

    assert await stage.book("west").cancel("o-1") == ACCEPTED

    assert await (await stage.walk("o-1")).run() is SagaState.COMPENSATED
    assert stage.record("o-1").reason == "charge: voided by its sender: cancelled"
    assert stage.state("account:ada") == {"balance": 1000, "paid": 0}
    assert stage.state("stock:p") == UNTOUCHED


async def test_cancelled_beyond_the_final_stage_is_refused(stage: Stage) -> None:
    await stage.start("o-1", PLACED)
    walk = await stage.walk("o-1")
    going = walk.steps()
    while not stage.state("account:ada")["paid"]:
        await anext(going)

    told = await stage.book("west").cancel("o-1")

    assert told == refused("step 'charge' is done: no way back")
    assert await walk.run() is SagaState.COMPLETED


async def test_any_event_after_completed_is_refused(stage: Stage) -> None:
    await stage.book().add_event("o-1", "approved")
    await stage.run("o-1", WAITING)
    before = stage.state("order:o-1"), stage.state("stock:p")

    assert await stage.book().add_event("o-1", "rejected") == refused("the saga is completed")
    assert await stage.book().cancel("o-1") == refused("the saga is completed")
    assert (stage.state("order:o-1"), stage.state("stock:p")) == before


async def test_an_event_that_no_wait_knows_is_refused(stage: Stage) -> None:
    await stage.start("o-1", WAITING)

    told = await stage.book().add_event("o-1", "vanished")

    assert told == refused("the saga does not wait for 'vanished'")


async def test_a_saga_that_never_started_cannot_be_cancelled(stage: Stage) -> None:
    await stage.book().add_event("o-1", "approved")

    for key in ("o-1", "o-2"):
        assert await stage.book().cancel(key) == refused("it has not started")


async def test_documents_do_not_grow_with_what_is_over(stage: Stage) -> None:
    for n in range(8):
        await stage.run(f"o-{n}", order(("p", 2)))
        await stage.tell("stock:p", "stock.receive", '{"quantity":2}', name=str(n))
        for event in range(40):
            await stage.book().add_event("noise", f"event-{event}")

    assert stage.state("stock:p")["reserved"] == {}
    assert len(stage.record("noise").events) == 20
    head = require(stage.journal.newest("stock:p"))
    assert len(str(head)) < 1500


@pytest.mark.parametrize("kind", ["order.lose", "order.submit", "saga.end"])
async def test_a_start_of_no_sagas_kind_is_refused_by_name(stage: Stage, kind: str) -> None:
    with pytest.raises(UnknownType, match=kind):
        await stage.book().start("o-1", kind, b"{}")

    assert stage.entries("saga:o-1") == []
