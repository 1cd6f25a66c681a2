"""The public client: what it takes, what locks, and how it closes."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.domain.errors import (
    AlreadyPublished,
    InvalidMessage,
    InvalidOptions,
    OutcomeUnknown,
    ProducerClosed,
    TooLarge,
)
from shared.domain.message import BODY_BYTES_MAX, Message, Number
from shared.publishing.message import MessageBatch, SessionMessage
from shared.publishing.options import (
    IdempotentProducerOptions,
    PartitionPublishingOptions,
    PartitionPublishingProperties,
)
from shared.publishing.producer import IdempotentProducer
from shared.storage.limits import OPERATION_BYTES_MAX
from shared.testkit.memory_bus import MemoryBus
from tests.world import LAG_SECONDS, World

SESSION = "acc-7"
OPTIONS = IdempotentProducerOptions("bank")


def client(world: World, options: IdempotentProducerOptions = OPTIONS) -> IdempotentProducer:
    return IdempotentProducer(world.producer(), options)


def message(name: str = "m-0", size: int = 1) -> SessionMessage:
    return SessionMessage(name, "account.add", '"' + "x" * size + '"')


async def begin(world: World) -> tuple[IdempotentProducer, MessageBatch]:
    """A producer and a batch of one message."""
    producer = client(world)
    batch = await producer.create_batch(SESSION)
    batch.add(message())
    return producer, batch


async def test_a_batch_says_no_when_it_is_full_and_takes_what_still_fits(world: World) -> None:
    batch = await client(world).create_batch(SESSION, max_size_in_bytes=1_000)

    assert batch.try_add(message("m-0", 300))
    assert not batch.try_add(message("m-1", 500))
    with pytest.raises(TooLarge, match="full with 1 messages"):
        batch.add(message("m-1", 500))
    assert batch.try_add(message("m-2", 20))

    assert (len(batch), batch.max_size_in_bytes) == (2, 1_000)
    assert 300 < batch.size_in_bytes <= 1_000


async def test_a_message_that_no_batch_of_the_size_takes_is_refused_by_name(world: World) -> None:
    batch = await client(world).create_batch(SESSION, max_size_in_bytes=200)

    with pytest.raises(TooLarge, match="the batch takes 200"):
        batch.try_add(message(size=200))
    assert len(batch) == 0


@pytest.mark.parametrize(
    ("session", "size", "why"),
    [
        (SESSION, 0, "a batch has 1 to"),
        (SESSION, -1, "a batch has 1 to"),
        (SESSION, OPERATION_BYTES_MAX + 1, "a batch has 1 to"),
        ("", 1_000, "the session is empty"),
        ("s" * 129, 1_000, "the session has 129"),
    ],
)
async def test_a_batch_of_an_impossible_session_or_size_is_refused(
    world: World, session: str, size: int, why: str
) -> None:
    with pytest.raises(InvalidMessage, match=why):
        await client(world).create_batch(session, max_size_in_bytes=size)


async def test_a_full_batch_fits_into_one_operation(world: World) -> None:
    producer = client(world)
    batch = await producer.create_batch(SESSION)
    while batch.try_add(message(f"m-{len(batch)}", 100_000)):
        pass

    await producer.send(batch)

    assert [m.published_sequence_number for m in batch.messages] == list(range(14))


async def test_one_operation_has_one_session(world: World) -> None:
    producer, batch = await begin(world)

    with pytest.raises(InvalidMessage, match="need a session"):
        await producer.send([message()])
    with pytest.raises(InvalidMessage, match="'acc-7' sent to 'acc-8'"):
        await producer.send(batch, session="acc-8")
    with pytest.raises(InvalidMessage, match="nothing to send"):
        await producer.send([], session=SESSION)

    await producer.send(batch, session=SESSION)
    assert batch.starting_published_sequence_number == 0


@pytest.mark.parametrize("body", ["", b"\xff", b"x" * (BODY_BYTES_MAX + 1)])
def test_a_body_that_could_be_sent_nowhere_is_refused_at_once(body: str | bytes) -> None:
    with pytest.raises(InvalidMessage):
        SessionMessage("m", "t", body)


async def test_a_failed_batch_is_open_without_numbers_and_can_be_sent_again(world: World) -> None:
    producer, batch = await begin(world)
    with world.without("east", "west"):
        with pytest.raises(OutcomeUnknown):
            await producer.send(batch)

        assert batch.starting_published_sequence_number is None
        assert batch.messages[0].published_sequence_number is None
        properties = await producer.get_partition_publishing_properties(SESSION)
        assert properties == PartitionPublishingProperties(SESSION, "bank", 0, None)
        batch.add(message("m-1"))
    world.clock.seconds += 3
    await producer.send(batch)
    assert [m.published_sequence_number for m in batch.messages] == [0, 1]
    assert [m.id for m in world.bus.messages("east", "in")] == ["m-0", "m-1"]


async def test_two_failures_in_a_row_do_not_contradict_what_the_caller_kept(world: World) -> None:
    await client(world).send([message("m-0")], session=SESSION)
    own = {SESSION: PartitionPublishingOptions(starting_sequence_number=1)}
    producer = client(world, IdempotentProducerOptions("bank", None, own))
    for name in ("m-1", "m-2"):
        with world.without("east", "west"), pytest.raises(OutcomeUnknown):
            await producer.send([message(name)], session=SESSION)
        world.clock.seconds += LAG_SECONDS
        await world.east.recovery.sweep()
    last = message("m-3")

    await producer.send([last], session=SESSION)

    assert last.published_sequence_number == 3
    assert [m.id for m in world.bus.messages("east", "in")] == ["m-0", "m-1", "m-2", "m-3"]


async def test_a_sessions_own_options_are_its_properties_and_are_used(world: World) -> None:
    own = {
        "a": PartitionPublishingOptions(producer_group_id="till", owner_level=9),
        "b": PartitionPublishingOptions(starting_sequence_number=122),
        "c": PartitionPublishingOptions(starting_sequence_number=0),
    }
    producer = client(world, IdempotentProducerOptions("bank", 3, own))

    known = [await producer.get_partition_publishing_properties(s) for s in ("a", "b", "c", "d")]

    assert known == [
        PartitionPublishingProperties("a", "till", 9, None),
        PartitionPublishingProperties("b", "bank", 3, None),
        PartitionPublishingProperties("c", "bank", 3, None),
        PartitionPublishingProperties("d", "bank", 3, None),
    ]
    await producer.send([message()], session="a")
    (sent,) = world.bus.messages("east", "in")
    assert sent.number == Number("till", 9, 0)


def test_options_are_checked_for_every_session_named() -> None:
    own = {SESSION: PartitionPublishingOptions(owner_level=-1)}

    with pytest.raises(InvalidOptions, match="owner level -1"):
        IdempotentProducerOptions("bank", None, own)
    with pytest.raises(InvalidOptions, match="owner level -1"):
        IdempotentProducerOptions(partition_options=own)


class Gated(MemoryBus):
    """A bus that waits to be let through."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        self.reached.set()
        await self.open.wait()
        await super().send(region, queue, messages, delay_seconds=delay_seconds)


async def test_what_is_being_sent_takes_nothing_more_and_closing_lets_it_end(world: World) -> None:
    world.bus = bus = Gated(world)
    producer, batch = await begin(world)

    sending = asyncio.ensure_future(producer.send(batch))
    await bus.reached.wait()
    with pytest.raises(AlreadyPublished, match="sending"):
        batch.try_add(message("m-1"))
    closing = asyncio.ensure_future(producer.close())
    await asyncio.sleep(0)
    with pytest.raises(ProducerClosed):
        await producer.send([message("m-1")], session=SESSION)
    assert not closing.done()
    bus.open.set()
    await asyncio.gather(sending, closing)

    assert [m.published_sequence_number for m in batch.messages] == [0]
