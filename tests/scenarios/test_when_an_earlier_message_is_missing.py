"""A message comes before its turn: it waits inside the invocation, it is never applied early."""

import asyncio

import pytest

from shared.domain.errors import GapStillOpen
from tests.world import World, message


async def test_it_waits_until_the_other_region_has_filled_the_gap(world: World) -> None:
    async def fill_later() -> None:
        await world.clock.sleep(3)
        await world.west.consumer.consume(message(0))
        await world.west.consumer.consume(message(1))

    await asyncio.gather(world.east.consumer.consume(message(2)), fill_later())

    assert world.amounts() == [1, 2, 3]


async def test_it_stays_in_the_queue_when_nobody_fills_the_gap(world: World) -> None:
    with pytest.raises(GapStillOpen, match="has 2 but waits for 0"):
        await world.east.consumer.consume(message(2))

    assert world.amounts() == []
    assert world.clock.now() >= 20


async def test_a_remembered_head_is_read_again_before_anybody_waits(world: World) -> None:
    await world.east.consumer.consume(message(0))
    await world.west.consumer.consume(message(1))

    await world.east.consumer.consume(message(2))

    assert world.clock.now() == 0
    assert world.amounts() == [1, 2, 3]
