"""A send is cancelled at each of its suspensions: it then has succeeded or failed, never half."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from shared.domain.errors import AlreadyPublished
from shared.engine.dispatch.deliver import Delivery
from shared.engine.publish.publish import Producer
from shared.publishing.message import MessageBatch, SessionMessage
from shared.publishing.options import IdempotentProducerOptions
from shared.publishing.producer import IdempotentProducer
from tests.world import DELAY_SECONDS, LAG_SECONDS, QUEUES, REGIONS, World

SESSION = "acc-7"
# More suspensions than a send has.
STEPS_MAX = 40


class Slow:
    """A journal or bus whose calls suspend before and after they are applied."""

    def __init__(self, quick: object) -> None:
        self.quick = quick

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method = getattr(self.quick, name)

        async def call(*arguments: Any, **options: Any) -> object:
            await asyncio.sleep(0)
            answer = await method(*arguments, **options)
            await asyncio.sleep(0)
            return answer

        return call


def slow_producer(world: World) -> IdempotentProducer:
    """A producer process whose every call can be interrupted."""
    bus, journal = cast(Any, Slow(world.bus)), cast(Any, Slow(world.journal))
    delivery = Delivery(bus, world.clock, REGIONS, DELAY_SECONDS, QUEUES)
    return IdempotentProducer(Producer(journal, delivery), IdempotentProducerOptions("bank"))


async def batch_of(producer: IdempotentProducer, *amounts: int) -> MessageBatch:
    batch = await producer.create_batch(SESSION)
    for n in amounts:
        batch.add(SessionMessage(f"m-{n}", "account.add", f'{{"amount":{n}}}'))
    return batch


async def cancel_at(step: int, sending: Awaitable[object]) -> bool:
    """Cancel at the n-th suspension; False where it does not suspend so often."""
    task = asyncio.ensure_future(sending)
    for _ in range(step):
        await asyncio.sleep(0)
    if task.done():
        return False
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return True


async def effects(world: World) -> list[int]:
    """What took effect after both regions swept, and processed what they were sent."""
    for region in REGIONS:
        world.clock.seconds += LAG_SECONDS
        await world.worker(region).recovery.sweep()
    for region in REGIONS:
        worker = world.worker(region)
        for arrived in world.bus.messages(region, "in"):
            await worker.consumer.consume(arrived)
    return world.amounts(SESSION)


async def test_a_cancelled_batch_is_published_and_locked_or_open_and_without_numbers() -> None:
    ends = set()
    for step in range(STEPS_MAX):
        world = World()
        producer = slow_producer(world)
        await producer.send(await batch_of(producer, 1))
        batch = await batch_of(producer, 2, 3)

        if not await cancel_at(step, producer.send(batch)):
            break

        start = batch.starting_published_sequence_number
        properties = await producer.get_partition_publishing_properties(SESSION)
        ends.add(start)
        if start is None:
            assert properties.last_published_sequence_number == 0
            await producer.send(batch)
        else:
            assert properties.last_published_sequence_number == 2
            with pytest.raises(AlreadyPublished):
                await producer.send(batch)
        assert [m.published_sequence_number for m in batch.messages] == [1, 2]
        assert await effects(world) == [1, 2, 3], step
    else:
        pytest.fail("a send suspends more often than this looks")
    assert ends == {None, 1}


async def test_another_batch_never_takes_the_numbers_of_a_cancelled_one() -> None:
    orders = set()
    for step in range(STEPS_MAX):
        world = World()
        producer = slow_producer(world)
        if not await cancel_at(step, producer.send(await batch_of(producer, 1, 2))):
            break

        await producer.send(await batch_of(producer, 3))

        numbers = {(m.number.sequence, m.id) for m in world.bus.messages("east", "in") if m.number}
        assert len({sequence for sequence, _ in numbers}) == len(numbers), step
        orders.add(tuple(await effects(world)))
    else:
        pytest.fail("a send suspends more often than this looks")
    assert orders == {(3,), (1, 2, 3)}


async def test_a_send_that_is_cancelled_while_it_waits_its_turn_did_nothing() -> None:
    world = World()
    producer = slow_producer(world)
    first = asyncio.ensure_future(producer.send(await batch_of(producer, 1)))
    waiting = await batch_of(producer, 2)
    assert await cancel_at(2, producer.send(waiting))
    await first

    await producer.send(await batch_of(producer, 3))

    assert waiting.starting_published_sequence_number is None
    assert await effects(world) == [1, 3]
