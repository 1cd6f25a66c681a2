"""Let every call that some work makes go wrong in every way, one at a time, and recover from it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import islice

import pytest

from shared.domain.errors import LockstepError
from shared.domain.handler import Handlers
from shared.domain.message import Message
from shared.engine.consume.consume import AGAIN
from shared.engine.worker import Policy
from shared.testkit.injected_faults import FaultPlan, ProcessKilled
from shared.testkit.memory_store import VirtualClock
from shared.testkit.regions import call_faults, consume_together
from tests.world import LAG_SECONDS, POLICY, World

type Work = Callable[[World], Awaitable[None]]


class FaultyWorld(World):
    """A world in which one call goes wrong."""

    def __init__(
        self,
        fault_plan: FaultPlan,
        handlers: Handlers,
        policy: Policy = POLICY,
        clock: Callable[[], VirtualClock] = VirtualClock,
    ) -> None:
        self.fault_plan = fault_plan
        super().__init__(clock(), policy=policy, handlers=handlers)
        self.journal.fault_plan = self.bus.fault_plan = fault_plan


async def worlds(
    work: Work,
    handlers: Handlers,
    policy: Policy = POLICY,
    clock: Callable[[], VirtualClock] = VirtualClock,
    every: int = 1,
) -> AsyncIterator[FaultyWorld]:
    """The work's undisturbed world first, then one for every call and every way of going wrong.

    With `every` only one in so many of these.
    """
    quiet = FaultyWorld(FaultPlan(), handlers, policy, clock)
    await work(quiet)
    quiet.fault_plan.is_over = True
    yield quiet
    for faults in islice(call_faults(len(quiet.fault_plan.made)), 0, None, every):
        faulty = FaultyWorld(FaultPlan(faults), handlers, policy, clock)
        await work(faulty)
        faulty.fault_plan.is_over = True
        yield faulty


async def assert_the_same_whatever_fails(
    work: Work,
    handlers: Handlers,
    amounts: Sequence[int],
    outputs: int,
    policy: Policy = POLICY,
    also: Work | None = None,
) -> None:
    """Whatever call goes wrong, effects happen once, and outputs are the same in both regions."""
    expected: list[tuple[str, bytes]] = []
    async for world in worlds(work, handlers, policy):
        expected = expected or sent(world, "east")
        assert len(expected) == outputs
        assert sent(world, "east") == sent(world, "west") == expected, world.fault_plan
        assert world.amounts() == [*amounts], world.fault_plan
        assert await world.pending() == [], world.fault_plan
        if also is not None:
            await also(world)


async def redelivered(world: World, *arrivals: Message) -> None:
    """Each message is delivered until a worker settles it, in the east and the west in turn."""
    for arriving in arrivals:
        await until_settled(world, [arriving])


async def until_settled(world: World, batch: Sequence[Message]) -> None:
    """Deliver a batch again to another worker until one settles it."""
    for attempt in range(6):
        worker = (world.east, world.west)[attempt % 2]
        try:
            await consume_together(worker, batch, AGAIN if attempt else 0)
        except (LockstepError, ProcessKilled):
            world.east, world.west = world.worker("east"), world.worker("west")
            world.clock.seconds += LAG_SECONDS
        else:
            return
    pytest.fail(f"{batch} was never settled")


async def rest(world: World) -> None:
    """Let the sweeps of both regions run until nothing is pending; one that fails runs again."""
    for _ in range(4):
        world.clock.seconds += LAG_SECONDS
        for region in ("east", "west"):
            try:
                await world.worker(region).recovery.sweep()
            except (LockstepError, ProcessKilled):
                continue


def sent(world: World, region: str, queue: str = "out") -> list[tuple[str, bytes]]:
    """Ids and bodies of a queue, each once, in the order of first arrival."""
    return list(dict.fromkeys((m.id, m.body) for m in world.bus.messages(region, queue)))
