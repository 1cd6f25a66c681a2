"""One region never gets a session's first message: the other one's copy must do for both."""

import pytest

from shared.engine.consume.outcomes import AlreadyDone, Parked, Processed
from tests.world import World, message

BILLS = [message(n, kind="account.bill") for n in range(4)]


async def healthy_outputs() -> list[tuple[str, bytes]]:
    """What a run in one region sends."""
    world = World()
    for bill in BILLS:
        await world.east.consumer.consume(bill)
    return world.outputs("east")


@pytest.mark.parametrize("lacking", ["east", "west"])
async def test_the_region_that_lacks_it_parks_the_rest_and_the_other_drains_them(
    world: World, lacking: str
) -> None:
    without, whole = (world.east, world.west) if lacking == "east" else (world.west, world.east)
    for bill in BILLS[1:]:
        assert await without.consumer.consume(bill) == Parked()

    assert isinstance(await whole.consumer.consume(BILLS[0]), Processed)

    assert world.amounts() == [1, 2, 3, 4]
    assert world.outputs("east") == world.outputs("west") == await healthy_outputs()
    for bill in BILLS[1:]:
        assert await whole.consumer.consume(bill) == AlreadyDone()
    assert world.amounts() == [1, 2, 3, 4]


async def test_the_region_that_lacks_it_goes_on_where_the_other_was_first(world: World) -> None:
    assert isinstance(await world.east.consumer.consume(BILLS[0]), Processed)

    for bill in BILLS[1:]:
        assert isinstance(await world.west.consumer.consume(bill), Processed)

    assert world.amounts() == [1, 2, 3, 4]
    assert world.outputs("east") == world.outputs("west") == await healthy_outputs()


async def test_waiting_for_it_spends_no_more_than_the_patience_of_one_invocation(
    world: World,
) -> None:
    begun = world.clock.now()

    assert await world.west.consumer.consume(BILLS[1]) == Parked()

    patience = world.west.consumer.waits
    assert patience.gap_seconds <= world.clock.now() - begun <= 2 * patience.gap_seconds
