"""A saga from its start to its end, whichever worker is lost on the way."""

from collections.abc import Awaitable, Callable

from functions.handlers import orders
from shared.domain.errors import LockstepError
from shared.domain.saga.plan import SagaState
from shared.testkit.injected_faults import FaultPlan, ProcessKilled
from tests.saga_stage import Stage, Walk, stocked
from tests.world import REGIONS


async def walked(placed: str, event: str | None, end: SagaState, fault_plan: FaultPlan) -> Stage:
    """Place an order, let an event come, and walk to the end; the stage before is not struck."""
    fault_plan.is_over = True
    stage = await stocked(Stage(orders.handlers, fault_plan), ["p", "q"], 100)
    fault_plan.is_over = False
    await insist(lambda region: stage.book(region).start("o-1", "order.place", placed.encode()))
    if event is not None:
        await insist(lambda region: stage.book(region).add_event("o-1", event))

    async def walk(region: str) -> SagaState:
        found = await stage.book(region).load("o-1")
        if isinstance(found, SagaState):
            return found
        return await Walk(stage, region, found).run()

    assert await insist(walk) is end
    return stage


async def insist[T](work: Callable[[str], Awaitable[T]]) -> T:
    """Do it in the east, then in the west, until a worker lives to say that it is done."""
    for region in REGIONS * 2:
        try:
            return await work(region)
        except (LockstepError, ProcessKilled):
            continue
    raise AssertionError("no worker came to the end")
