"""A namespace is down while messages are sent: they are safe at once, and repaid later."""

import pytest

from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.testkit.injected_faults import CallFault
from tests.world import LAG_SECONDS, REGIONS, World, message

MESSAGES = [message(0), message(1)]


@pytest.mark.parametrize(("dark", "lit"), [("east", "west"), ("west", "east")])
async def test_sending_succeeds_and_the_dark_region_is_owed(
    world: World, dark: str, lit: str
) -> None:
    world.bus.unavailable.add(dark)

    published = await world.producer().send(MESSAGES)

    assert (published.sent, published.pending) == (2, 2)
    assert world.bus.messages(lit, "in") == MESSAGES
    (pending,) = await world.journal.pending("acc-7", REGIONS)
    assert pending.outbox.regions == (dark,)
    assert list(pending.outbox.messages) == MESSAGES


async def test_the_dark_region_repays_itself_when_it_is_back(world: World) -> None:
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


async def test_the_debt_is_repaid_in_the_order_of_sending(world: World) -> None:
    world.bus.unavailable.add("east")
    producer = world.producer()
    for sequence in range(5):
        await producer.send([message(sequence)])
        world.clock.seconds += 1

    world.bus.unavailable.clear()
    world.clock.seconds += LAG_SECONDS
    await world.east.recovery.sweep()

    assert world.bus.messages("east", "in") == [message(sequence) for sequence in range(5)]


async def test_an_unknown_outcome_is_owed_too(world: World) -> None:
    world.bus.fault_plan.plan("send.east", CallFault.UNANSWERED)

    published = await world.producer().send(MESSAGES)

    assert published.pending == 2


async def test_nothing_is_promised_when_no_region_took_it(world: World) -> None:
    world.bus.unavailable.update({"east", "west"})

    with pytest.raises(OutcomeUnknown):
        await world.producer().send(MESSAGES)

    assert await world.pending() == []


async def test_nothing_is_promised_when_the_debt_cannot_be_written_down(world: World) -> None:
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
