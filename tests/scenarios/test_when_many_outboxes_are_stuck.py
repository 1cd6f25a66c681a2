"""Thousands of outboxes cannot be paid for now; what comes after them is paid all the same."""

from itertools import count

import pytest

from shared.domain.message import Message
from shared.domain.outbox import PendingOutbox
from shared.engine.consume.outcomes import Processed
from shared.engine.operate.recover import Recovered
from shared.storage.documents import decode_pending
from shared.testkit.injected_faults import ProcessKilled
from tests.world import LAG_SECONDS, World, message

STUCK = 2_000
BURNT = "errors"


def burnt(number: int) -> Message:
    """A message that ends in its session's fault, of which the error queue is told."""
    return message(0, session=f"stuck-{number}", kind="account.burn")


async def stuck_world(stuck: int) -> World:
    """Both error queues refuse, and so many sessions owe them something."""
    world = World()
    world.bus.unavailable = {("east", BURNT), ("west", BURNT)}
    for number in range(stuck):
        await world.east.consumer.consume(burnt(number))
    world.clock.seconds += LAG_SECONDS
    return world


async def leave_unsent(world: World) -> list[tuple[str, bytes]]:
    """A bill whose dispatcher dies after the commit; the answer is what should be sent."""
    bill = message(0, session="new", kind="account.bill")
    quiet = World()
    assert isinstance(await quiet.east.consumer.consume(bill), Processed)
    world.bus.unavailable |= {"east", "west"}
    await world.worker("east").consumer.consume(bill)
    world.bus.unavailable -= {"east", "west"}
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


async def test_one_session_with_more_outboxes_than_a_search_looks_at_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shared.engine.operate.recover.SEARCHED_MAX", 20)
    world = World()
    world.bus.unavailable = {("east", BURNT)}
    for sequence in range(30):
        hint = message(sequence, session="busy", kind="account.hint")
        await world.east.consumer.consume(hint)
    expected = await leave_unsent(world)
    east = world.worker("east")

    await east.recovery.sweep()
    await east.recovery.sweep()

    assert world.outputs("east") == expected


async def test_a_queue_out_of_reach_does_not_keep_a_run_from_paying_what_goes_to_others() -> None:
    world = await stuck_world(40)
    expected = await leave_unsent(world)

    assert await world.worker("east").recovery.sweep() == Recovered(helped=1, left=40)

    assert world.outputs("east") == expected


async def test_one_run_tries_a_bounded_number_the_oldest_first() -> None:
    world = await stuck_world(30)
    world.bus.unavailable.clear()

    assert await world.east.recovery.sweep(limit=10) == Recovered(helped=10)

    assert [m.session for m in world.bus.messages("east", BURNT)] == [
        f"stuck-{n}" for n in range(10)
    ]


async def test_a_session_whose_rescue_throws_does_not_keep_the_others_from_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await stuck_world(20)
    world.bus.unavailable.clear()
    deliver = world.east.recovery.dispatcher.deliver_in_order

    async def deliver_or_throw(pending: list[PendingOutbox], regions: list[str]) -> tuple[str, ...]:
        if pending[0].session == "stuck-7":
            raise ZeroDivisionError("a bug")
        return await deliver(pending, regions)

    monkeypatch.setattr(world.east.recovery.dispatcher, "deliver_in_order", deliver_or_throw)

    assert await world.east.recovery.sweep() == Recovered(helped=19, left=1)
    assert len(world.bus.messages("east", BURNT)) == 19


async def feed_of(world: World) -> list[PendingOutbox]:
    """What the change feed shows of every document."""
    documents = [d for p in world.journal.partitions.values() for d in p.values()]
    return [pending for document in documents if (pending := decode_pending(document))]


async def test_a_worker_killed_in_a_change_feed_batch_of_a_hundred_strands_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await stuck_world(100)
    world.bus.unavailable.clear()
    seen = await feed_of(world)
    assert len(seen) == 100
    deliver = world.east.recovery.dispatcher.deliver_in_order
    calls = count()

    async def deliver_until_killed(
        pending: list[PendingOutbox], regions: list[str]
    ) -> tuple[str, ...]:
        if next(calls) == 40:
            raise ProcessKilled
        return await deliver(pending, regions)

    monkeypatch.setattr(world.east.recovery.dispatcher, "deliver_in_order", deliver_until_killed)
    with pytest.raises(ProcessKilled):
        await world.east.recovery.recover(seen)

    world.clock.seconds += LAG_SECONDS
    await world.worker("east").recovery.sweep()

    reports = [m.session for m in world.bus.messages("east", BURNT)]
    assert set(reports) == {f"stuck-{n}" for n in range(100)}


async def test_a_feed_that_repeats_and_skips_sends_each_output_once() -> None:
    world = await stuck_world(30)
    world.bus.unavailable.clear()
    seen = await feed_of(world)

    await world.east.recovery.recover(seen[5:20])
    await world.east.recovery.recover(seen[:15])
    await world.worker("east").recovery.recover(seen[:20])
    await world.east.recovery.sweep()

    reports = [m.session for m in world.bus.messages("east", BURNT)]
    assert sorted(reports) == sorted(f"stuck-{n}" for n in range(30))


async def test_two_quick_saves_of_one_session_are_paid_in_order_by_one_look(world: World) -> None:
    bills = [message(n, kind="account.bill") for n in range(2)]
    quiet = World()
    for bill in bills:
        await quiet.east.consumer.consume(bill)
    world.bus.unavailable = {"east"}
    for bill in bills:
        await world.east.consumer.consume(bill)
    world.bus.unavailable = set()
    (newest,) = [pending for pending in await feed_of(world) if pending.position == 1]

    await world.worker("east").recovery.recover([newest])

    assert world.outputs("east") == world.outputs("west") == quiet.outputs("east")
    assert await world.pending() == []
