"""Outboxes are stuck, or delivered and not acknowledged yet: what comes after them goes on."""

import asyncio
import json
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from shared.domain.message import Message
from shared.domain.outbox import PendingOutbox
from shared.engine.consume.outcomes import Processed
from shared.engine.operate.recover import Recovered
from shared.storage.documents import decode_pending
from shared.testkit.injected_faults import CallFault, ProcessKilled
from tests.business import healthy
from tests.crashes import sent
from tests.loop_clock import LoopClock, in_world
from tests.world import LAG_SECONDS, POLICY, REGIONS, World, in_place_of, message, require, take

# When many outboxes are stuck, what comes after them is delivered all the same.

STUCK = 2_000
BURNT = "errors"


def burnt(number: int) -> Message:
    """A message that ends in its session's fault, of which the error queue is told."""
    return message(0, session=f"stuck-{number}", kind="account.burn")


async def stuck_world(stuck: int) -> World:
    """Both error queues refuse, and so many sessions have something for them."""
    world = World()
    world.bus.unavailable = {("east", BURNT), ("west", BURNT)}
    await take(world.east, *(burnt(number) for number in range(stuck)))
    world.clock.seconds += LAG_SECONDS
    return world


async def leave_unsent(world: World) -> list[tuple[str, bytes]]:
    """A bill whose dispatcher dies after the commit; the answer is what should be sent."""
    bill = message(0, session="new", kind="account.bill")
    quiet = World()
    assert isinstance(await quiet.east.consumer.consume(bill), Processed)
    with world.without("east", "west"):
        await world.worker("east").consumer.consume(bill)
    world.clock.seconds += LAG_SECONDS
    return quiet.outputs("east")


@pytest.mark.slow
async def test_two_thousand_stuck_outboxes_do_not_starve_a_new_one() -> None:
    world = await stuck_world(STUCK)
    for _ in range(2):
        world.clock.seconds += 15
        await world.east.recovery.sweep()
    expected = await leave_unsent(world)

    runs = count(1)
    while world.outputs("east") != expected:
        assert next(runs) <= 2
        world.clock.seconds += 15
        await world.east.recovery.sweep()

    world.bus.unavailable.clear()
    for _ in range(3):
        world.clock.seconds += 15
        await world.east.recovery.sweep()
        await world.west.recovery.sweep()
    assert await world.pending() == []
    for region in ("east", "west"):
        reports = world.bus.messages(region, BURNT)
        assert {report.session for report in reports} == {f"stuck-{n}" for n in range(STUCK)}
        assert len(reports) == STUCK


async def test_one_session_with_more_than_a_search_looks_at_does_not_hide_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.engine.operate.recover.SEARCHED_MAX", 20)
    world.bus.unavailable = {("east", BURNT)}
    hints = (message(sequence, session="busy", kind="account.hint") for sequence in range(30))
    await take(world.east, *hints)
    expected = await leave_unsent(world)
    east = world.worker("east")

    await east.recovery.sweep()
    await east.recovery.sweep()

    assert world.outputs("east") == expected


async def test_a_queue_out_of_reach_does_not_keep_a_run_from_the_others() -> None:
    world = await stuck_world(40)
    expected = await leave_unsent(world)

    assert await world.worker("east").recovery.sweep() == Recovered(helped=1, left=40)

    assert world.outputs("east") == expected


async def test_one_run_tries_a_bounded_number_in_vain_and_helps_all_the_oldest_first() -> None:
    world = await stuck_world(30)
    looked: list[str] = []

    @in_place_of(world.journal, "pending")
    async def noted(pending: Any, session: str, *arguments: Any, **options: Any) -> Any:
        looked.append(session)
        return await pending(session, *arguments, **options)

    sweep = world.worker("east").recovery.sweep
    assert await sweep(limit=10) == Recovered(left=30)
    assert looked == [f"stuck-{n}" for n in range(10)]

    world.bus.unavailable.clear()
    assert await world.worker("east").recovery.sweep(limit=10) == Recovered(helped=30)
    assert reported(world) == [f"stuck-{n}" for n in range(30)]


def reported(world: World) -> list[str]:
    """The sessions that the east's error queue was told of."""
    return [m.session for m in world.bus.messages("east", BURNT)]


def fail_at(world: World, place: int, error: BaseException) -> None:
    """Let the east raise in place of the delivery that comes after so many others."""
    calls = count()

    @in_place_of(world.east.recovery.dispatcher, "deliver_in_order")
    async def deliver_or_raise(deliver: Any, *arguments: Any) -> Any:
        if next(calls) == place:
            raise error
        return await deliver(*arguments)


async def test_a_session_whose_recovery_raises_does_not_keep_the_others_from_theirs() -> None:
    world = await stuck_world(20)
    world.bus.unavailable.clear()
    fail_at(world, 7, ZeroDivisionError("a bug"))

    assert await world.east.recovery.sweep() == Recovered(helped=19, left=1)
    assert len(reported(world)) == 19


async def feed_of(world: World) -> list[PendingOutbox]:
    """What the change feed shows of every document."""
    documents = [d for p in world.journal.partitions.values() for d in p.values()]
    return [pending for document in documents if (pending := decode_pending(document))]


async def test_a_worker_killed_in_a_change_feed_batch_of_a_hundred_strands_nothing() -> None:
    world = await stuck_world(100)
    world.bus.unavailable.clear()
    seen = await feed_of(world)
    assert len(seen) == 100
    fail_at(world, 40, ProcessKilled())
    with pytest.raises(ProcessKilled):
        await world.east.recovery.recover(seen)

    world.clock.seconds += LAG_SECONDS
    await world.worker("east").recovery.sweep()

    assert set(reported(world)) == {f"stuck-{n}" for n in range(100)}


async def test_a_feed_that_repeats_and_skips_sends_each_output_once() -> None:
    world = await stuck_world(30)
    world.bus.unavailable.clear()
    seen = await feed_of(world)

    await world.east.recovery.recover(seen[5:20])
    await world.east.recovery.recover(seen[:15])
    await world.worker("east").recovery.recover(seen[:20])
    await world.east.recovery.sweep()

    assert sorted(reported(world)) == sorted(f"stuck-{n}" for n in range(30))


async def test_two_quick_saves_of_one_session_are_delivered_in_order_by_one_look() -> None:
    world = World()
    with world.without("east"):
        await take(world.east, *BILLS[:2])
    (newest,) = [pending for pending in await feed_of(world) if pending.position == 1]

    await world.worker("east").recovery.recover([newest])

    quiet = await healthy(*BILLS[:2])
    assert world.outputs("east") == world.outputs("west") == quiet.outputs("east")
    assert await world.pending() == []


# When an acknowledgement is put off, it is said with the next entry, or a little later.

IDLE_SECONDS = 1.0
PUT_OFF = replace(POLICY, acknowledge_seconds=IDLE_SECONDS)
BILLS = [message(n, kind="account.bill") for n in range(4)]


putting_off = in_world(lambda: World(LoopClock(), policy=PUT_OFF))


async def bodies_of_a_quiet_world(count: int) -> list[tuple[str, bytes]]:
    """What a world that puts nothing off sends."""
    return (await healthy(*BILLS[:count])).outputs("east")


@putting_off
async def test_a_message_with_outputs_costs_one_write_and_nothing_else(world: World) -> None:
    await take(world.east, *BILLS)

    assert dict(world.journal.fault_plan.calls) == {"append": len(BILLS)}
    assert dict(world.bus.fault_plan.calls) == {"send.east": len(BILLS), "send.west": len(BILLS)}
    assert world.outputs("east") == world.outputs("west") == await bodies_of_a_quiet_world(4)
    # Only the newest outbox is left to acknowledge.
    assert [bool(entry.get("pending")) for entry in world.entries()] == [False, False, False, True]


@putting_off
async def test_after_the_idle_time_it_is_said_alone(world: World) -> None:
    await world.east.consumer.consume(BILLS[0])
    await asyncio.sleep(IDLE_SECONDS / 2)
    assert world.journal.fault_plan.calls["leave_pending"] == 0

    await asyncio.sleep(IDLE_SECONDS)

    assert world.journal.fault_plan.calls["leave_pending"] == 1
    assert await world.pending() == []


@putting_off
async def test_a_worker_that_dies_with_it_unsaid_costs_the_same_bytes_again(world: World) -> None:
    await world.east.consumer.consume(BILLS[0])
    await world.east.consumer.consume(BILLS[1])
    saying = require(world.east.consumer.dispatcher.acknowledgements.recording)
    saying.cancel()

    for region in ("east", "west"):
        await asyncio.sleep(LAG_SECONDS)
        await world.worker(region).recovery.sweep()

    first, second = await bodies_of_a_quiet_world(2)
    assert world.outputs("east") == world.outputs("west") == [first, second, second]
    assert await world.pending() == []


@putting_off
async def test_another_region_that_goes_on_keeps_order(world: World) -> None:
    for worker, bill in zip((world.east, world.west, world.east), BILLS, strict=False):
        await worker.consumer.consume(bill)
    await asyncio.sleep(3 * IDLE_SECONDS)

    assert sent(world, "east") == sent(world, "west") == await bodies_of_a_quiet_world(3)
    assert await world.pending() == []
    assert world.amounts() == [1, 2, 3]


@putting_off
async def test_it_is_carried_though_the_write_got_no_answer(world: World) -> None:
    await world.east.consumer.consume(BILLS[0])
    for bill, fault in zip(BILLS[1:], (CallFault.LOST, CallFault.UNANSWERED), strict=False):
        world.journal.fault_plan.plan("append", fault)
        await world.east.consumer.consume(bill)

    assert [bool(entry.get("pending")) for entry in world.entries()] == [False, False, True]
    assert world.outputs("east") == await bodies_of_a_quiet_world(3)


@putting_off
async def test_a_worker_that_closes_says_what_is_unsaid(world: World) -> None:
    await world.east.consumer.consume(BILLS[0])

    await world.east.consumer.dispatcher.acknowledgements.close()

    assert await world.pending() == []
    assert world.journal.fault_plan.calls["leave_pending"] == 1


@in_world(lambda: World(LoopClock()))
async def test_when_it_is_sent_and_that_is_not_recorded_yet_what_follows_waits(
    world: World,
) -> None:
    with world.without(*REGIONS):
        await take(world.east, message(0, kind="account.bill"))
    await world.clock.sleep(60)

    @in_place_of(world.journal, "acknowledge")
    async def acknowledge_late(method: Any, *arguments: Any) -> object:
        await asyncio.sleep(1)
        return await method(*arguments)

    found = await world.journal.pending("acc-7", REGIONS)
    dispatcher = world.east.recovery.dispatcher
    delivering = asyncio.create_task(dispatcher.deliver_in_order(found, REGIONS))
    # It is sent after moments, and recorded after a second of virtual time.
    await asyncio.sleep(0.5)
    assert all(world.outputs(region) for region in REGIONS)
    found = await world.journal.pending("acc-7", REGIONS)
    outcome = await world.east.consumer.consume(message(1, kind="account.bill"))
    await delivering

    assert [one.position for one in found] == [0]
    assert isinstance(outcome, Processed)
    east, west = (world.outputs(region) for region in REGIONS)
    assert [json.loads(body)["total"] for _, body in east] == [1, 3]
    assert east == west


@in_world(lambda: World(LoopClock()))
async def test_when_its_worker_wakes_after_others_brought_it_out_it_stays_over(
    world: World,
) -> None:
    @in_place_of(world.journal, "leave_pending")
    async def wake_late(method: Any, *arguments: Any) -> object:
        await asyncio.sleep(10 * LAG_SECONDS)
        return await method(*arguments)

    with world.without("west"):
        taking = asyncio.create_task(world.east.consumer.consume(BILLS[0]))
        await asyncio.sleep(1)
    for region in REGIONS:
        await asyncio.sleep(LAG_SECONDS)
        await world.worker(region).recovery.sweep()
    assert await world.pending() == []

    await taking

    assert await world.pending() == []
    assert world.outputs("west") == await bodies_of_a_quiet_world(1)
