"""The blocking client: many threads, one loop, and nothing left behind."""

import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from shared.domain.errors import (
    AlreadyPublished,
    InvalidClientState,
    OutcomeUnknown,
    ProducerClosed,
)
from shared.publishing.message import SessionMessage
from shared.publishing.opening import BlockingProducer
from shared.publishing.options import IdempotentProducerOptions, PartitionPublishingOptions
from shared.publishing.producer import IdempotentProducer
from tests.world import World


@dataclass
class Office:
    """Opens producers in a world, and remembers whether they were closed."""

    world: World = field(default_factory=World)
    options: IdempotentProducerOptions = field(
        default_factory=lambda: IdempotentProducerOptions("bank")
    )
    closed: int = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[IdempotentProducer]:
        producer = IdempotentProducer(self.world.producer(), self.options)
        yield producer
        await producer.close()
        self.closed += 1


def messages(thread: int, how_many: int) -> list[SessionMessage]:
    return [SessionMessage(f"m-{thread}-{n}", "t", f'{{"n":{n}}}') for n in range(how_many)]


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("lockstep-producer")]


def test_many_threads_publish_to_their_sessions_and_to_one_they_share() -> None:
    office = Office()

    def work(thread: int) -> list[int | None]:
        own = messages(thread, 20)
        for message in own:
            producer.send([message], session=f"s-{thread}")
        shared = [SessionMessage(f"shared-{thread}-{n}", "t", "{}") for n in range(5)]
        producer.send(shared, session="shared")
        first = shared[0].published_sequence_number or 0
        assert [m.published_sequence_number for m in shared] == list(range(first, first + 5))
        return [m.published_sequence_number for m in own]

    with BlockingProducer(office.open) as producer, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [list(range(20))] * 8

    arrived = [m for m in office.world.bus.messages("east", "in") if m.session == "shared"]
    assert [m.number.sequence for m in arrived if m.number] == list(range(40))
    assert (office.closed, threads()) == (1, [])


def test_batches_and_properties_work_as_they_do_with_asyncio() -> None:
    with BlockingProducer(Office().open) as producer:
        batch = producer.create_batch("acc-7", max_size_in_bytes=10_000)
        for message in messages(0, 3):
            batch.add(message)
        producer.send(batch)
        properties = producer.get_partition_publishing_properties("acc-7")
        with pytest.raises(AlreadyPublished):
            producer.send(batch)

    assert batch.starting_published_sequence_number == 0
    assert properties.last_published_sequence_number == 2


def test_errors_reach_the_thread_that_asked() -> None:
    own = {"acc-7": PartitionPublishingOptions(starting_sequence_number=5)}
    office = Office(options=IdempotentProducerOptions("bank", None, own))
    with BlockingProducer(office.open) as producer:
        with pytest.raises(InvalidClientState):
            producer.send(messages(0, 1), session="acc-7")
        office.world.bus.unavailable.update({"east", "west"})
        with pytest.raises(OutcomeUnknown):
            producer.send(messages(0, 1), session="acc-8")

    assert office.closed == 1


def test_a_producer_that_is_not_open_refuses() -> None:
    producer = BlockingProducer(Office().open)
    with pytest.raises(ProducerClosed):
        producer.send(messages(0, 1), session="acc-7")
    with producer:
        producer.send(messages(0, 1), session="acc-7")
    with pytest.raises(ProducerClosed):
        producer.send(messages(1, 1), session="acc-7")

    assert threads() == []


@pytest.mark.parametrize("can_be_opened", [False, True])
def test_a_producer_that_cannot_be_opened_or_closed_says_why_and_leaves_no_thread(
    *, can_be_opened: bool
) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[IdempotentProducer]:
        if can_be_opened:
            async with Office().open() as producer:
                yield producer
        raise OSError("no network")

    sent = messages(0, 1)
    with pytest.raises(OSError, match="no network"), BlockingProducer(broken) as producer:
        producer.send(sent, session="acc-7")

    assert (sent[0].published_sequence_number == 0) is can_be_opened
    assert threads() == []


def test_leaving_while_others_send_lets_them_end() -> None:
    office = Office()
    sent = [messages(thread, 1) for thread in range(8)]
    refused: list[str] = []

    def send(own: list[SessionMessage]) -> None:
        try:
            producer.send(own, session=own[0].draft.id)
        except ProducerClosed:
            refused.append(own[0].draft.id)

    with ThreadPoolExecutor(8) as pool:
        with BlockingProducer(office.open) as producer:
            work = [pool.submit(send, own) for own in sent]
        for done in work:
            done.result(timeout=20)

    arrived = {m.id for m in office.world.bus.messages("east", "in")}
    assert arrived.isdisjoint(refused)
    assert arrived | set(refused) == {own[0].draft.id for own in sent}
