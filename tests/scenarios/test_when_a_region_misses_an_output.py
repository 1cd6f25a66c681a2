"""A region refuses one send and takes the next: later outputs must not overtake the missed one."""

from typing import Any

from shared.domain.errors import InvalidMessage
from shared.engine.build import Services
from shared.engine.consume.outcomes import Processed
from shared.testkit.injected_faults import CallFault
from tests.world import LAG_SECONDS, REGIONS, World, message

BILLS = [message(n, kind="account.bill") for n in range(3)]


def trusting(region: Services) -> Services:
    """A worker that tries a region again at once, however often it failed."""
    region.consumer.dispatcher.delivery.pause = lambda *_: None  # type: ignore[method-assign]
    return region


async def test_the_next_entry_waits_behind_it_in_that_region_only(world: World) -> None:
    west = trusting(world.west)
    world.bus.fault_plan.plan("send.east", CallFault.REFUSED, CallFault.REFUSED)

    await west.consumer.consume(BILLS[0])
    await west.consumer.consume(BILLS[1])

    assert world.outputs("east") == []
    assert len(world.outputs("west")) == 2
    assert world.entries()[1]["lagging"] == ["east"]


async def test_all_of_them_arrive_in_order_with_the_next_message(world: World) -> None:
    west = trusting(world.west)
    world.bus.fault_plan.plan("send.east", CallFault.REFUSED, CallFault.REFUSED)

    for bill in BILLS:
        await west.consumer.consume(bill)

    assert world.outputs("east") == world.outputs("west")
    assert len(world.outputs("east")) == 3
    assert await world.journal.pending("acc-7", REGIONS) == []


async def test_a_namespace_that_refuses_an_output_for_good_leaves_it_owed_and_visible(
    world: World,
) -> None:
    send = world.bus.send

    async def small_east(region: str, *arguments: Any, **options: Any) -> None:
        if region == "east":
            raise InvalidMessage("too large for 'out'")
        await send(region, *arguments, **options)

    world.bus.send = small_east  # type: ignore[method-assign]

    outcome = await world.west.consumer.consume(BILLS[0])

    assert isinstance(outcome, Processed)
    (pending,) = await world.journal.pending("acc-7", REGIONS)
    assert "east" in pending.outbox.regions


async def test_a_rescue_that_fails_at_the_first_sends_none_of_the_later(world: World) -> None:
    west, east = trusting(world.west), trusting(world.east)
    world.bus.fault_plan.plan("send.east", *[CallFault.REFUSED] * 3)
    await west.consumer.consume(BILLS[0])
    await west.consumer.consume(BILLS[1])
    world.clock.seconds += LAG_SECONDS

    await east.recovery.sweep()
    assert world.outputs("east") == []

    await east.recovery.sweep()
    assert world.outputs("east") == world.outputs("west")


async def test_when_both_regions_sweep_at_once_neither_looks_young_to_the_other(
    world: World,
) -> None:
    west, east = trusting(world.west), trusting(world.east)
    for name in REGIONS:
        world.bus.fault_plan.plan(f"send.{name}", CallFault.REFUSED)
    await west.consumer.consume(BILLS[0])
    world.clock.seconds += LAG_SECONDS + 1

    await east.recovery.sweep()
    await west.recovery.sweep()

    assert len(world.outputs("west")) == 1
    assert world.outputs("east") == world.outputs("west")
