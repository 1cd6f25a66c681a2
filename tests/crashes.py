"""Let every call that some work makes go wrong in every way, one at a time, and recover from it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import product

import pytest

from shared.adapters.memory_store import VirtualClock
from shared.domain.errors import LockstepError
from shared.domain.handler import Handlers
from shared.domain.message import Message
from shared.engine.worker import Policy
from shared.testkit.strikes import How, Killed, Strike
from tests.world import LAG_SECONDS, POLICY, World

type Work = Callable[[World], Awaitable[None]]


class StruckWorld(World):
    """A world in which one call goes wrong."""

    def __init__(self, strike: Strike, handlers: Handlers, policy: Policy = POLICY) -> None:
        self.strike = strike
        super().__init__(VirtualClock(), policy=policy, handlers=handlers)
        self.journal.mishaps = self.bus.mishaps = strike


async def worlds(
    work: Work, handlers: Handlers, policy: Policy = POLICY
) -> AsyncIterator[StruckWorld]:
    """The work's undisturbed world first, then one for every call and every way of going wrong."""
    quiet = StruckWorld(Strike(), handlers, policy)
    await work(quiet)
    quiet.strike.is_over = True
    yield quiet
    for at, how in product(range(len(quiet.strike.made)), How):
        struck = StruckWorld(Strike(at=at, how=how), handlers, policy)
        await work(struck)
        struck.strike.is_over = True
        yield struck


async def redelivered(world: World, *arrivals: Message) -> None:
    """Each message is delivered until a worker settles it, in the east and the west in turn."""
    for arriving in arrivals:
        await until_settled(world, [arriving])


async def until_settled(world: World, batch: Sequence[Message]) -> None:
    """Deliver a batch again to another worker until one settles it."""
    for attempt in range(6):
        worker = (world.east, world.west)[attempt % 2]
        try:
            await worker.batches.consume(batch)
        except (LockstepError, Killed):
            world.east, world.west = world.worker("east"), world.worker("west")
            world.clock.seconds += LAG_SECONDS
        else:
            return
    pytest.fail(f"{batch} was never settled")


async def rest(world: World) -> None:
    """Let the sweeps of both regions run until nothing is owed; a struck one runs again."""
    for _ in range(4):
        world.clock.seconds += LAG_SECONDS
        for region in ("east", "west"):
            try:
                await world.worker(region).recovery.sweep()
            except (LockstepError, Killed):
                continue


def sent(world: World, region: str, queue: str = "out") -> list[tuple[str, bytes]]:
    """Ids and bodies of a queue, each once, in the order of first arrival."""
    return list(dict.fromkeys((m.id, m.body) for m in world.bus.messages(region, queue)))
