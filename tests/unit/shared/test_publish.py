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
from tests.world import DELAY_SECONDS, REGIONS, World, message, require

OPTIONS = ProducerOptions("bank")
HUGE = Draft("huge", "account.add", b'"' + b"x" * 1_000 + b'"')


def drafts(*names: object) -> list[Draft]:
    return [Draft(str(name), "account.add", b"{}") for name in names]


def arrived(world: World, region: str) -> list[int]:
    return [m.number.sequence for m in world.bus.messages(region, "in") if m.number]


def narrow(world: World) -> World:
    """Let the queues take less than usual."""
    world.bus.largest.update({(region, "in"): 500 for region in REGIONS})
    return world


async def counted(world: World, producer: Producer, name: str) -> dict[str, int]:
    """The calls that one publish makes."""
    world.journal.fault_plan.calls.clear()
    world.bus.fault_plan.calls.clear()
    await producer.publish("acc-7", drafts(name), OPTIONS)
    return {**world.journal.fault_plan.calls, **world.bus.fault_plan.calls}


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


@pytest.mark.parametrize("is_numbered", [True, False])
async def test_one_operation_at_a_time_reaches_a_session(
    slow_world: World, *, is_numbered: bool
) -> None:
    producer = slow_world.producer()

    await asyncio.gather(
        *(
            producer.send([message(n)])
            if is_numbered
            else producer.publish("acc-7", drafts(n), OPTIONS)
            for n in range(3)
        )
    )

    assert arrived(slow_world, "east") == arrived(slow_world, "west") == [0, 1, 2]


async def test_sessions_do_not_wait_for_each_other(slow_world: World) -> None:
    producer = slow_world.producer()

    await asyncio.gather(
        producer.send([message(0, session="slow")]), producer.send([message(0, session="quick")])
    )

    assert [m.session for m in slow_world.bus.messages("east", "in")] == ["quick", "slow"]


async def test_a_ledger_does_not_grow_with_its_messages(world: World) -> None:
    producer = world.producer()
    for n in range(3 * REMEMBERED_MAX):
        await producer.publish("acc-7", drafts(n), OPTIONS)

    stored = require(await world.journal.ledger("acc-7", "bank"))

    assert stored.ledger.next == 3 * REMEMBERED_MAX
    assert len(stored.ledger.remembered) == REMEMBERED_MAX


async def test_a_large_operation_is_remembered_whole(world: World) -> None:
    many = drafts(*range(REMEMBERED_MAX + 10))
    first = await world.producer().publish("acc-7", many, OPTIONS)

    again = await world.producer().publish("acc-7", many, OPTIONS)

    assert again.messages == first.messages
    assert world.bus.messages("east", "in") == list(first.messages)


async def test_the_same_draft_twice_in_one_operation_is_one_message(world: World) -> None:
    published = await world.producer().publish("acc-7", drafts("d", "d"), OPTIONS)

    assert len(published.messages) == 2
    assert world.bus.messages("east", "in") == [published.messages[0]]


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
    ("wrong", "error"),
    [
        ([], InvalidMessage),
        ([Draft("", "account.add", b"{}")], InvalidMessage),
        ([Draft("d", "", b"{}")], InvalidMessage),
        ([Draft("d", "account.add", b"")], InvalidMessage),
        ([*drafts("d"), Draft("e", "account.add", b"\xff")], InvalidMessage),
        (drafts(*range(OPERATION_MESSAGES_MAX + 1)), TooLarge),
        ([replace(HUGE, id=name, body=b'"' + b"x" * 800_000 + b'"') for name in "ab"], TooLarge),
    ],
    ids=["none", "no id", "no type", "no body", "no text", "too many", "too long"],
)
async def test_what_no_operation_takes_is_refused_before_anything_is_numbered(
    world: World, wrong: Sequence[Draft], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await world.producer().publish("acc-7", wrong, OPTIONS)

    assert await world.journal.ledger("acc-7", "bank") is None
    assert world.bus.messages("east", "in") == []


async def test_a_contended_ledger_is_given_up_by_name(world: World) -> None:
    class Contended(MemoryJournal):
        async def save_ledger(self, *_: object) -> None:
            return None

    producer = Producer(Contended(world.clock), world.delivery())

    with pytest.raises(Unavailable, match="contended"):
        await producer.publish("acc-7", drafts("d"), OPTIONS)


@pytest.mark.parametrize("call", ["ledger", "pending"])
async def test_an_unknown_write_that_cannot_be_read_back_or_settled_stays_unknown(
    world: World, call: str
) -> None:
    producer = world.producer()
    await counted(world, producer, "a")
    world.journal.fault_plan.plan("save_ledger", CallFault.UNANSWERED)
    world.journal.fault_plan.plan(call, CallFault.REFUSED)

    with pytest.raises(OutcomeUnknown):
        await counted(world, producer, "b")

    await counted(world, producer, "b")
    assert arrived(world, "east") == arrived(world, "west") == [0, 1]


@pytest.mark.parametrize("fault", [None, *CALL_ERRORS])
async def test_a_tombstone_that_is_settled_is_never_called_sent(
    world: World, fault: CallFault | None
) -> None:
    narrow(world).bus.unavailable = {"east", "west"}
    with pytest.raises(OutcomeUnknown):
        await world.producer().publish("acc-7", [HUGE], OPTIONS)
    world.bus.unavailable = set()
    if fault is not None:
        world.journal.fault_plan.plan("save_ledger", fault)
        with pytest.raises(OutcomeUnknown):
            await world.producer().publish("acc-7", [HUGE], OPTIONS)

    with pytest.raises(TooLarge, match="huge"):
        await world.producer().publish("acc-7", [HUGE], OPTIONS)

    assert {m.type for m in world.bus.messages("east", "in")} == {TOMBSTONE_TYPE}
    assert await world.pending() == []


async def test_a_tombstone_after_an_unknown_write_is_never_called_sent(world: World) -> None:
    producer = narrow(world).producer()
    await producer.publish("acc-7", drafts("a"), OPTIONS)
    world.journal.fault_plan.plan("save_ledger", CallFault.UNANSWERED)

    with pytest.raises(TooLarge, match="huge"):
        await producer.publish("acc-7", [HUGE], OPTIONS)


async def test_what_a_narrow_queue_refuses_is_replaced_and_named_and_never_called_sent(
    world: World,
) -> None:
    producer = narrow(world).producer()
    a, b, c = drafts("a", "b", "c")

    for _ in range(2):
        with pytest.raises(TooLarge, match="huge"):
            await producer.publish("acc-7", [a, HUGE, b], OPTIONS)
    await producer.publish("acc-7", [c], OPTIONS)

    for region in REGIONS:
        assert arrived(world, region) == [0, 1, 2, 3, 4]
        assert [(m.id, m.type == TOMBSTONE_TYPE) for m in world.bus.messages(region, "in")] == [
            *(("a", False), ("huge", True), ("b", False), ("huge", True), ("c", False))
        ]
    assert await world.pending() == []
