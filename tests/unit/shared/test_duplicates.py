"""What is remembered of the journal is bounded, right, and never taken for more than it is."""

from shared.domain.journal import Entry
from shared.engine.consume.duplicates import Duplicates
from shared.storage.journal import Journal
from tests.world import World, message


async def full(world: World, count: int) -> Entry:
    """A session with so many entries."""
    for n in range(count):
        await world.east.consumer.consume(message(n))
    head = await world.journal.head("acc-7")
    assert head is not None
    return head


def duplicates_of(world: World, remembered_max: int = 50_000) -> tuple[Duplicates, dict[str, int]]:
    """A memory of its own, and what it asked for."""
    journal: Journal = world.journal
    world.journal.fault_plan.calls.clear()
    return Duplicates(journal, remembered_max), world.journal.fault_plan.calls


async def test_nothing_is_known_before_it_is_looked_for() -> None:
    world = World()
    await full(world, 3)
    duplicates, calls = duplicates_of(world)

    assert duplicates.recall(message(1)) is None

    assert dict(calls) == {}
    assert await duplicates.look(message(1)) == message(1).digest
    assert duplicates.recall(message(1)) == message(1).digest


async def test_what_is_not_there_yet_is_not_known() -> None:
    world = World()
    await full(world, 3)
    duplicates, _ = duplicates_of(world)

    assert await duplicates.look(message(3)) is None
    assert await duplicates.look(message(0, group="newcomer")) is None
    assert await duplicates.look(message(0, session="acc-8")) is None


async def test_a_page_answers_for_the_messages_after_it() -> None:
    world = World()
    await full(world, 60)
    duplicates, calls = duplicates_of(world)
    await duplicates.look(message(0))
    await duplicates.look(message(1))

    assert [duplicates.recall(message(n)) for n in range(41)] == [
        message(n).digest for n in range(41)
    ]
    assert duplicates.recall(message(41)) is None
    assert dict(calls) == {"processed": 2}


async def test_the_memory_is_bounded_and_forgets_the_oldest() -> None:
    world = World()
    await full(world, 120)
    duplicates, _ = duplicates_of(world, remembered_max=45)
    for n in range(120):
        assert await duplicates.look(message(n)) == message(n).digest

    assert len(duplicates.processed) == 45
    assert duplicates.recall(message(0)) is None
    assert duplicates.recall(message(119)) == message(119).digest


async def test_the_search_by_halves_finds_every_number_of_every_group() -> None:
    world = World()
    flow = [
        message(n, group=group)
        for group, count in (("few", 3), ("many", 90), ("late", 5))
        for n in range(count)
    ]
    for arriving in flow:
        await world.east.consumer.consume(arriving)
    head = await world.journal.head("acc-7")
    assert head is not None

    for arriving in flow:
        duplicates, calls = duplicates_of(world)
        assert await duplicates.search(head, arriving) == arriving.digest
        assert calls["entry"] <= 9


async def test_a_claim_is_not_known_as_done() -> None:
    world = World()
    head = await full(world, 2)
    claim = world.journal.partitions["acc-7"]["000000000001"]
    claim |= {"status": "working", "claimed": True}
    duplicates, _ = duplicates_of(world)

    assert await duplicates.look(message(1)) is None
    await duplicates.look(message(0))
    assert duplicates.recall(message(1)) is None
    assert head.position == 1
