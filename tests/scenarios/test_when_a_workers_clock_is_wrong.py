"""A lease is counted by the store's clock, so a worker whose own is hours off is in time."""

import asyncio

import pytest

from shared.engine.consume.outcomes import Claimed, Processed
from shared.testkit.injected_faults import CallFault
from tests.business import (
    LEASE_OVER,
    LEASE_SECONDS,
    OrderedClock,
    Outside,
    WrongClock,
    dies,
    payment,
    worker_with,
    world_of,
)

PAY = payment(0)
HOURS = 3600.0
OFF_BY = [-30 * HOURS, -HOURS, HOURS, 30 * HOURS]


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_it_does_not_take_over_early(off_by: float) -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    wrong = worker_with(world, "west", clock=WrongClock(world.clock, off_by))

    assert await wrong.consumer.consume(PAY) == Claimed()

    assert outside.asked == []


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_it_does_not_take_over_late(off_by: float) -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    world.clock.seconds += LEASE_OVER
    began = world.clock.now()
    wrong = worker_with(world, "west", clock=WrongClock(world.clock, off_by))

    assert isinstance(await wrong.consumer.consume(PAY), Processed)

    assert world.clock.now() == began
    assert len(outside.asked) == 1


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_its_own_claims_are_taken_over_in_their_time(off_by: float) -> None:
    outside = Outside()
    world = world_of(outside)
    world.east = worker_with(world, "east", clock=WrongClock(world.clock, off_by))
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)

    world.clock.seconds += LEASE_SECONDS / 4
    assert await world.west.consumer.consume(PAY) == Claimed()
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(PAY), Processed)


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_it_renews_its_claims_in_time(off_by: float) -> None:
    outside = Outside()
    world = world_of(outside, OrderedClock())

    async def take_long() -> None:
        await world.clock.sleep(3 * LEASE_SECONDS)

    outside.before = take_long
    wrong = worker_with(world, "east", clock=WrongClock(world.clock, off_by))

    async def copy_comes_late() -> object:
        await world.clock.sleep(2 * LEASE_SECONDS)
        return await world.west.consumer.consume(PAY)

    owner, copy = await asyncio.gather(wrong.consumer.consume(PAY), copy_comes_late())

    assert isinstance(owner, Processed)
    assert copy == Claimed()
    assert len(outside.asked) == 1
