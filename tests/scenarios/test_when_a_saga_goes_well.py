"""What a saga costs when nothing fails: Durable actions and strong writes, counted and printed."""

import pytest

from functions.handlers import orders
from shared.domain.saga.plan import SagaState
from tests.saga_stage import STAND_BY_SECONDS, Stage, Walk, order, stocked

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
