"""What is remembered of the journal is bounded, right, and never taken for more than it is."""

from shared.domain.journal import Entry
from shared.ports import Journal
from shared.usecases.coverage import Coverage
from tests.world import World, message


async def full(world: World, count: int) -> Entry:
    """A session with so many entries."""
    for n in range(count):
        await world.east.consumer.consume(message(n))
    head = await world.journal.head("acc-7")
    assert head is not None
    return head


def coverage_of(world: World, remembered_max: int = 50_000) -> tuple[Coverage, dict[str, int]]:
    """A memory of its own, and what it asked for."""
    journal: Journal = world.journal
    world.journal.fault_plan.calls.clear()
    return Coverage(journal, remembered_max), world.journal.fault_plan.calls


async def test_nothing_is_known_before_it_is_looked_for() -> None:
    world = World()
    await full(world, 3)
    coverage, calls = coverage_of(world)

    assert coverage.known(message(1)) is None

    assert dict(calls) == {}
    assert await coverage.look(message(1)) == message(1).digest
    assert coverage.known(message(1)) == message(1).digest


async def test_what_is_not_there_yet_is_not_known() -> None:
    world = World()
    await full(world, 3)
    coverage, _ = coverage_of(world)

    assert await coverage.look(message(3)) is None
    assert await coverage.look(message(0, group="newcomer")) is None
    assert await coverage.look(message(0, session="acc-8")) is None


async def test_a_page_answers_for_the_messages_after_it() -> None:
    world = World()
    await full(world, 60)
    coverage, calls = coverage_of(world)
    await coverage.look(message(0))
    await coverage.look(message(1))

    assert [coverage.known(message(n)) for n in range(41)] == [message(n).digest for n in range(41)]
    assert coverage.known(message(41)) is None
    assert dict(calls) == {"covers": 2}


async def test_the_memory_is_bounded_and_forgets_the_oldest() -> None:
    world = World()
    await full(world, 120)
    coverage, _ = coverage_of(world, remembered_max=45)
    for n in range(120):
        assert await coverage.look(message(n)) == message(n).digest

    assert len(coverage.found) == 45
    assert coverage.known(message(0)) is None
    assert coverage.known(message(119)) == message(119).digest


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
        coverage, calls = coverage_of(world)
        number = arriving.number
        assert number is not None
        assert await coverage.search_by_halves(head, arriving, number) == arriving.digest
        assert calls["entry"] <= 9


async def test_a_claim_is_not_known_as_done() -> None:
    world = World()
    head = await full(world, 2)
    claim = world.journal.partitions["acc-7"]["000000000001"]
    claim |= {"status": "working", "claimed": True}
    coverage, _ = coverage_of(world)

    assert await coverage.look(message(1)) is None
    await coverage.look(message(0))
    assert coverage.known(message(1)) is None
    assert head.position == 1
