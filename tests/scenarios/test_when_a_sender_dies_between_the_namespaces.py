"""A producer's process dies when one namespace has its messages and the other does not."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.domain.message import Message
from shared.domain.producer import Draft, ProducerOptions
from shared.testkit.memory_bus import MemoryBus
from tests.world import LAG_SECONDS, REGIONS, World

SESSION = "acc-7"
OPTIONS = ProducerOptions("bank")
DRAFTS = [Draft(f"m-{n}", "account.add", f'{{"amount":{n}}}'.encode()) for n in range(3)]
LATER = [Draft("later", "account.add", b'{"amount":9}')]


class OneSided(MemoryBus):
    """A bus on which a region's sends hang for ever."""

    def __init__(self, world: World, hanging: str) -> None:
        super().__init__(world.clock)
        self.hanging: str | None = hanging
        self.taken = asyncio.Event()

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        if region == self.hanging:
            await asyncio.Event().wait()
        await super().send(region, queue, messages, delay_seconds=delay_seconds)
        self.taken.set()


async def died_with(region: str) -> World:
    """A world whose producer died when only this region had its messages."""
    world = World()
    (other,) = {*REGIONS} - {region}
    world.bus = bus = OneSided(world, hanging=other)
    dying = asyncio.ensure_future(world.producer().publish(SESSION, DRAFTS, OPTIONS))
    await bus.taken.wait()
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    bus.hanging = None
    assert (len(bus.messages(region, "in")), bus.messages(other, "in")) == (3, [])
    return world


def content(world: World, region: str) -> list[tuple[int, str, bytes]]:
    """Number, id and body of what a region was sent, each once, in the order of first arrival."""
    messages = world.bus.messages(region, "in")
    return list(dict.fromkeys((m.number.sequence, m.id, m.body) for m in messages if m.number))


EXPECTED = [(n, draft.id, draft.body) for n, draft in enumerate(DRAFTS)]


@pytest.mark.parametrize("region", REGIONS)
async def test_the_sweep_brings_the_other_copy(region: str) -> None:
    world = await died_with(region)

    for other in REGIONS:
        world.clock.seconds += LAG_SECONDS
        await world.worker(other).recovery.sweep()

    assert content(world, "east") == content(world, "west") == EXPECTED
    assert await world.pending() == []


@pytest.mark.parametrize("region", REGIONS)
async def test_a_new_process_with_the_same_messages_brings_it_under_the_same_numbers(
    region: str,
) -> None:
    world = await died_with(region)

    published = await world.producer().publish(SESSION, DRAFTS, OPTIONS)

    assert [m.number.sequence for m in published.messages if m.number] == [0, 1, 2]
    assert content(world, "east") == content(world, "west") == EXPECTED
    assert await world.pending() == []


@pytest.mark.parametrize("region", REGIONS)
async def test_a_new_process_with_another_message_brings_it_first(region: str) -> None:
    world = await died_with(region)

    await world.producer().publish(SESSION, LATER, OPTIONS)

    whole = [*EXPECTED, (3, "later", LATER[0].body)]
    assert content(world, "east") == content(world, "west") == whole


@pytest.mark.parametrize("region", REGIONS)
async def test_a_higher_owner_level_brings_it_too_before_its_own(region: str) -> None:
    world = await died_with(region)

    await world.producer().publish(SESSION, LATER, ProducerOptions("bank", owner_level=1))

    for side in REGIONS:
        worker = world.worker(side)
        for arrived in world.bus.messages(side, "in"):
            await worker.consumer.consume(arrived)
    assert world.amounts(SESSION) == [0, 1, 2, 9]
