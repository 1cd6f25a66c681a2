"""A region refuses one send and takes the next: later outputs must not overtake the missed one."""

from shared.adapters.memory import Mishap
from tests.world import LAG_SECONDS, Region, World, message

BILLS = [message(n, kind="account.bill") for n in range(3)]


def trusting(region: Region) -> Region:
    """A worker that tries a region again at once, however often it failed."""
    region.processor.dispatcher.delivery.dark_seconds = 0
    return region


async def test_the_next_entry_waits_behind_it_in_that_region_only(world: World) -> None:
    west = trusting(world.west)
    world.bus.mishaps.plan("send.east", Mishap.REFUSED, Mishap.REFUSED)

    await west.consumer.consume(BILLS[0])
    await west.consumer.consume(BILLS[1])

    assert world.outputs("east") == []
    assert len(world.outputs("west")) == 2
    assert world.entries()[1]["behind"] == ["east"]


async def test_all_of_them_arrive_in_order_with_the_next_message(world: World) -> None:
    west = trusting(world.west)
    world.bus.mishaps.plan("send.east", Mishap.REFUSED, Mishap.REFUSED)

    for bill in BILLS:
        await west.consumer.consume(bill)

    assert world.outputs("east") == world.outputs("west")
    assert len(world.outputs("east")) == 3
    assert await world.journal.owing_of("acc-7") == []


async def test_a_rescue_that_fails_at_the_first_sends_none_of_the_later(world: World) -> None:
    west, east = trusting(world.west), trusting(world.east)
    world.bus.mishaps.plan("send.east", *[Mishap.REFUSED] * 3)
    await west.consumer.consume(BILLS[0])
    await west.consumer.consume(BILLS[1])
    world.clock.seconds += LAG_SECONDS

    await east.rescuer.sweep()
    assert world.outputs("east") == []

    await east.rescuer.sweep()
    assert world.outputs("east") == world.outputs("west")
