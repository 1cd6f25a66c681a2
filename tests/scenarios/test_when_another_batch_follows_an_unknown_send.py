"""A send's fate is unknown, and the caller sends something else next."""

import pytest

from shared.domain.errors import InvalidClientState, OutcomeUnknown
from shared.engine.dispatch.deliver import PAUSE_SECONDS
from shared.publishing.message import SessionMessage
from shared.publishing.options import IdempotentProducerOptions, PartitionPublishingOptions
from shared.publishing.producer import IdempotentProducer
from shared.testkit.injected_faults import CallFault
from tests.world import LAG_SECONDS, World

SESSION = "acc-7"
OPTIONS = IdempotentProducerOptions("bank")


def note(name: str, amount: int) -> SessionMessage:
    return SessionMessage(name, "account.add", f'{{"amount":{amount},"note":"Zoë"}}')


def sent(world: World, region: str) -> list[tuple[int, str, bytes]]:
    """Number, id and body of what a region was sent, each once, in the order of first arrival."""
    messages = world.bus.messages(region, "in")
    return list(dict.fromkeys((m.number.sequence, m.id, m.body) for m in messages if m.number))


async def fail_to_send(world: World, producer: IdempotentProducer, first: SessionMessage) -> None:
    """Both namespaces take the message, and neither answers."""
    world.bus.fault_plan.plan("send.east", CallFault.UNANSWERED)
    world.bus.fault_plan.plan("send.west", CallFault.LOST)
    with pytest.raises(OutcomeUnknown):
        await producer.send([first], session=SESSION)
    assert first.published_sequence_number is None
    world.clock.seconds += PAUSE_SECONDS


async def test_the_unknown_bytes_are_sent_first_and_the_others_get_later_numbers(
    world: World,
) -> None:
    producer = IdempotentProducer(world.producer(), OPTIONS)
    first, other = note("a", 1), note("b", 2)
    await fail_to_send(world, producer, first)

    await producer.send([other], session=SESSION)

    expected = [(0, "a", first.draft.body), (1, "b", other.draft.body)]
    assert other.published_sequence_number == 1
    assert sent(world, "east") == sent(world, "west") == expected


async def test_the_same_messages_sent_later_find_the_numbers_they_had(world: World) -> None:
    producer = IdempotentProducer(world.producer(), OPTIONS)
    first, other = note("a", 1), note("b", 2)
    await fail_to_send(world, producer, first)
    await producer.send([other], session=SESSION)

    await producer.send([first], session=SESSION)

    assert first.published_sequence_number == 0
    properties = await producer.get_partition_publishing_properties(SESSION)
    assert properties.last_published_sequence_number == 1
    assert len(sent(world, "west")) == 2


async def test_nothing_newer_is_numbered_while_no_region_takes_the_unknown_bytes(
    world: World,
) -> None:
    producer = IdempotentProducer(world.producer(), OPTIONS)
    await fail_to_send(world, producer, note("a", 1))
    world.bus.unavailable.update({"east", "west"})
    for name in ("b", "c"):
        with pytest.raises(OutcomeUnknown):
            await producer.send([note(name, 2)], session=SESSION)

    stored = await world.journal.ledger(SESSION, "bank")

    assert stored is not None
    assert stored.ledger.next == 1


async def test_a_caller_that_never_comes_back_leaves_no_hole(world: World) -> None:
    first = note("a", 1)
    await fail_to_send(world, IdempotentProducer(world.producer(), OPTIONS), first)

    for region in ("east", "west"):
        world.clock.seconds += LAG_SECONDS
        await world.worker(region).recovery.sweep()

    assert sent(world, "east") == sent(world, "west") == [(0, "a", first.draft.body)]
    assert await world.pending() == []


@pytest.mark.parametrize(("start", "agrees"), [(1, True), (2, True), (0, False), (3, False)])
async def test_a_new_process_may_not_know_of_the_newest_operation_but_of_those_before(
    world: World, *, start: int, agrees: bool
) -> None:
    producer = IdempotentProducer(world.producer(), OPTIONS)
    await producer.send([note("z", 0)], session=SESSION)
    await fail_to_send(world, producer, note("a", 1))
    own = {SESSION: PartitionPublishingOptions(starting_sequence_number=start)}
    restarted = IdempotentProducer(world.producer(), IdempotentProducerOptions("bank", None, own))
    other = note("b", 2)

    if agrees:
        await restarted.send([other], session=SESSION)
        assert other.published_sequence_number == 2
    else:
        with pytest.raises(InvalidClientState, match="expects 2"):
            await restarted.send([other], session=SESSION)
