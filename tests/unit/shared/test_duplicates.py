"""What is remembered of the journal is bounded, right, and never taken for more than it is."""

from collections.abc import Iterable

from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.engine.consume.duplicates import Duplicates
from tests.world import World, message, require


async def full(world: World, sent: Iterable[Message]) -> Entry:
    """A session with these entries: its newest one."""
    for arriving in sent:
        await world.east.consumer.consume(arriving)
    return require(await world.journal.head("acc-7"))


def duplicates_of(world: World, remembered_max: int = 50_000) -> tuple[Duplicates, dict[str, int]]:
    """A memory of its own, and what it asked for."""
    world.journal.fault_plan.calls.clear()
    return Duplicates(world.journal, remembered_max), world.journal.fault_plan.calls


async def test_only_what_was_looked_for_and_is_there_is_known(world: World) -> None:
    await full(world, map(message, range(3)))
    duplicates, calls = duplicates_of(world)

    assert duplicates.recall(message(1)) is None
    assert dict(calls) == {}
    assert await duplicates.look(message(1)) == message(1).digest
    assert duplicates.recall(message(1)) == message(1).digest
    for other in (message(3), message(0, group="newcomer"), message(0, session="acc-8")):
        assert await duplicates.look(other) is None


async def test_the_memory_is_bounded_and_forgets_the_oldest(world: World) -> None:
    await full(world, map(message, range(120)))
    duplicates, _ = duplicates_of(world, remembered_max=45)
    for n in range(120):
        assert await duplicates.look(message(n)) == message(n).digest

    assert len(duplicates.processed) == 45
    assert duplicates.recall(message(0)) is None
    assert duplicates.recall(message(119)) == message(119).digest


async def test_the_search_by_halves_finds_every_number_of_every_group(world: World) -> None:
    counts = {"few": 3, "many": 90, "late": 5}
    flow = [message(n, group=group) for group, count in counts.items() for n in range(count)]
    head = await full(world, flow)

    for arriving in flow:
        duplicates, calls = duplicates_of(world)
        assert await duplicates.search(head, arriving) == arriving.digest
        assert calls["entry"] <= 9
