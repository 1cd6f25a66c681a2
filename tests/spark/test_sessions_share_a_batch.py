"""Sends of several sessions on their way to one queue: what is shared, and what is not."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from local.cloud import Cloud
from shared.adapters.service_bus import ServiceBus
from shared.domain.errors import (
    InvalidMessage,
    LockstepError,
    Misconfigured,
    OutcomeUnknown,
    Throttled,
)
from shared.domain.message import Message
from shared.domain.wire import BATCH_BYTES_MAX
from shared.ports import Bus
from shared.testkit.memory_bus import MemoryBus
from shared.testkit.memory_store import VirtualClock
from shared.wiring import Adapters
from spark.send.datasource import PATIENCE_SECONDS
from spark.send.encoded_bus import EncodedBus
from spark.send.gathering import BUSY_SECONDS_MAX, PAUSE_SECONDS, GatheringBus
from spark.send.rows import SESSIONS_AT_ONCE, SESSIONS_AT_ONCE_MIN, limit_sessions
from tests.cloud import settings_of
from tests.spark.bookings import message

EAST, WEST, QUEUE = "east", "west", "lockstep"
SESSIONS = tuple(f"acc-{place}" for place in range(6))


@dataclass
class Queue(MemoryBus):
    """Remembers each send; refuses several sessions in one if it is of a partitioned namespace."""

    is_partitioned: bool = False
    failures: list[LockstepError] = field(default_factory=list)
    sends: list[list[Message]] = field(default_factory=list)
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event | None = None
    under_way: int = 0
    under_way_max: int = 0

    def __post_init__(self) -> None:
        super().__init__(VirtualClock())

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        self.sends.append(list(messages))
        self.has_begun.set()
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            await (self.release.wait() if self.release else asyncio.sleep(0))
            if self.failures:
                raise self.failures.pop(0)
            if self.is_partitioned and len({message.session for message in messages}) > 1:
                raise Misconfigured("distinct SessionId is not supported with partitioning")
            await super().send(region, queue, messages, delay_seconds=delay_seconds)
        finally:
            self.under_way -= 1

    @property
    def sizes(self) -> list[int]:
        return [len(each) for each in self.sends]


def gathering(**of_queue: Any) -> tuple[Queue, GatheringBus]:
    """A queue, and the bus through which sessions send to it together."""
    queue = Queue(**of_queue)
    return queue, GatheringBus(queue)


class Pauses(list[float]):
    async def sleep(self, seconds: float) -> None:
        self.append(seconds)


async def send_all(bus: Bus, messages: Sequence[Message]) -> list[BaseException | None]:
    """Send each by itself, all at the same time; what each of them raised."""
    sends = (bus.send(EAST, QUEUE, [each]) for each in messages)
    return await asyncio.gather(*sends, return_exceptions=True)


async def test_sessions_that_send_at_the_same_time_share_one_send() -> None:
    queue = Queue()
    assert await send_all(GatheringBus(queue), [message(each) for each in SESSIONS]) == [None] * 6
    assert queue.sizes == [6]
    assert queue.messages(EAST, QUEUE) == [message(each) for each in SESSIONS]


async def test_one_send_to_a_queue_is_under_way_and_what_comes_meanwhile_gathers() -> None:
    queue, bus = gathering()
    first = asyncio.create_task(bus.send(EAST, QUEUE, [message("acc-0")]))
    await queue.has_begun.wait()
    await send_all(bus, [message(each) for each in SESSIONS[1:]])
    await first
    assert (queue.sizes, queue.under_way_max) == ([1, 5], 1)


async def test_a_send_is_no_larger_than_one_batch_of_the_smallest_tier() -> None:
    queue = Queue()
    body = b'"' + b"x" * (BATCH_BYTES_MAX // 3) + b'"'
    await send_all(GatheringBus(queue), [message(each, body=body) for each in SESSIONS])
    assert queue.sizes == [2, 2, 2]


async def test_messages_with_different_delays_do_not_share_a_send() -> None:
    queue, bus = gathering()
    await asyncio.gather(
        bus.send(EAST, QUEUE, [message("acc-0")], delay_seconds=15.0),
        bus.send(EAST, QUEUE, [message("acc-1")]),
    )
    delays = [each.visible_at - queue.clock.now() for each in queue.queues[EAST, QUEUE]]
    assert (queue.sizes, delays) == ([1, 1], [15.0, 0.0])


async def test_when_a_namespace_is_partitioned_each_session_is_sent_alone_from_then_on() -> None:
    queue, bus = gathering(is_partitioned=True)
    assert await send_all(bus, [message(each) for each in SESSIONS]) == [None] * 6
    assert await send_all(bus, [message(each, 1) for each in SESSIONS]) == [None] * 6
    assert queue.sizes == [6] + 12 * [1]
    sent = [each for number in (0, 1) for each in (message(s, number) for s in SESSIONS)]
    assert queue.messages(EAST, QUEUE) == sent


async def test_when_a_queue_refuses_everything_two_sends_say_so_to_all() -> None:
    queue = Queue()
    queue.missing.add(EAST)
    bus = GatheringBus(queue)
    answers = await send_all(bus, [message(each) for each in SESSIONS])
    assert [type(answer) for answer in answers] == [Misconfigured] * 6
    assert (queue.sizes, bus.partitioned) == ([6, 1], set())


async def test_when_one_message_is_too_large_only_its_own_send_fails() -> None:
    queue = Queue()
    queue.largest[EAST, QUEUE] = 20
    large = message("acc-2", body=b'"a body that no queue takes"')
    messages = [large if each == "acc-2" else message(each) for each in SESSIONS]
    answers = await send_all(GatheringBus(queue), messages)
    assert [isinstance(answer, InvalidMessage) for answer in answers] == [
        each == "acc-2" for each in SESSIONS
    ]
    taken = {each.session for each in queue.messages(EAST, QUEUE)}
    assert taken == set(SESSIONS) - {"acc-2"}


async def test_when_the_answer_of_a_batch_is_lost_each_send_has_an_unknown_outcome() -> None:
    queue, bus = gathering(failures=[OutcomeUnknown("no answer")])
    answers = await send_all(bus, [message(each) for each in SESSIONS])
    assert [type(answer) for answer in answers] == [OutcomeUnknown] * 6
    assert queue.sizes == [6], "what has an unknown outcome is for the caller to send again"
    assert await send_all(bus, [message(each) for each in SESSIONS]) == [None] * 6


async def test_when_the_answer_is_lost_what_waits_behind_it_is_not_kept_for_as_long_again() -> None:
    queue, bus = gathering(failures=[OutcomeUnknown("no answer")], release=asyncio.Event())
    first = asyncio.create_task(bus.send(EAST, QUEUE, [message("acc-0")]))
    await queue.has_begun.wait()
    behind = asyncio.create_task(send_all(bus, [message(each) for each in SESSIONS[1:]]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(bus.waiting[EAST, QUEUE]) == 5
    assert queue.release is not None
    queue.release.set()
    assert [type(answer) for answer in await behind] == [OutcomeUnknown] * 5
    assert queue.sizes == [1]
    with pytest.raises(OutcomeUnknown):
        await first


async def test_when_a_namespace_is_busy_it_gets_the_same_batch_again_and_all_slowly() -> None:
    busy = [Throttled("busy"), Throttled("busy", 3.0)]
    queue, pauses = Queue(failures=[*busy]), Pauses()
    bus = GatheringBus(queue, pauses.sleep)
    assert await send_all(bus, [message(each) for each in SESSIONS]) == [None] * 6
    assert queue.sizes == [6, 6, 6]
    assert pauses == [PAUSE_SECONDS, 3.0]
    assert bus.busy_seconds == sum(pauses)
    assert queue.messages(EAST, QUEUE) == [message(each) for each in SESSIONS]
    for sequence in range(1, 40):
        await bus.send(EAST, QUEUE, [message("acc-0", sequence)])
    later = pauses[2:]
    assert later == sorted(later, reverse=True), "each batch that was taken makes it faster"
    assert later[0] < 3.0
    assert len(later) < 39, "in the end there is no pause"
    await bus.send(WEST, QUEUE, [message("acc-0")])
    assert pauses[2:] == later, "another namespace is not held up"


async def test_when_a_namespace_stays_busy_its_sends_fail_in_a_bounded_time() -> None:
    queue, pauses = Queue(failures=[Throttled("busy")] * 50), Pauses()
    bus = GatheringBus(queue, pauses.sleep)
    answers = await send_all(bus, [message(each) for each in SESSIONS])
    assert [type(answer) for answer in answers] == [Throttled] * 6
    assert sum(pauses) <= BUSY_SECONDS_MAX < PATIENCE_SECONDS


async def test_when_a_caller_is_cancelled_before_its_turn_nothing_of_it_is_sent() -> None:
    queue, bus = gathering()
    first = asyncio.create_task(bus.send(EAST, QUEUE, [message("acc-0")]))
    await queue.has_begun.wait()
    gone = asyncio.create_task(bus.send(EAST, QUEUE, [message("acc-1")]))
    stays = asyncio.create_task(bus.send(EAST, QUEUE, [message("acc-2")]))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(first, stays)
    assert queue.messages(EAST, QUEUE) == [message("acc-0"), message("acc-2")]


async def test_when_a_silent_region_is_given_up_nobody_waits_for_ever() -> None:
    queue = Queue()
    queue.silent.add(WEST)
    bus = GatheringBus(queue)
    sends = [asyncio.create_task(bus.send(WEST, QUEUE, [message(each)])) for each in SESSIONS]
    await queue.has_begun.wait()
    late = asyncio.create_task(bus.send(WEST, QUEUE, [message("acc-9")]))
    # The other region is not kept waiting by it.
    assert await send_all(bus, [message("acc-0")]) == [None]
    await bus.close()
    done, _ = await asyncio.wait([*sends, late], timeout=60.0)
    assert len(done) == 7
    assert all(send.cancelled() for send in done)


def test_large_sessions_are_fewer_at_the_same_time() -> None:
    small = [message(f"acc-{place}") for place in range(500)]
    large = [message(f"acc-{place}", body=b"x" * 10**6) for place in range(20)]
    assert limit_sessions(small) == SESSIONS_AT_ONCE
    assert limit_sessions(large) == SESSIONS_AT_ONCE_MIN


@pytest.fixture
async def bus(cloud: Cloud) -> AsyncIterator[ServiceBus]:
    adapters = Adapters.of(settings_of(cloud))
    yield adapters.bus
    await adapters.close()


async def read_queue(cloud: Cloud, region: str) -> dict[str, list[tuple[object, ...]]]:
    """All that a reader with plain azure-servicebus finds, by session, and takes out."""
    found: dict[str, list[tuple[object, ...]]] = {}
    connection = cloud.namespaces[region].connection_string
    async with ServiceBusClient.from_connection_string(connection) as client:
        while len(found) < len(SESSIONS):
            async with client.get_queue_receiver(
                QUEUE, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5
            ) as receiver:
                received = await receiver.receive_messages(10, max_wait_time=2)
                found[str(receiver.session.session_id)] = [describe(each) for each in received]
                for each in received:
                    await receiver.complete_message(each)
    return found


def describe(received: ServiceBusReceivedMessage) -> tuple[object, ...]:
    """Everything that a sender has said of a message."""
    names = "body_type application_properties message_id session_id content_type partition_key "
    names += "time_to_live subject correlation_id reply_to to"
    raw = received.raw_amqp_message
    own = (getattr(received, name) for name in names.split())
    return (b"".join(received.body), *own, raw.header, raw.properties, raw.footer)


@pytest.fixture
async def encoding(cloud: Cloud) -> AsyncIterator[EncodedBus]:
    encoding = EncodedBus.of(settings_of(cloud).service_bus)
    yield encoding
    await encoding.close()


@pytest.mark.proof
async def test_a_reader_finds_the_same_whoever_encoded_it_and_however_it_was_batched(
    cloud: Cloud, bus: ServiceBus, encoding: EncodedBus
) -> None:
    texts = ('{"note":"plain"}', '{"note":"\\"quoted\\"\\nZürich 東京 🚀"}', "1.5")
    messages = {
        session: [message(session, place, text.encode()) for place, text in enumerate(texts)]
        for session in SESSIONS
    }
    for each in messages.values():
        await bus.send(EAST, QUEUE, each)
    alone = await read_queue(cloud, EAST)
    for way in (bus, encoding):
        gathering = GatheringBus(way)
        await asyncio.gather(*(gathering.send(EAST, QUEUE, each) for each in messages.values()))
        together = await read_queue(cloud, EAST)
        assert not gathering.partitioned
        bodies = {session: [each[0] for each in found] for session, found in together.items()}
        assert bodies == {session: [text.encode() for text in texts] for session in SESSIONS}
        assert together == alone


async def test_a_task_has_one_connection_to_a_namespace(encoding: EncodedBus) -> None:
    gathering = GatheringBus(encoding)
    opened = set()
    for sequence in range(3):
        sends = (gathering.send(WEST, QUEUE, [message(each, sequence)]) for each in SESSIONS)
        await asyncio.gather(*sends)
        opened |= set(encoding.namespaces[WEST].idle[QUEUE])
    assert len(opened) == 1
