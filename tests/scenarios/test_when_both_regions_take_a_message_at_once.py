"""Every interleaving of two workers over the store: one effect, one set of outputs."""

import asyncio
from itertools import product

from shared.usecases.outcomes import AlreadyDone, Outcome, Processed
from tests.world import World, message

# A worker that commits makes at most this many awaits that can be interleaved.
STEPS = 8


class Turns:
    """Lets workers go on in a given order; whoever is not named yet waits."""

    def __init__(self, schedule: tuple[int, ...]) -> None:
        self.schedule = list(schedule)
        self.finished: set[int] = set()
        self.changed = asyncio.Condition()

    async def take(self, worker: int) -> None:
        """Wait for this worker's turn; when the other one has finished every turn is ours."""
        async with self.changed:
            await self.changed.wait_for(
                lambda: self.finished or not self.schedule or self.schedule[0] == worker
            )
            if self.schedule and self.schedule[0] == worker:
                self.schedule.pop(0)
            self.changed.notify_all()

    async def finish(self, worker: int) -> None:
        """Let the other one run to its end."""
        async with self.changed:
            self.finished.add(worker)
            self.changed.notify_all()


def interleave(world: World, schedule: tuple[int, ...]) -> Turns:
    """Make every store call of worker 0 (east) and worker 1 (west) wait for its turn."""
    turns = Turns(schedule)
    for number, region in enumerate((world.east, world.west)):
        region.consumer.processor.committer.store = Interleaved(world, turns, number)  # type: ignore[assignment]
    return turns


class Interleaved:
    """The journal, with a turn taken before each call."""

    def __init__(self, world: World, turns: Turns, worker: int) -> None:
        self.world = world
        self.turns = turns
        self.worker = worker

    def __getattr__(self, name: str) -> object:
        method = getattr(self.world.journal, name)

        async def in_turn(*arguments: object, **options: object) -> object:
            await self.turns.take(self.worker)
            return await method(*arguments, **options)

        return in_turn


async def consume_in_turn(world: World, turns: Turns, worker: int, sequence: int) -> Outcome:
    """Consume the message as one of the workers."""
    region = (world.east, world.west)[worker]
    try:
        return await region.consumer.consume(message(sequence, kind="account.bill"))
    finally:
        await turns.finish(worker)


async def race(schedule: tuple[int, ...]) -> tuple[World, list[Outcome]]:
    """Both workers take message 1, after message 0 was processed in the east."""
    world = World()
    await world.east.consumer.consume(message(0))
    turns = interleave(world, schedule)
    outcomes = await asyncio.gather(
        consume_in_turn(world, turns, 0, 1), consume_in_turn(world, turns, 1, 1)
    )
    return world, list(outcomes)


async def test_every_schedule_gives_one_effect_and_the_same_outputs() -> None:
    bodies = set()
    for schedule in product((0, 1), repeat=STEPS):
        world, outcomes = await race(schedule)

        assert sorted(type(outcome).__name__ for outcome in outcomes) == [
            AlreadyDone.__name__,
            Processed.__name__,
        ]
        assert world.amounts() == [1, 2]
        assert len(set(world.outputs("east"))) == len(set(world.outputs("west"))) == 1
        bodies |= set(world.outputs("east")) | set(world.outputs("west"))

    assert len(bodies) == 1


async def test_the_first_message_ever_begins_the_session_once() -> None:
    for schedule in product((0, 1), repeat=STEPS):
        world = World()
        turns = interleave(world, schedule)
        await asyncio.gather(
            consume_in_turn(world, turns, 0, 0), consume_in_turn(world, turns, 1, 0)
        )

        assert world.amounts() == [1]
        assert [entry["id"] for entry in world.entries()] == ["000000000000"]
