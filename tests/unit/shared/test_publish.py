"""The producer: what it accepts, in which order it sends, and when the copies become visible."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared.adapters.memory import MemoryBus
from shared.domain.errors import InvalidMessage
from shared.domain.message import Message
from shared.domain.producer import REMEMBERED_MAX, Draft, ProducerOptions
from tests.world import DELAY_SECONDS, World, message


@pytest.fixture
def world() -> World:
    return World()


async def test_the_preferred_region_sees_a_message_first(world: World) -> None:
    world.clock.seconds = 100

    await world.producer().send([message(0)])

    (east,), (west,) = world.bus.queues["east", "in"], world.bus.queues["west", "in"]
    assert (east.visible_at, west.visible_at) == (100, 100 + DELAY_SECONDS)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [replace(message(0), number=None)],
        [message(0), message(2)],
        [message(1), message(0)],
        [message(0), message(0)],
        [message(0), message(1, session="acc-8")],
        [message(0), message(1, group="other")],
        [message(0), message(1, level=1)],
    ],
)
async def test_messages_that_do_not_continue_one_another_are_refused(
    world: World, messages: Sequence[Message]
) -> None:
    with pytest.raises(InvalidMessage):
        await world.producer().send(messages)

    assert world.bus.messages("east", "in") == []


class SlowFirst(MemoryBus):
    """A bus whose first send takes longer than the second."""

    hurry = False

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        slow, self.hurry = not self.hurry, True
        for _ in range(10 if slow else 1):
            await asyncio.sleep(0)
        await super().send(region, queue, messages, delay_seconds=delay_seconds)


@pytest.fixture
def slow_world(world: World) -> World:
    world.bus = SlowFirst(world.clock)
    return world


def arrived(world: World, region: str) -> list[int]:
    return [m.number.sequence for m in world.bus.messages(region, "in") if m.number]


async def test_one_publish_at_a_time_reaches_a_session(slow_world: World) -> None:
    producer = slow_world.producer()
    drafts = [Draft(f"d-{n}", "account.add", b'{"amount":1}') for n in range(3)]
    options = ProducerOptions("bank")

    await asyncio.gather(*(producer.publish("acc-7", [draft], options) for draft in drafts))

    assert arrived(slow_world, "east") == arrived(slow_world, "west") == [0, 1, 2]


async def test_one_send_at_a_time_reaches_a_session(slow_world: World) -> None:
    producer = slow_world.producer()

    await asyncio.gather(*(producer.send([message(n)]) for n in range(3)))

    assert arrived(slow_world, "east") == arrived(slow_world, "west") == [0, 1, 2]


async def test_sessions_do_not_wait_for_each_other(slow_world: World) -> None:
    producer = slow_world.producer()

    await asyncio.gather(
        producer.send([message(0, session="slow")]), producer.send([message(0, session="quick")])
    )

    assert [m.session for m in slow_world.bus.messages("east", "in")] == ["quick", "slow"]


async def test_a_ledger_does_not_grow_with_its_messages(world: World) -> None:
    producer = world.producer()
    options = ProducerOptions("bank")
    for n in range(3 * REMEMBERED_MAX):
        await producer.publish("acc-7", [Draft(f"d-{n}", "account.add", b"{}")], options)

    stored = await world.journal.ledger("acc-7", "bank")

    assert stored is not None
    assert stored.ledger.next == 3 * REMEMBERED_MAX
    assert len(stored.ledger.remembered) == REMEMBERED_MAX
