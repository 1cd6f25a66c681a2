"""A message comes before its turn: it waits, then it is parked; it is never applied early."""

import asyncio
import json
from dataclasses import replace

from shared.engine.consume.outcomes import AlreadyDone, Parked, Processed
from shared.testkit.injected_faults import CallFault
from tests.business import processed_and_died
from tests.world import GAP_SECONDS, World, message


async def test_it_waits_until_the_other_region_has_filled_the_gap(world: World) -> None:
    async def fill_later() -> None:
        await world.clock.sleep(3)
        await world.west.consumer.consume(message(0))
        await world.west.consumer.consume(message(1))

    outcome, _ = await asyncio.gather(world.east.consumer.consume(message(2)), fill_later())

    assert isinstance(outcome, Processed)
    assert world.amounts() == [1, 2, 3]


async def test_it_is_parked_when_nobody_fills_the_gap_in_time(world: World) -> None:
    assert await world.east.consumer.consume(message(2)) == Parked()

    assert world.clock.now() >= GAP_SECONDS
    assert world.amounts() == []
    assert world.entries()[0]["parked"] == {"bank": 1}


async def test_what_was_parked_is_drained_in_order_before_the_missing_one_is_settled(
    world: World,
) -> None:
    for sequence in (3, 1, 2):
        await world.east.consumer.consume(message(sequence))

    await world.west.consumer.consume(message(0))

    assert world.amounts() == [1, 2, 3, 4]
    assert "parked" not in world.entries()[-1]
    assert [d for d in world.journal.partitions["acc-7"].values() if d["kind"] == "parked"] == []


async def test_the_copy_of_a_parked_message_is_settled_without_another_entry(world: World) -> None:
    await world.east.consumer.consume(message(2))
    entries = len(world.entries())

    assert await world.west.consumer.consume(message(2)) == AlreadyDone()

    assert len(world.entries()) == entries


async def test_a_worker_that_dies_before_draining_leaves_it_to_the_redelivery(world: World) -> None:
    await world.east.consumer.consume(message(1))
    await processed_and_died(world.east, message(0))

    assert await world.worker("east").consumer.consume(message(0)) == AlreadyDone()

    assert world.amounts() == [1, 2]


async def test_two_workers_draining_at_once_apply_each_message_once(world: World) -> None:
    for sequence in range(9, 0, -1):
        await world.east.consumer.consume(message(sequence))

    await asyncio.gather(
        world.east.consumer.consume(message(0)), world.west.consumer.consume(message(0))
    )

    assert world.amounts() == list(range(1, 11))


async def test_an_unanswered_parking_is_recognised(world: World) -> None:
    world.journal.fault_plan.plan("append", CallFault.UNANSWERED)

    assert await world.east.consumer.consume(message(1)) == Parked()
    await world.east.consumer.consume(message(0))

    assert world.amounts() == [1, 2]


async def test_many_parked_messages_stay_small_and_drain_in_order(world: World) -> None:
    world.east.consumer.waits = replace(world.east.consumer.waits, gap_seconds=0)
    for sequence in range(500, 0, -1):
        await world.east.consumer.consume(message(sequence))
    largest = max(len(json.dumps(entry)) for entry in world.entries())

    await world.east.consumer.consume(message(0))

    assert largest < 700
    assert world.amounts() == list(range(1, 502))


async def test_a_remembered_head_is_read_again_before_anybody_waits(world: World) -> None:
    await world.east.consumer.consume(message(0))
    await world.west.consumer.consume(message(1))

    await world.east.consumer.consume(message(2))

    assert world.clock.now() == 0
    assert world.amounts() == [1, 2, 3]
