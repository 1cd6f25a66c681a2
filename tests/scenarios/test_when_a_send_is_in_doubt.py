"""A send has no answer, is cancelled, or its process dies: no number is lost or used twice."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from functions.triggers.recover import sweep_ledgers
from shared.adapters.cosmos import CosmosContainer
from shared.domain.errors import AlreadyPublished, InvalidClientState, Misconfigured, OutcomeUnknown
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.build import Services, build
from shared.engine.dispatch.deliver import PAUSE_SECONDS, Delivery
from shared.engine.publish.publish import Producer
from shared.publishing.message import MessageBatch, SessionMessage
from shared.publishing.options import IdempotentProducerOptions, PartitionPublishingOptions
from shared.publishing.producer import IdempotentProducer
from shared.settings import InvalidSettings, Settings
from shared.storage.journal import Journal
from shared.testkit.injected_faults import CallFault
from shared.testkit.memory import MemoryJournal
from shared.wiring import Adapters, connect
from tests.crashes import rest
from tests.unit.shared.test_settings import ENVIRONMENT
from tests.world import (
    DELAY_SECONDS,
    LAG_SECONDS,
    QUEUES,
    REGIONS,
    World,
    handlers,
    require,
    sequences,
    sweep_later,
    take,
)

# When another batch follows an unknown send, its numbers come after those of the unknown one.

SESSION = "acc-7"
BANK = IdempotentProducerOptions("bank")


def note(name: str, amount: int, text: str = "Zoë") -> SessionMessage:
    return SessionMessage(name, "account.add", f'{{"amount":{amount},"note":"{text}"}}')


async def failed_to_send(world: World) -> tuple[IdempotentProducer, SessionMessage]:
    """A producer and its message: both namespaces took it, and neither answered."""
    producer, first = IdempotentProducer(world.producer(), BANK), note("a", 1)
    world.bus.fault_plan.plan("send.east", CallFault.UNANSWERED)
    world.bus.fault_plan.plan("send.west", CallFault.LOST)
    with pytest.raises(OutcomeUnknown):
        await producer.send([first], session=SESSION)
    assert first.published_sequence_number is None
    world.clock.seconds += PAUSE_SECONDS
    return producer, first


# When a process that died had numbered messages which no region has.


async def test_when_a_new_process_asks_for_what_was_published_unsent_numbers_do_not_count(
    world: World,
) -> None:
    dead = IdempotentProducer(world.producer(), BANK)
    await dead.send([note("a", 1)], session=SESSION)
    with world.without("east", "west"), pytest.raises(OutcomeUnknown):
        await dead.send([note("b", 2), note("c", 3)], session=SESSION)

    after = IdempotentProducer(world.producer(), BANK)
    before_sweep = await after.get_partition_publishing_properties(SESSION)
    await sweep_later(world)
    after_sweep = await after.get_partition_publishing_properties(SESSION)

    assert (before_sweep.owner_level, before_sweep.last_published_sequence_number) == (0, 0)
    assert after_sweep.last_published_sequence_number == 2
    assert [m.id for m in world.bus.messages("east", "in")] == ["a", "b", "c"]


async def test_the_unknown_bytes_are_sent_first_and_keep_their_numbers(world: World) -> None:
    (producer, first), other = await failed_to_send(world), note("b", 2)

    await producer.send([other], session=SESSION)

    expected = [(0, "a", first.draft.body), (1, "b", other.draft.body)]
    assert other.published_sequence_number == 1
    assert content(world, "east") == content(world, "west") == expected

    # The same messages sent later find the numbers they had.
    await producer.send([first], session=SESSION)
    assert first.published_sequence_number == 0
    properties = await producer.get_partition_publishing_properties(SESSION)
    assert properties.last_published_sequence_number == 1
    assert len(content(world, "west")) == 2


async def test_nothing_newer_is_numbered_while_no_region_takes_them(world: World) -> None:
    producer, _ = await failed_to_send(world)
    world.bus.unavailable.update(REGIONS)
    for name in ("b", "c"):
        with pytest.raises(OutcomeUnknown):
            await producer.send([note(name, 2)], session=SESSION)

    stored = require(await world.journal.ledger(SESSION, "bank"))

    assert stored.ledger.next == 1


async def test_a_caller_that_never_comes_back_leaves_no_hole(world: World) -> None:
    _, first = await failed_to_send(world)

    await sweep_later(world)

    assert content(world, "east") == content(world, "west") == [(0, "a", first.draft.body)]
    assert await world.pending() == []


@pytest.mark.parametrize(("start", "agrees"), [(1, True), (2, True), (0, False), (3, False)])
async def test_a_new_process_must_know_of_all_operations_but_the_newest(
    world: World, *, start: int, agrees: bool
) -> None:
    await IdempotentProducer(world.producer(), BANK).send([note("z", 0)], session=SESSION)
    await failed_to_send(world)
    own = {SESSION: PartitionPublishingOptions(starting_sequence_number=start)}
    restarted = IdempotentProducer(world.producer(), IdempotentProducerOptions("bank", None, own))
    other = note("b", 2)

    if agrees:
        await restarted.send([other], session=SESSION)
        assert other.published_sequence_number == 2
    else:
        with pytest.raises(InvalidClientState, match="expects 2"):
            await restarted.send([other], session=SESSION)


# When a send is cancelled, at any of its suspensions, it has succeeded or failed, never half.

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
        batch.add(note(f"m-{n}", n))
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
    """What takes effect after both regions swept, and processed what they were sent."""
    await rest(world)
    for region in REGIONS:
        await take(world.worker(region), *world.bus.messages(region, "in"))
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


async def test_a_send_that_is_cancelled_while_it_waits_its_turn_did_nothing(world: World) -> None:
    producer = slow_producer(world)
    first = asyncio.ensure_future(producer.send(await batch_of(producer, 1)))
    waiting = await batch_of(producer, 2)
    assert await cancel_at(2, producer.send(waiting))
    await first

    await producer.send(await batch_of(producer, 3))

    assert waiting.starting_published_sequence_number is None
    assert await effects(world) == [1, 3]


# When a sender dies between the namespaces, the one that misses its messages gets them.

OPTIONS = ProducerOptions("bank")
DRAFTS = [Draft(f"m-{n}", "account.add", f'{{"amount":{n}}}'.encode()) for n in range(3)]
LATER = [Draft("later", "account.add", b'{"amount":9}')]


async def died_with(region: str) -> World:
    """A world whose producer died when only this region had its messages."""
    world = World()
    (other,) = {*REGIONS} - {region}
    producer = world.producer()
    async with producer.readiness.required():
        world.bus.silent = {other}
    dying = asyncio.ensure_future(producer.publish(SESSION, DRAFTS, OPTIONS))
    for _ in range(STEPS_MAX):
        await asyncio.sleep(0)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    world.bus.silent = set()
    assert (len(world.bus.messages(region, "in")), world.bus.messages(other, "in")) == (3, [])
    return world


def content(world: World, region: str) -> list[tuple[int, str, bytes]]:
    """Number, id and body of what a region was sent, each once, in the order of first arrival."""
    messages = world.bus.messages(region, "in")
    return list(dict.fromkeys((m.number.sequence, m.id, m.body) for m in messages if m.number))


EXPECTED = [(n, draft.id, draft.body) for n, draft in enumerate(DRAFTS)]


async def publish_again(world: World) -> None:
    """A new process publishes the same."""
    published = await world.producer().publish(SESSION, DRAFTS, OPTIONS)
    assert sequences(published.messages) == [0, 1, 2]


@pytest.mark.parametrize("bring", [rest, publish_again], ids=["the sweep", "a new process"])
@pytest.mark.parametrize("region", REGIONS)
async def test_the_other_copy_is_brought_under_the_same_numbers(
    region: str, bring: Callable[[World], Awaitable[None]]
) -> None:
    world = await died_with(region)

    await bring(world)

    assert content(world, "east") == content(world, "west") == EXPECTED
    assert await world.pending() == []


@pytest.mark.parametrize("level", [0, 1], ids=["another message", "a higher owner level, too"])
@pytest.mark.parametrize("region", REGIONS)
async def test_a_new_process_with_others_brings_it_before_its_own(region: str, level: int) -> None:
    world = await died_with(region)

    await world.producer().publish(SESSION, LATER, ProducerOptions("bank", owner_level=level))

    if level == 0:
        whole = [*EXPECTED, (3, "later", LATER[0].body)]
        assert content(world, "east") == content(world, "west") == whole
    assert await effects(world) == [0, 1, 2, 9]


# When producers outside have ledgers of their own, their messages are as safe.

TWO = [Draft(f"m-{n}", "account.add", b'{"amount":1}') for n in range(2)]


def outsiders_of(world: World, ledgers: MemoryJournal, region: str) -> Services:
    """An app's services over the container of the ledgers."""
    delivery = world.delivery()
    owner = replace(world.east.worker.owner, region=region)
    producer = Producer(ledgers, delivery)
    return build(ledgers, delivery, world.clock, owner, handlers, producer, world.policy)


async def test_the_sweep_of_a_region_delivers_what_its_producer_could_not(world: World) -> None:
    ledgers = MemoryJournal(world.clock)
    producer = Producer(ledgers, world.delivery())
    with world.without("west"):
        published = await producer.publish("acc-7", TWO, OPTIONS)
    # Nothing of it is in the journal, which the producer has no right to.
    assert "acc-7" not in world.journal.partitions
    await world.clock.sleep(LAG_SECONDS + 60)
    await sweep_ledgers(outsiders_of(world, ledgers, "west"))

    sent = world.bus.messages("west", "in")
    assert sent == world.bus.messages("east", "in") == list(published.messages)
    assert [d for d in ledgers.partitions["acc-7"].values() if d.get("pending")] == []
    await take(world.west, *sent, *sent)
    assert world.amounts() == [1, 1]
    # A producer that starts anew goes on where the ledger ends.
    again = Producer(ledgers, world.delivery())
    later = await again.publish("acc-7", [replace(TWO[0], id="m-9")], OPTIONS)
    assert [one.number.sequence for one in later.messages if one.number] == [2]


async def test_a_producer_that_knows_other_regions_than_the_apps_is_refused(world: World) -> None:
    ledgers = MemoryJournal(world.clock)
    await sweep_ledgers(outsiders_of(world, ledgers, "east"))

    alone = Delivery(world.bus, world.clock, ("east",), DELAY_SECONDS, QUEUES)
    with pytest.raises(Misconfigured, match="regions"):
        await Producer(ledgers, alone).publish("acc-7", TWO, OPTIONS)


def name_of(journal: Journal) -> str:
    """The container that a journal is kept in."""
    assert isinstance(journal.container, CosmosContainer)
    return journal.container.name


def test_producers_use_the_container_of_the_ledgers_and_the_app_its_journal() -> None:
    settings = Settings.read(ENVIRONMENT | {"LOCKSTEP_LEDGERS": "ledgers"})
    adapters = Adapters.of(settings)

    services = connect(settings, handlers, adapters)

    assert name_of(adapters.keep_ledgers(settings).journal) == "ledgers"
    assert name_of(adapters.journal) == "journal"
    assert services.external_ledgers is not None
    assert name_of(services.external_ledgers.journal) == "ledgers"
    assert services.compactor.ledgers is services.external_ledgers.journal
    assert services.journal is services.producer.journal is adapters.journal
    assert connect(Settings.read(ENVIRONMENT), handlers).external_ledgers is None


def test_ledgers_that_are_the_journal_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="LOCKSTEP_LEDGERS and LOCKSTEP_JOURNAL"):
        Settings.read(ENVIRONMENT | {"LOCKSTEP_LEDGERS": "journal"})
