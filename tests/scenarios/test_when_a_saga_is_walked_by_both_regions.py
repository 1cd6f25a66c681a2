"""Two orchestrators walk one saga at once, in any order: they go the same way and act once."""

from collections import Counter
from random import Random

import pytest

from functions.handlers import orders
from shared.domain.saga.plan import Direction, SagaState
from shared.domain.saga.walk import CallAll, WalkRequest
from tests.saga_stage import Stage, Walk, order, stocked

COURSES = {
    "completed": (order(("p", 60), ("q", 5), approval=30), SagaState.COMPLETED),
    "sold out": (order(("p", 60), ("q", 500)), SagaState.COMPENSATED),
}


async def two_walks(placed: str) -> tuple[Stage, list[Walk]]:
    """A started saga, and an instance in each region that has done nothing yet."""
    stage = await stocked(Stage(orders.handlers), ["p", "q"], 100)
    await stage.start("o-1", placed)
    return stage, [await stage.walk("o-1", region) for region in ("east", "west")]


def assert_acted_once(stage: Stage) -> None:
    """No session took a message twice."""
    assert set(Counter(stage.taken()).values()) == {1}


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("seed", range(20))
async def test_request_by_request_in_any_order(course: str, seed: int) -> None:
    placed, end = COURSES[course]
    stage, walks = await two_walks(placed)
    if course == "completed":
        await stage.book().add_event("o-1", "approved")
    chance = Random(seed)
    going = [walk.steps() for walk in walks]
    while going:
        one = chance.choice(going)
        try:
            await anext(one)
        except StopAsyncIteration:
            going.remove(one)

    assert [walk.told[-1] for walk in walks] == [end, end]
    assert stage.record("o-1").state is end
    assert_acted_once(stage)
    assert stage.state("stock:p")["reserved"] == {}
    assert stage.state("stock:p")["shipped"] == (60 if end is SagaState.COMPLETED else 0)


@pytest.mark.parametrize("event", ["approved", "rejected"])
async def test_time_is_up_for_one_when_the_event_comes_to_the_other(event: str) -> None:
    ends = {}
    for event_is_first in (True, False):
        stage, (late, heard) = await two_walks(order(("p", 60), approval=30))
        if event_is_first:
            await stage.book("west").add_event("o-1", event)
        late.hears = False
        first = await late.run()
        told = await stage.book("west").add_event("o-1", event)
        second = await heard.run()

        assert first is second
        assert (told.reason is None) is event_is_first
        assert_acted_once(stage)
        ends[event_is_first] = first

    assert ends == {
        True: SagaState.COMPLETED if event == "approved" else SagaState.COMPENSATED,
        False: SagaState.COMPENSATED,
    }


async def test_time_that_is_up_is_up_for_both_before_anything_is_undone() -> None:
    stage, (late, heard) = await two_walks(order(("p", 60), approval=30))
    late.hears = False
    going = late.steps()
    while not is_undoing(await anext(going)):
        assert stage.state("account:ada")["paid"] == 0

    told = await stage.book("west").add_event("o-1", "approved")

    assert told.reason == "approval was decided: timeout:approval"
    assert await heard.run() is SagaState.COMPENSATED
    assert await late.run() is SagaState.COMPENSATED
    assert stage.state("stock:p") == {"received": 100, "left": 100, "shipped": 0, "reserved": {}}
    assert stage.state("account:ada")["paid"] == 0


def is_undoing(request: WalkRequest) -> bool:
    """Whether a walk asks for a compensation."""
    match request:
        case CallAll(calls):
            return any(call.work.get("direction") == Direction.UNDO for call in calls)
        case _:
            return False


async def test_one_gives_a_step_up_that_the_other_still_has_on_its_way() -> None:
    stage, (gives_up, slow) = await two_walks(order(("p", 60)))
    gives_up.silent = {"reserve.p"}

    first = await gives_up.run()
    second = await slow.run()

    assert (first, second) == (SagaState.COMPENSATED, SagaState.COMPENSATED)
    assert stage.state("stock:p") == {"received": 100, "left": 100, "shipped": 0, "reserved": {}}
    assert stage.state("order:o-1")["status"] == "cancelled"
    assert (
        stage.record("o-1").reason == "reserve.p: voided by its sender: its session gave no answer"
    )


async def test_one_wants_to_give_a_step_up_that_the_other_has_done() -> None:
    stage, (gives_up, quick) = await two_walks(order(("p", 60)))
    gives_up.silent = {"reserve.p"}
    going = quick.steps()
    while "stock:p" not in stage.entries() or stage.entries()["stock:p"] < 2:
        await anext(going)

    assert await gives_up.run() is SagaState.COMPLETED
    assert await quick.run() is SagaState.COMPLETED
    assert_acted_once(stage)
    assert stage.state("stock:p")["shipped"] == 60
