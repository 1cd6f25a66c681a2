"""A region is unavailable, or misses one send: it gets everything later, in order, and once."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from shared.domain.errors import InvalidMessage, OutcomeUnknown, Unavailable
from shared.domain.outbox import PendingOutbox
from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.engine.dispatch.deliver import PAUSE_SECONDS_MAX
from shared.engine.dispatch.dispatch import CATCH_UP_MAX, OTHERS_MAX
from shared.testkit.injected_faults import CallFault
from tests.crashes import sent
from tests.world import LAG_SECONDS, REGIONS, World, message, take

# When a region is unavailable: a namespace is down while messages are sent: they are safe at once,
# and delivered later.


MESSAGES = [message(0), message(1)]


@pytest.mark.parametrize(("lost", "working"), [("east", "west"), ("west", "east")])
async def test_sending_succeeds_and_the_copies_for_it_are_pending(
    world: World, lost: str, working: str
) -> None:
    world.bus.unavailable.add(lost)

    published = await world.producer().send(MESSAGES)

    assert (published.sent, published.pending) == (2, 2)
    assert world.bus.messages(working, "in") == MESSAGES
    (pending,) = await world.journal.pending("acc-7", REGIONS)
    assert pending.outbox.regions == (lost,)
    assert list(pending.outbox.messages) == MESSAGES


async def test_it_delivers_to_itself_when_it_is_back(world: World) -> None:
    world.bus.unavailable.add("east")
    await world.producer().send(MESSAGES)
    world.clock.seconds += LAG_SECONDS
    assert (await world.west.recovery.sweep()).left == 0
    assert (await world.east.recovery.sweep()).left == 1

    world.bus.unavailable.clear()
    world.clock.seconds += LAG_SECONDS
    await world.east.recovery.sweep()

    assert world.bus.messages("east", "in") == world.bus.messages("west", "in") == MESSAGES
    assert await world.pending() == []


async def test_it_gets_what_it_missed_in_the_order_of_sending(world: World) -> None:
    world.bus.unavailable.add("east")
    producer = world.producer()
    for sequence in range(5):
        await producer.send([message(sequence)])
        world.clock.seconds += 1

    world.bus.unavailable.clear()
    world.clock.seconds += LAG_SECONDS
    await world.east.recovery.sweep()

    assert world.bus.messages("east", "in") == [message(sequence) for sequence in range(5)]


async def test_copies_of_an_unknown_outcome_are_pending_too(world: World) -> None:
    world.bus.fault_plan.plan("send.east", CallFault.UNANSWERED)

    published = await world.producer().send(MESSAGES)

    assert published.pending == 2


async def test_nothing_is_promised_when_no_region_took_it(world: World) -> None:
    world.bus.unavailable.update({"east", "west"})

    with pytest.raises(OutcomeUnknown):
        await world.producer().send(MESSAGES)

    assert await world.pending() == []


async def test_nothing_is_promised_when_no_outbox_can_be_written(world: World) -> None:
    world.bus.unavailable.add("east")
    world.journal.fault_plan.plan("add_pending", CallFault.REFUSED)
    producer = world.producer()
    with pytest.raises(Unavailable):
        await producer.send(MESSAGES)

    assert (await producer.send(MESSAGES)).pending == 2

    assert len(await world.pending()) == 1


async def test_outputs_reach_the_lit_region_and_work_goes_on(world: World) -> None:
    world.bus.unavailable.add("east")

    await world.west.consumer.consume(message(0, kind="account.bill"))
    await world.west.consumer.consume(message(1, kind="account.bill"))

    assert len(world.outputs("west")) == 2
    world.bus.unavailable.clear()
    world.clock.seconds += LAG_SECONDS
    await world.east.recovery.sweep()
    assert world.outputs("east") == world.outputs("west")


# When a region is unavailable for long: a region misses hundreds of outputs of one busy session,
# and comes back.


MANY = 2 * CATCH_UP_MAX + 10


async def bill(world: World, sequence: int) -> None:
    """One more bill in the east, a while after the last."""
    world.clock.seconds += LAG_SECONDS
    await world.east.consumer.consume(message(sequence, kind="account.bill"))


@pytest.fixture
def listed(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pending outboxes each look returned."""
    counts: list[int] = []
    list_pending = world.journal.pending

    async def counted(*arguments: Any, **options: Any) -> Sequence[PendingOutbox]:
        found = await list_pending(*arguments, **options)
        counts.append(len(found))
        return found

    monkeypatch.setattr(world.journal, "pending", counted)
    return counts


async def test_the_cost_of_a_message_does_not_grow_with_what_the_region_lacks(
    world: World, listed: list[int]
) -> None:
    world.bus.unavailable = {"west"}
    for sequence in range(MANY):
        await bill(world, sequence)

    # Only a probe looks what the region misses, and then at no more than it could deliver.
    assert len(listed) <= MANY * LAG_SECONDS / PAUSE_SECONDS_MAX + 5
    assert max(listed) <= OTHERS_MAX + 1
    assert max(len(json.dumps(entry)) for entry in world.entries()) < 3_000
    assert len(world.outputs("east")) == MANY


async def test_new_outputs_do_not_overtake_the_missed_ones_when_it_is_back(world: World) -> None:
    world.bus.unavailable = {"west"}
    for sequence in range(MANY):
        await bill(world, sequence)
    world.bus.unavailable = set()

    for sequence in range(MANY, MANY + 30):
        await bill(world, sequence)
        if sequence == MANY + 10:
            await world.west.recovery.sweep()

    assert sent(world, "west") == sent(world, "east")
    assert len(sent(world, "east")) == MANY + 30
    assert await world.pending() == []


async def test_one_sweep_of_the_region_delivers_all_of_it_in_order(world: World) -> None:
    world.bus.unavailable = {"west"}
    for sequence in range(MANY):
        await bill(world, sequence)
    world.bus.unavailable = set()
    world.clock.seconds += LAG_SECONDS

    await world.west.recovery.sweep()
    world.clock.seconds += PAUSE_SECONDS_MAX
    await bill(world, MANY)

    assert world.outputs("west") == world.outputs("east")
    assert len(world.outputs("west")) == MANY + 1


async def test_both_regions_missing_much_stops_the_session_until_they_have_it(
    world: World,
) -> None:
    for region in ("east", "west"):
        world.bus.unavailable = {region}
        world.clock.seconds += PAUSE_SECONDS_MAX
        for sequence in range(30) if region == "east" else range(30, 60):
            await bill(world, sequence)
    world.bus.unavailable = set()
    for worker in (world.east, world.west):
        world.clock.seconds += LAG_SECONDS
        await worker.recovery.sweep()
    world.clock.seconds += PAUSE_SECONDS_MAX

    await bill(world, 60)

    assert sent(world, "west") == sent(world, "east")
    assert len(sent(world, "east")) == 61


# When a region misses an output: a region refuses one send and takes the next: later outputs must
# not overtake the missed one.


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

    await take(west, *BILLS)

    assert world.outputs("east") == world.outputs("west")
    assert len(world.outputs("east")) == 3
    assert await world.journal.pending("acc-7", REGIONS) == []


async def test_an_output_that_a_namespace_refuses_for_good_is_pending_and_visible(
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


# When a region comes back with old messages: a region was lost; when it is back its queue is full
# of what the other one did meanwhile.


SIXTY = [message(n, kind="account.bill") for n in range(60)]


async def after_an_outage(world: World) -> None:
    """East did the first ten; then it was lost and west did the others; east misses them."""
    await take(world.east, *SIXTY[:10])
    world.bus.unavailable.add("east")
    assert {type(one) for one in await take(world.west, *SIXTY[10:])} == {Processed}
    world.bus.unavailable.clear()
    world.clock.seconds += 10


async def test_old_messages_change_nothing(world: World) -> None:
    await after_an_outage(world)
    entries = [entry["id"] for entry in world.entries()]

    assert set(await take(world.east, *SIXTY)) == {AlreadyDone()}

    assert world.amounts() == list(range(1, 61))
    assert [entry["id"] for entry in world.entries()] == entries


async def test_old_messages_of_a_new_worker_cost_few_reads(world: World) -> None:
    await after_an_outage(world)
    reborn = world.worker("east")
    calls = world.journal.fault_plan.calls
    calls.clear()

    assert set(await take(reborn, *SIXTY)) == {AlreadyDone()}

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
    assert len(world.outputs("east")) == len(SIXTY)
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
