"""The producer: what it accepts, in which order it sends, and when the copies become visible."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared.domain.errors import InvalidMessage, OutcomeUnknown, TooLarge, Unavailable
from shared.domain.message import Message
from shared.domain.producer import REMEMBERED_MAX, Draft, ProducerOptions
from shared.domain.reports import TOMBSTONE_TYPE
from shared.engine.publish.publish import Producer
from shared.storage.limits import OPERATION_MESSAGES_MAX
from shared.testkit.injected_faults import CALL_ERRORS, CallFault
from shared.testkit.memory import MemoryJournal
from shared.testkit.memory_bus import MemoryBus
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


async def test_a_large_operation_is_remembered_whole(world: World) -> None:
    drafts = [Draft(f"d-{n}", "account.add", b"{}") for n in range(REMEMBERED_MAX + 10)]
    first = await world.producer().publish("acc-7", drafts, ProducerOptions("bank"))

    again = await world.producer().publish("acc-7", drafts, ProducerOptions("bank"))

    assert again.messages == first.messages
    assert world.bus.messages("east", "in") == list(first.messages)


async def test_the_same_draft_twice_in_one_operation_is_one_message(world: World) -> None:
    draft = Draft("d", "account.add", b"{}")

    published = await world.producer().publish("acc-7", [draft, draft], ProducerOptions("bank"))

    assert len(published.messages) == 2
    assert world.bus.messages("east", "in") == [published.messages[0]]


async def counted(world: World, producer: Producer, name: str) -> dict[str, int]:
    """The calls that one publish makes."""
    world.journal.fault_plan.calls.clear()
    world.bus.fault_plan.calls.clear()
    await producer.publish("acc-7", [Draft(name, "account.add", b"{}")], ProducerOptions("bank"))
    return {**world.journal.fault_plan.calls, **world.bus.fault_plan.calls}


async def test_a_publish_costs_two_writes_and_reads_only_what_it_does_not_know(
    world: World,
) -> None:
    sent = {"send.east": 1, "send.west": 1}
    written = {"save_ledger": 1, "acknowledge": 1, **sent}
    begun = {"regions": 1, "look.east": 1, "look.west": 1}
    producer = world.producer()

    first = {**begun, "save_regions": 1, "ledger": 1, **written}
    assert await counted(world, producer, "a") == first
    assert await counted(world, producer, "b") == written
    anew = {**begun, "ledger": 1, "pending": 1, **written}
    assert await counted(world, world.producer(), "c") == anew


async def test_publishing_again_what_was_sent_sends_nothing(world: World) -> None:
    producer = world.producer()
    await counted(world, producer, "a")

    assert await counted(world, producer, "a") == {}
    looked = {"regions": 1, "look.east": 1, "look.west": 1}
    anew = await counted(world, world.producer(), "a")
    assert anew == {**looked, "ledger": 1, "pending": 1}


@pytest.mark.parametrize(
    "drafts",
    [
        [],
        [Draft("", "account.add", b"{}")],
        [Draft("d", "", b"{}")],
        [Draft("d", "account.add", b"")],
        [Draft("d", "account.add", b"{}"), Draft("e", "account.add", b"\xff")],
    ],
)
async def test_what_is_no_message_is_refused_before_anything_is_numbered(
    world: World, drafts: Sequence[Draft]
) -> None:
    with pytest.raises(InvalidMessage):
        await world.producer().publish("acc-7", drafts, ProducerOptions("bank"))

    assert await world.journal.ledger("acc-7", "bank") is None


@pytest.mark.parametrize(
    "drafts",
    [
        [Draft(f"d-{n}", "account.add", b"{}") for n in range(OPERATION_MESSAGES_MAX + 1)],
        [Draft(f"d-{n}", "account.add", b'"' + b"x" * 800_000 + b'"') for n in range(2)],
    ],
    ids=["too many", "too long"],
)
async def test_more_than_an_operation_takes_is_refused_before_anything_is_numbered(
    world: World, drafts: Sequence[Draft]
) -> None:
    with pytest.raises(TooLarge):
        await world.producer().publish("acc-7", drafts, ProducerOptions("bank"))

    assert await world.journal.ledger("acc-7", "bank") is None
    assert world.bus.messages("east", "in") == []


async def test_a_contended_ledger_is_given_up_by_name(world: World) -> None:
    class Contended(MemoryJournal):
        async def save_ledger(self, *_: object) -> None:
            return None

    producer = Producer(Contended(world.clock), world.delivery())

    with pytest.raises(Unavailable, match="contended"):
        await producer.publish("acc-7", [Draft("d", "t", b"{}")], ProducerOptions("bank"))


async def test_an_unknown_write_of_the_ledger_is_read_back(world: World) -> None:
    for fault in (CallFault.LOST, CallFault.UNANSWERED):
        world.journal.fault_plan.plan("save_ledger", fault)
        name = fault.name
        published = await world.producer().publish(
            "acc-7", [Draft(name, "account.add", b"{}")], ProducerOptions("bank")
        )
        assert world.bus.messages("east", "in")[-1] == published.messages[0]

    assert arrived(world, "east") == arrived(world, "west") == [0, 1]


async def test_an_unknown_write_that_cannot_be_read_back_stays_unknown(world: World) -> None:
    producer = world.producer()
    await counted(world, producer, "a")
    world.journal.fault_plan.plan("save_ledger", CallFault.UNANSWERED)
    world.journal.fault_plan.plan("ledger", CallFault.REFUSED)

    with pytest.raises(OutcomeUnknown):
        await counted(world, producer, "b")


class Narrow(MemoryBus):
    """A bus whose queues take less than usual."""

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        if any(len(message.body) > 500 for message in messages):
            raise InvalidMessage("too large for the queue")
        await super().send(region, queue, messages, delay_seconds=delay_seconds)


async def test_what_cannot_be_settled_after_an_unknown_write_stays_unknown(world: World) -> None:
    producer = world.producer()
    await counted(world, producer, "a")
    world.journal.fault_plan.plan("save_ledger", CallFault.UNANSWERED)
    world.journal.fault_plan.plan("pending", CallFault.REFUSED)

    with pytest.raises(OutcomeUnknown):
        await counted(world, producer, "b")

    await counted(world, producer, "b")
    assert arrived(world, "east") == arrived(world, "west") == [0, 1]


HUGE = Draft("huge", "account.add", b'"' + b"x" * 1_000 + b'"')


@pytest.mark.parametrize("fault", [None, *CALL_ERRORS])
async def test_what_is_voided_when_it_is_settled_is_never_called_sent(
    world: World, fault: CallFault | None
) -> None:
    world.bus = Narrow(world.clock)
    world.bus.unavailable = {"east", "west"}
    with pytest.raises(OutcomeUnknown):
        await world.producer().publish("acc-7", [HUGE], ProducerOptions("bank"))
    world.bus.unavailable = set()
    if fault is not None:
        world.journal.fault_plan.plan("save_ledger", fault)
        with pytest.raises(OutcomeUnknown):
            await world.producer().publish("acc-7", [HUGE], ProducerOptions("bank"))

    with pytest.raises(TooLarge, match="huge"):
        await world.producer().publish("acc-7", [HUGE], ProducerOptions("bank"))

    assert {m.type for m in world.bus.messages("east", "in")} == {TOMBSTONE_TYPE}
    assert await world.pending() == []


async def test_what_is_voided_after_an_unknown_write_is_never_called_sent(world: World) -> None:
    world.bus = Narrow(world.clock)
    producer = world.producer()
    await producer.publish("acc-7", [Draft("a", "account.add", b"{}")], ProducerOptions("bank"))
    world.journal.fault_plan.plan("save_ledger", CallFault.UNANSWERED)

    with pytest.raises(TooLarge, match="huge"):
        await producer.publish("acc-7", [HUGE], ProducerOptions("bank"))


async def test_what_a_narrow_queue_refuses_is_voided_and_named_and_never_called_sent(
    world: World,
) -> None:
    world.bus = Narrow(world.clock)
    producer = world.producer()
    drafts = [Draft("a", "account.add", b"{}"), HUGE, Draft("b", "account.add", b"{}")]

    for _ in range(2):
        with pytest.raises(TooLarge, match="huge"):
            await producer.publish("acc-7", drafts, ProducerOptions("bank"))
    await producer.publish("acc-7", [Draft("c", "account.add", b"{}")], ProducerOptions("bank"))

    for region in ("east", "west"):
        sent = [
            (m.number.sequence, m.id, m.type) for m in world.bus.messages(region, "in") if m.number
        ]
        assert sent == [
            (0, "a", "account.add"),
            (1, "huge", TOMBSTONE_TYPE),
            (2, "b", "account.add"),
            (3, "huge", TOMBSTONE_TYPE),
            (4, "c", "account.add"),
        ]
    assert await world.pending() == []
