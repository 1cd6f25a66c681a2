"""A region was dark; when it is back its queue is full of what the other one did meanwhile."""

from itertools import pairwise

from shared.engine.consume.outcomes import AlreadyDone, Processed
from tests.world import LAG_SECONDS, World, message

BILLS = [message(n, kind="account.bill") for n in range(60)]


async def after_an_outage(world: World) -> None:
    """East did the first ten; then it was dark and west did the others; east misses them."""
    for bill in BILLS[:10]:
        await world.east.consumer.consume(bill)
    world.bus.unavailable.add("east")
    for bill in BILLS[10:]:
        assert isinstance(await world.west.consumer.consume(bill), Processed)
    world.bus.unavailable.clear()
    world.clock.seconds += 10


async def test_old_messages_change_nothing(world: World) -> None:
    await after_an_outage(world)
    entries = [entry["id"] for entry in world.entries()]

    for bill in BILLS:
        assert await world.east.consumer.consume(bill) == AlreadyDone()

    assert world.amounts() == list(range(1, 61))
    assert [entry["id"] for entry in world.entries()] == entries


async def test_old_messages_of_a_new_worker_cost_few_reads(world: World) -> None:
    await after_an_outage(world)
    reborn = world.worker("east")
    calls = world.journal.fault_plan.calls
    calls.clear()

    for bill in BILLS:
        assert await reborn.consumer.consume(bill) == AlreadyDone()

    # The leading region guesses once that a first message is new; the store refuses.
    assert calls["append"] == 1
    assert calls["head"] + calls["processed"] + calls["entry"] <= 10


async def test_the_outputs_it_missed_reach_it_in_order_and_unchanged(world: World) -> None:
    await after_an_outage(world)
    world.clock.seconds += LAG_SECONDS

    for _ in range(3):
        await world.east.recovery.sweep()
        world.clock.seconds += LAG_SECONDS

    assert world.outputs("east") == world.outputs("west")
    assert len(world.outputs("east")) == len(BILLS)
    assert await world.pending() == []


async def test_new_messages_go_on_in_the_region_that_is_back(world: World) -> None:
    await after_an_outage(world)

    assert isinstance(
        await world.east.consumer.consume(message(60, kind="account.bill")), Processed
    )

    east, west = world.outputs("east"), world.outputs("west")
    assert east == west
    sequences = [m.number.sequence for m in world.bus.messages("east", "out") if m.number]
    assert all(before < after for before, after in pairwise(sequences))
