"""A region is unavailable, or misses one send: it gets everything later, in order, and once."""

import json
from itertools import pairwise
from typing import Any

import pytest

from shared.domain.errors import InvalidMessage, OutcomeUnknown, Unavailable
from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.engine.dispatch.deliver import PAUSE_SECONDS_MAX
from shared.engine.dispatch.dispatch import CATCH_UP_MAX, OTHERS_MAX
from shared.testkit.injected_faults import CallFault
from tests.crashes import sent
from tests.world import LAG_SECONDS, REGIONS, World, in_place_of, message, sweep_later, take

# When a region is unavailable, messages are safe at once, and delivered to it later.

MESSAGES = [message(0), message(1)]
SIXTY = [message(n, kind="account.bill") for n in range(60)]
BILLS = SIXTY[:3]


@pytest.mark.parametrize(("lost", "working"), [("east", "west"), ("west", "east")])
async def test_sending_succeeds_and_its_copies_pend(world: World, lost: str, working: str) -> None:
    world.bus.unavailable.add(lost)

    published = await world.producer().send(MESSAGES)

    assert (published.sent, published.pending) == (2, 2)
    assert world.bus.messages(working, "in") == MESSAGES
    (pending,) = await world.journal.pending("acc-7", REGIONS)
    assert pending.outbox.regions == (lost,)
    assert list(pending.outbox.messages) == MESSAGES


async def test_it_delivers_to_itself_when_it_is_back_in_the_order_of_sending(world: World) -> None:
    sent_first = [message(sequence) for sequence in range(5)]
    with world.without("east"):
        producer = world.producer()
        for one in sent_first:
            await producer.send([one])
            world.clock.seconds += 1
        world.clock.seconds += LAG_SECONDS
        assert (await world.west.recovery.sweep()).left == 0
        assert (await world.east.recovery.sweep()).left == 1

    await sweep_later(world, "east")

    assert world.bus.messages("east", "in") == world.bus.messages("west", "in") == sent_first
    assert await world.pending() == []


async def test_copies_of_an_unknown_outcome_are_pending_too(world: World) -> None:
    world.bus.fault_plan.plan("send.east", CallFault.UNANSWERED)

    assert (await world.producer().send(MESSAGES)).pending == 2


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


# When a region is unavailable for long, it misses hundreds of outputs, and gets them in order.

MANY = 2 * CATCH_UP_MAX + 10


async def bill(world: World, first: int, end: int) -> None:
    """More bills in the east, each a while after the last."""
    for sequence in range(first, end):
        world.clock.seconds += LAG_SECONDS
        await world.east.consumer.consume(message(sequence, kind="account.bill"))


async def test_the_cost_of_a_message_does_not_grow_with_what_it_lacks(world: World) -> None:
    looks: list[int] = []

    @in_place_of(world.journal, "pending")
    async def counted(pending: Any, *arguments: Any, **options: Any) -> Any:
        found = await pending(*arguments, **options)
        looks.append(len(found))
        return found

    world.bus.unavailable = {"west"}
    await bill(world, 0, MANY)

    # Only a probe looks what the region misses, and then at no more than it could deliver.
    assert len(looks) <= MANY * LAG_SECONDS / PAUSE_SECONDS_MAX + 5
    assert max(looks) <= OTHERS_MAX + 1
    assert max(len(json.dumps(entry)) for entry in world.entries()) < 3_000
    assert len(world.outputs("east")) == MANY


async def test_new_outputs_do_not_overtake_the_missed_ones_when_it_is_back(world: World) -> None:
    with world.without("west"):
        await bill(world, 0, MANY)

    await bill(world, MANY, MANY + 11)
    await world.west.recovery.sweep()
    await bill(world, MANY + 11, MANY + 30)

    assert sent(world, "west") == sent(world, "east")
    assert len(sent(world, "east")) == MANY + 30
    assert await world.pending() == []


async def test_one_sweep_of_the_region_delivers_all_of_it_in_order(world: World) -> None:
    with world.without("west"):
        await bill(world, 0, MANY)

    await sweep_later(world, "west")
    world.clock.seconds += PAUSE_SECONDS_MAX
    await bill(world, MANY, MANY + 1)

    assert world.outputs("west") == world.outputs("east")
    assert len(world.outputs("west")) == MANY + 1


async def test_both_missing_much_stops_the_session_until_they_have_it(world: World) -> None:
    for region, first in (("east", 0), ("west", 30)):
        world.bus.unavailable = {region}
        world.clock.seconds += PAUSE_SECONDS_MAX
        await bill(world, first, first + 30)
    world.bus.unavailable = set()
    await sweep_later(world)
    world.clock.seconds += PAUSE_SECONDS_MAX

    await bill(world, 60, 61)

    assert sent(world, "west") == sent(world, "east")
    assert len(sent(world, "east")) == 61


# When a region misses an output and takes the next send, later ones do not overtake it.


def trusting(region: Services) -> Services:
    """A worker that tries a region again at once, however often it failed."""
    region.consumer.dispatcher.delivery.pause = lambda *_: None  # type: ignore[method-assign]
    return region


async def test_the_next_entry_waits_behind_it_in_that_region_only(world: World) -> None:
    west = trusting(world.west)
    world.bus.fault_plan.plan("send.east", CallFault.REFUSED, CallFault.REFUSED)

    await take(west, *BILLS[:2])

    assert (len(world.outputs("east")), len(world.outputs("west"))) == (0, 2)
    assert world.entries()[1]["lagging"] == ["east"]
    # All of them arrive in order with the next message.
    await west.consumer.consume(BILLS[2])
    assert world.outputs("east") == world.outputs("west")
    assert len(world.outputs("east")) == 3
    assert await world.journal.pending("acc-7", REGIONS) == []


async def test_an_output_that_is_refused_for_good_is_pending_and_visible(world: World) -> None:

    @in_place_of(world.bus, "send")
    async def small_east(send: Any, region: str, *arguments: Any, **options: Any) -> None:
        if region == "east":
            raise InvalidMessage("too large for 'out'")
        await send(region, *arguments, **options)

    assert isinstance(await world.west.consumer.consume(BILLS[0]), Processed)

    (pending,) = await world.journal.pending("acc-7", REGIONS)
    assert "east" in pending.outbox.regions


async def test_a_recovery_that_fails_at_the_first_sends_none_of_the_later(world: World) -> None:
    west, east = trusting(world.west), trusting(world.east)
    world.bus.fault_plan.plan("send.east", *[CallFault.REFUSED] * 3)
    await take(west, *BILLS[:2])
    world.clock.seconds += LAG_SECONDS

    await east.recovery.sweep()
    assert world.outputs("east") == []

    await east.recovery.sweep()
    assert world.outputs("east") == world.outputs("west")


async def test_when_both_sweep_at_once_neither_looks_young_to_the_other(world: World) -> None:
    west, east = trusting(world.west), trusting(world.east)
    for name in REGIONS:
        world.bus.fault_plan.plan(f"send.{name}", CallFault.REFUSED)
    await west.consumer.consume(BILLS[0])
    world.clock.seconds += LAG_SECONDS + 1

    await east.recovery.sweep()
    await west.recovery.sweep()

    assert len(world.outputs("west")) == 1
    assert world.outputs("east") == world.outputs("west")


# When a region comes back with old messages, they change nothing and cost little.


async def after_an_outage(world: World) -> None:
    """East did the first ten; then it was lost and west did the others; east misses them."""
    await take(world.east, *SIXTY[:10])
    with world.without("east"):
        assert {type(one) for one in await take(world.west, *SIXTY[10:])} == {Processed}
    world.clock.seconds += 10


async def test_old_messages_change_nothing_and_cost_a_new_worker_few_reads(world: World) -> None:
    await after_an_outage(world)
    entries = [entry["id"] for entry in world.entries()]
    calls = world.journal.fault_plan.calls

    for worker in (world.worker("east"), world.east):
        calls.clear()
        assert set(await take(worker, *SIXTY)) == {AlreadyDone()}
        # The leading region guesses once that a first message is new; the store refuses.
        assert calls["append"] == 1
        assert calls["head"] + calls["processed"] + calls["entry"] <= 10

    assert world.amounts() == list(range(1, 61))
    assert [entry["id"] for entry in world.entries()] == entries


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
    following = message(60, kind="account.bill")

    assert isinstance(await world.east.consumer.consume(following), Processed)

    assert world.outputs("east") == world.outputs("west")
    sequences = [m.number.sequence for m in world.bus.messages("east", "out") if m.number]
    assert all(before < after for before, after in pairwise(sequences))


async def test_when_the_own_region_is_lost_next_the_session_goes_on_by_the_one_that_missed_much(
    world: World,
) -> None:
    """The other region's own sweep is dead, so nobody else brings it what it missed."""
    with world.without("west"):
        await take(world.east, *SIXTY[:50])

    with world.without("east"):
        outcomes = await take(world.worker("east"), *SIXTY[50:])

    assert all(isinstance(one, Processed) for one in outcomes)
    came = world.bus.messages("west", "out")
    assert [one.number.sequence for one in came if one.number] == [*range(60)]
    assert came[:50] == world.bus.messages("east", "out")
