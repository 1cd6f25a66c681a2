"""A region accepts and never answers: the other one goes on as ever, and nothing is missed.

Time is virtual here: a second passes only while everything waits.
"""

import asyncio
from typing import Any

from proof.simulation.world import virtual_time
from shared.domain.errors import OutcomeUnknown
from shared.domain.message import Message
from shared.domain.outbox import ERRORS, OUTPUTS
from shared.engine.consume.outcomes import Processed
from shared.engine.dispatch.deliver import (
    PATIENCE_SECONDS,
    PAUSE_SECONDS,
    PAUSE_SECONDS_MAX,
    Delivery,
)
from tests.crashes import sent
from tests.loop_clock import LoopClock, in_world
from tests.world import LAG_SECONDS, REGIONS, World, in_place_of, message, take

SEND_SECONDS_MAX = 10.0


def bill(sequence: int, session: str = "acc-7") -> Message:
    return message(sequence, session=session, kind="account.bill")


@in_world
def in_silence() -> World:
    """A world with a silent west; a send to it gives up as the adapter's does."""
    world = World(LoopClock())

    @in_place_of(world.bus, "send")
    async def limited(send: Any, *arguments: object, **options: object) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS_MAX):
                await send(*arguments, **options)
        except TimeoutError as error:
            raise OutcomeUnknown("no answer") from error

    world.bus.silent = {"west"}
    return world


@in_silence
async def test_the_first_message_waits_a_second_and_the_next_ones_not_at_all(world: World) -> None:
    assert isinstance(await world.east.consumer.consume(bill(0)), Processed)
    assert virtual_time.now() <= PATIENCE_SECONDS
    began = virtual_time.now()
    for sequence in range(1, 50):
        assert isinstance(await world.east.consumer.consume(bill(sequence)), Processed)
    assert virtual_time.now() == began
    assert len(world.outputs("east")) == 50


@in_silence
async def test_of_many_sessions_each_waits_a_second_and_one_probes_later(world: World) -> None:
    async def consume(number: int) -> None:
        await world.east.consumer.consume(bill(0, f"session-{number}"))

    await asyncio.gather(*(consume(number) for number in range(20)))
    assert virtual_time.now() <= PATIENCE_SECONDS
    await asyncio.sleep(PAUSE_SECONDS)
    tried = world.bus.fault_plan.calls["silent.west"]
    await asyncio.gather(*(consume(number) for number in range(20, 40)))
    assert world.bus.fault_plan.calls["silent.west"] == tried + 1


@in_silence
async def test_over_ten_minutes_it_is_tried_less_and_less_often(world: World) -> None:
    worst = 0.0
    for sequence in range(600):
        began = virtual_time.now()
        await world.east.consumer.consume(bill(sequence))
        worst = max(worst, virtual_time.now() - began)
        await asyncio.sleep(1.0)
    assert worst <= 2 * PATIENCE_SECONDS
    assert world.bus.fault_plan.calls["silent.west"] <= 600 / PAUSE_SECONDS_MAX + 8
    # Nothing is looked for meanwhile, but for the probes.
    assert world.journal.fault_plan.calls["pending"] <= 600 / PAUSE_SECONDS_MAX + 8


@in_silence
async def test_it_costs_no_write_and_the_next_entry_tells_what_is_missed(world: World) -> None:
    await take(world.east, *(bill(sequence) for sequence in range(20)))
    assert world.journal.fault_plan.calls["acknowledge"] == 0
    assert {tuple(entry["pending"]) for entry in world.entries()} == {("west",)}


@in_silence
async def test_when_it_answers_again_its_own_sweep_delivers_it_all_in_order(world: World) -> None:
    await take(world.east, *(bill(sequence) for sequence in range(30)))
    world.bus.silent.clear()
    await asyncio.sleep(LAG_SECONDS + 1)

    await world.west.recovery.sweep()
    assert sent(world, "west") == sent(world, "east")

    await asyncio.sleep(PAUSE_SECONDS_MAX)
    await world.east.consumer.consume(bill(30))
    assert sent(world, "west") == sent(world, "east")
    assert await world.pending() == []


@in_silence
async def test_a_returned_region_is_not_served_inside_the_others_messages(world: World) -> None:
    await take(world.east, *(bill(sequence) for sequence in range(30)))
    world.bus.silent.clear()
    await asyncio.sleep(PAUSE_SECONDS_MAX)
    before = dict(world.bus.fault_plan.calls)

    await take(world.east, *(bill(sequence) for sequence in range(30, 40)))

    # One output showed that it is back; the rest is its own sweep's.
    assert world.bus.fault_plan.calls["send.west"] - before.get("send.west", 0) == 1
    await asyncio.sleep(LAG_SECONDS + 1)
    await world.west.recovery.sweep()
    assert sent(world, "west") == sent(world, "east")


@in_silence
async def test_silence_everywhere_is_waited_for_ten_seconds_then_not_at_all(world: World) -> None:
    world.bus.silent = {*REGIONS}
    await world.east.consumer.consume(bill(0))
    assert virtual_time.now() <= SEND_SECONDS_MAX
    began = virtual_time.now()
    await world.east.consumer.consume(bill(0, "another"))
    assert virtual_time.now() == began


@in_silence
async def test_a_region_that_is_only_slow_to_connect_is_used_from_then_on(world: World) -> None:
    world.bus.silent.clear()
    connected = asyncio.Event()

    @in_place_of(world.bus, "send")
    async def slow(send: Any, region: str, *arguments: object, **options: object) -> None:
        if region == "west" and not connected.is_set():
            await asyncio.sleep(3 * PATIENCE_SECONDS)
            connected.set()
        await send(region, *arguments, **options)

    await world.east.consumer.consume(bill(0))
    assert virtual_time.now() <= PATIENCE_SECONDS
    await asyncio.sleep(3 * PATIENCE_SECONDS)
    await world.east.consumer.consume(bill(1))
    assert sent(world, "west") == sent(world, "east")


async def send_output(delivery: Delivery, sequence: int, queue: str = OUTPUTS) -> None:
    await delivery.deliver(delivery.address_all(queue, [bill(sequence)]))


@in_silence
async def test_however_long_it_was_silent_the_next_silence_begins_anew(world: World) -> None:
    delivery = world.delivery()
    for sequence in range(120):
        await send_output(delivery, sequence)
        await asyncio.sleep(1.0)
    world.bus.silent.clear()
    await asyncio.sleep(PAUSE_SECONDS_MAX)
    await send_output(delivery, 120)
    assert sent(world, "west") == sent(world, "east")[-1:]

    world.bus.silent = {"west"}
    await send_output(delivery, 121)
    tried = world.bus.fault_plan.calls["silent.west"]
    await asyncio.sleep(PAUSE_SECONDS)
    await send_output(delivery, 122)

    assert world.bus.fault_plan.calls["silent.west"] == tried + 1


@in_silence
async def test_a_region_that_refuses_is_silent_no_more(world: World) -> None:
    delivery = world.delivery()
    await send_output(delivery, 0)
    await asyncio.sleep(PAUSE_SECONDS)
    world.bus.silent.clear()
    world.bus.unavailable = {("west", "out")}
    await send_output(delivery, 1)
    assert delivery.explain("west", OUTPUTS) == "region west is unavailable"

    # So a silence of its other queues is a first one again, and its pause is as short.
    world.bus.silent = {"west"}
    await send_output(delivery, 2, ERRORS)
    tried = world.bus.fault_plan.calls["silent.west"]
    await asyncio.sleep(PAUSE_SECONDS)
    await send_output(delivery, 3, ERRORS)
    assert world.bus.fault_plan.calls["silent.west"] == tried + 1
