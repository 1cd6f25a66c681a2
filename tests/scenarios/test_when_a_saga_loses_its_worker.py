"""A worker dies around every step and compensation, and every call to the store goes wrong."""

from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import product

import pytest

from functions.handlers import orders
from shared.domain.saga.plan import SagaState
from shared.testkit.injected_faults import (
    PASSING_FAULTS,
    CallFault,
    FaultPlan,
    ProcessKilled,
)
from tests.saga_stage import STAND_BY_SECONDS, Stage, Walk, order, stocked
from tests.saga_walks import walked

SESSIONS = ("stock:p", "stock:q", "account:ada", "order:o-1", "saga:o-1")

# What is ordered, which event comes, and how the saga ends.
COURSES = {
    "completed": (order(("p", 60), ("q", 5), approval=30), "approved", SagaState.COMPLETED),
    "rejected": (order(("p", 60), ("q", 5), approval=30), "rejected", SagaState.COMPENSATED),
    "timed out": (order(("p", 60), ("q", 5), approval=30), None, SagaState.COMPENSATED),
    "sold out": (order(("p", 60), ("q", 500)), None, SagaState.COMPENSATED),
    "one line": (order(("p", 60)), None, SagaState.COMPLETED),
    "one line too dear": (order(("p", 60), amount=5000), None, SagaState.COMPENSATED),
    "too dear": (order(("p", 60), ("q", 5), amount=5000), None, SagaState.COMPENSATED),
}

type Recover = Callable[[Walk], Awaitable[SagaState]]


async def begun(course: str, fault_plan: FaultPlan | None = None) -> Stage:
    """A stage on which the saga has started and its event has come."""
    placed, event, _ = COURSES[course]
    stage = await stocked(Stage(orders.handlers, fault_plan), ["p", "q"], 100)
    await stage.start("o-1", placed)
    if event is not None:
        await stage.book().add_event("o-1", event)
    return stage


async def undisturbed(course: str) -> tuple[Stage, Walk]:
    """A walk to the end in which nothing goes wrong."""
    stage = await begun(course)
    walk = await stage.walk("o-1")
    assert await walk.run() is COURSES[course][2]
    return stage, walk


async def replay(walk: Walk) -> SagaState:
    """The same instance goes on in another worker of its region: Durable replays its history."""
    return await walk.run()


async def adopt(walk: Walk) -> SagaState:
    """The other region stands by, finds that the saga is not over, and walks it from the start.

    Then the dead one comes back and goes on.
    """
    adopted = await Walk(walk.stage, "west", walk.saga, STAND_BY_SECONDS).run()
    assert await walk.run() is adopted
    return adopted


def assert_the_same(stage: Stage, quiet: Stage) -> None:
    """Every session is as if nothing had gone wrong, and took each message once."""
    for session in SESSIONS:
        left, expected = dict(stage.state(session)), dict(quiet.state(session))
        assert left == expected, session
    assert [taken for taken, times in Counter(stage.taken()).items() if times > 1] == []
    assert sorted(stage.taken()) == sorted(quiet.taken())


@pytest.mark.parametrize("recover", [replay, adopt])
@pytest.mark.parametrize("course", COURSES)
async def test_before_and_after_every_activity(course: str, recover: Recover) -> None:
    quiet, whole = await undisturbed(course)
    assert whole.activities >= 5

    for dies_at, dies_before in product(range(whole.activities), (True, False)):
        stage = await begun(course)
        walk = await stage.walk("o-1")
        walk.dies_at, walk.dies_before = dies_at, dies_before
        with pytest.raises(ProcessKilled):
            await walk.run()
        walk.dies_at = None

        assert await recover(walk) is COURSES[course][2]
        assert_the_same(stage, quiet)


@pytest.mark.parametrize("how", PASSING_FAULTS)
@pytest.mark.parametrize("course", ["one line", "one line too dear"])
async def test_around_every_call_to_the_store(course: str, how: CallFault) -> None:
    counting = FaultPlan()
    quiet = await walked(*COURSES[course], counting)
    calls = len(counting.made)
    assert calls > 10

    for at in range(calls):
        stage = await walked(*COURSES[course], FaultPlan({at: how}))
        assert_the_same(stage, quiet)
