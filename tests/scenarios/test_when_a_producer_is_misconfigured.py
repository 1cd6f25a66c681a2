"""A queue, a key or a connection is wrong: the sender is told by name, and nothing is numbered."""

from dataclasses import replace

import pytest

from shared.domain.errors import Misconfigured, OutcomeUnknown
from shared.domain.outbox import AppQueues
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.publish.publish import Producer
from tests.crashes import rest
from tests.world import REGIONS, World, message

OPTIONS = ProducerOptions("bank")
DRAFTS = [Draft(f"m-{n}", "account.add", b'{"amount":1}') for n in range(3)]
MISSPELT = "inn"


@pytest.fixture
def world() -> World:
    made = World()
    made.bus.missing = {(region, MISSPELT) for region in REGIONS}
    return made


def misspelt(world: World) -> Producer:
    """A producer whose queue is nowhere."""
    delivery = replace(world.delivery(), queues=AppQueues(MISSPELT, "out", "errors"))
    return Producer(world.journal, delivery)


async def test_a_misspelt_queue_is_refused_by_name_before_anything_is_numbered(
    world: World,
) -> None:
    producer = misspelt(world)

    for _ in range(2):
        with pytest.raises(
            Misconfigured, match=r"nothing was numbered: 'inn' .* region east; 'inn' .* region west"
        ):
            await producer.publish("acc-7", DRAFTS, OPTIONS)
        with pytest.raises(Misconfigured, match="'inn' does not exist"):
            await producer.send([message(0)])
        with pytest.raises(Misconfigured, match="'inn' does not exist"):
            await producer.agree("acc-7", replace(OPTIONS, starting_sequence_number=0))

    assert await world.journal.ledger("acc-7", "bank") is None
    assert await world.pending() == []


async def test_the_corrected_producer_works_at_once(world: World) -> None:
    with pytest.raises(Misconfigured):
        await misspelt(world).publish("acc-7", DRAFTS, OPTIONS)

    published = await world.producer().publish("acc-7", DRAFTS, OPTIONS)

    assert [m.number.sequence for m in published.messages if m.number] == [0, 1, 2]


async def test_a_queue_that_is_made_meanwhile_is_found_by_the_same_producer(world: World) -> None:
    producer = misspelt(world)
    with pytest.raises(Misconfigured):
        await producer.publish("acc-7", DRAFTS, OPTIONS)

    world.bus.missing = set()
    await producer.publish("acc-7", DRAFTS, OPTIONS)

    assert [m.id for m in world.bus.messages("west", MISSPELT)] == ["m-0", "m-1", "m-2"]


async def test_one_region_that_takes_nothing_is_no_reason_to_refuse(world: World) -> None:
    world.bus.missing = {"west"}

    published = await world.producer().publish("acc-7", DRAFTS, OPTIONS)

    assert (published.sent, published.pending, published.regions) == (3, 3, ("east",))
    assert published.missing == {"west": "'in' does not exist in region west"}
    assert [m.id for m in world.bus.messages("east", "in")] == ["m-0", "m-1", "m-2"]


async def test_it_is_said_which_regions_have_a_message_and_why_others_do_not(world: World) -> None:
    producer = world.producer()
    both = await producer.publish("acc-7", DRAFTS[:1], OPTIONS)
    again = await producer.publish("acc-7", DRAFTS[:1], OPTIONS)
    world.bus.unavailable = {"east"}
    one = await producer.publish("acc-7", DRAFTS[1:], OPTIONS)
    sent = await producer.send([message(0)])

    assert (both.regions, both.missing, both.pending) == (REGIONS, {}, 0)
    assert (again.sent, again.regions, again.missing) == (1, (), {})
    for published, count in ((one, 2), (sent, 1)):
        assert (published.sent, published.pending) == (count, count)
        assert published.regions == ("west",)
        assert published.missing == {"east": "region east is unavailable"}


@pytest.mark.parametrize("silent", [{"west"}, {"east", "west"}])
async def test_only_regions_that_answer_are_asked(world: World, silent: set[str]) -> None:
    world.bus.unavailable = set(silent)
    producer = misspelt(world)

    with pytest.raises(OutcomeUnknown if len(silent) == 2 else Misconfigured):
        await producer.publish("acc-7", DRAFTS, OPTIONS)

    is_numbered = await world.journal.ledger("acc-7", "bank") is not None
    assert is_numbered is (len(silent) == 2)


async def test_a_queue_that_goes_away_later_is_named_and_its_messages_follow(world: World) -> None:
    producer = world.producer()
    await producer.publish("acc-7", DRAFTS[:1], OPTIONS)
    world.bus.missing = set(REGIONS)

    with pytest.raises(OutcomeUnknown, match=r"\(east: .*'in' does not exist.*; west: .*exist"):
        await producer.publish("acc-7", DRAFTS[1:2], OPTIONS)
    with pytest.raises(Misconfigured, match="nothing was numbered"):
        await producer.publish("acc-7", DRAFTS[2:], OPTIONS)

    world.bus.missing = set()
    await producer.publish("acc-7", DRAFTS[2:], OPTIONS)
    await rest(world)
    for region in REGIONS:
        assert [m.id for m in world.bus.messages(region, "in")] == ["m-0", "m-1", "m-2"]


async def test_a_wrong_store_is_named_before_anything_is_sent() -> None:
    world = World()

    async def forbid() -> None:
        raise Misconfigured("Cosmos DB: the key is wrong")

    producer = world.producer()
    world.journal.regions = forbid  # type: ignore[method-assign]

    with pytest.raises(Misconfigured, match="the key is wrong"):
        await producer.send([message(0)])
    assert world.bus.messages("east", "in") == []
