"""Two workers whose store calls take turns in a given order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from shared.domain.message import Message
from shared.engine.consume.outcomes import Outcome
from shared.storage.journal import Journal
from shared.testkit.intercepted import InterceptedJournal
from tests.business import worker_with
from tests.world import REGIONS, World

type Schedule = tuple[int, ...]


class Turns:
    """Lets workers go on in a given order; whoever is not named yet waits."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = list(schedule)
        self.finished: set[int] = set()
        self.changed = asyncio.Condition()

    async def take(self, worker: int) -> None:
        """Wait for this worker's turn; when another one has finished every turn is ours."""
        async with self.changed:
            await self.changed.wait_for(
                lambda: self.finished or not self.schedule or self.schedule[0] == worker
            )
            if self.schedule and self.schedule[0] == worker:
                self.schedule.pop(0)
            self.changed.notify_all()

    async def finish(self, worker: int) -> None:
        """Let the others run to their ends."""
        async with self.changed:
            self.finished.add(worker)
            self.changed.notify_all()


class InTurn(InterceptedJournal):
    """The journal as one worker sees it: each call waits for its turn."""

    def __init__(self, journal: Journal, turns: Turns, worker: int) -> None:
        super().__init__(journal)
        self.turns = turns
        self.worker = worker

    async def intercept(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make the call in turn."""
        await self.turns.take(self.worker)
        return await call()


async def race(world: World, schedule: Schedule, *arrivals: Sequence[Message]) -> list[Outcome]:
    """The east takes the first arrivals and the west the second, call by call in this order."""
    turns = Turns(schedule)

    async def take_all(number: int) -> list[Outcome]:
        seen = InTurn(world.journal, turns, number)
        worker = worker_with(world, REGIONS[number], journal=seen)
        try:
            return [await worker.consumer.consume(arriving) for arriving in arrivals[number]]
        finally:
            await turns.finish(number)

    taken = await asyncio.gather(*(take_all(number) for number in range(len(arrivals))))
    return [outcome for outcomes in taken for outcome in outcomes]
