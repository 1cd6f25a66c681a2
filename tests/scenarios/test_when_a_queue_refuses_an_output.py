"""One output is too large for its queue: a void takes its place and the others follow."""

import pytest

from shared.domain.journal import Status
from shared.domain.reports import TOMBSTONE_TYPE
from shared.engine.consume.outcomes import AlreadyDone, Processed, Refused
from shared.ports import SessionNeed
from shared.testkit.regions import consume_together
from tests.crashes import redelivered, rest, sent, worlds
from tests.letters import READER, WRITER, Letter, handlers, writing
from tests.world import LAG_SECONDS, World

LARGEST = 1_000


def limited(world: World) -> World:
    """A world whose output queues take small messages only."""
    world.bus.largest = {(region, "out"): LARGEST for region in ("east", "west")}
    return world


@pytest.fixture
def world() -> World:
    """Two regions with small queues."""
    return limited(World(handlers=handlers))


def kinds(world: World, region: str) -> list[str]:
    """The types in a region's output queue, each message once."""
    found = {m.id: m.type for m in world.bus.messages(region, "out")}
    return list(found.values())


@pytest.mark.parametrize("kind", ["write", "write.again"])
async def test_a_void_with_its_id_and_number_takes_its_place_in_both_regions(
    world: World, kind: str
) -> None:
    free = World(handlers=handlers)
    await free.east.consumer.consume(writing([1, 5_000, 3], kind=kind))
    meant = free.bus.messages("east", "out")

    outcome = await world.east.consumer.consume(writing([1, 5_000, 3], kind=kind))

    assert isinstance(outcome, Processed)
    for region in ("east", "west"):
        came = {m.id: m for m in world.bus.messages(region, "out")}
        assert list(came) == [m.id for m in meant]
        assert [m.number for m in came.values()] == [m.number for m in meant]
        assert [m.type for m in came.values()] == ["letter", TOMBSTONE_TYPE, "letter"]
        assert came[meant[0].id] == meant[0]
        assert came[meant[2].id] == meant[2]
    assert sent(world, "east") == sent(world, "west")
    assert await world.pending() == []


async def test_nothing_that_stands_before_or_after_it_in_its_entry_is_sent_twice(
    world: World,
) -> None:
    await consume_together(world.east, [writing([1, 2]), writing([3, 5_000, 4], 1)])

    assert len(world.entries(WRITER)) == 1
    for region in ("east", "west"):
        came = [m.number.sequence for m in world.bus.messages(region, "out") if m.number]
        assert came == [0, 1, 2, 3, 4]


async def test_the_entry_names_it_and_is_a_fault_that_people_see(world: World) -> None:
    await world.east.consumer.consume(writing([1, 5_000, 3]))

    entry = await world.journal.entry(WRITER, 0)
    assert entry is not None
    poison = entry.outbox.messages[1]
    assert dict(entry.outbox.refused) == {poison.id: "a message is too large for 'out'"}
    assert Letter.model_validate_json(poison.body).text == "b" * 5_000
    assert list(await world.journal.sessions(SessionNeed.RESOLUTION, limit=10)) == [WRITER]
    assert entry.halt is None


async def test_the_next_outputs_of_the_session_are_not_blocked(world: World) -> None:
    await world.east.consumer.consume(writing([5_000]))
    await world.east.consumer.consume(writing([1, 2], 1))

    for region in ("east", "west"):
        assert kinds(world, region) == [TOMBSTONE_TYPE, "letter", "letter"]


async def test_the_receiver_records_the_void_and_goes_on(world: World) -> None:
    await world.east.consumer.consume(writing([1, 5_000, 3]))
    receiver = World(handlers=handlers)

    outcomes = {
        m.number.sequence: await receiver.east.consumer.consume(m)
        for m in world.bus.messages("east", "out")
        if m.number
    }
    for letter in world.bus.messages("west", "out"):
        assert await receiver.west.consumer.consume(letter) == AlreadyDone()

    void = outcomes[1]
    assert isinstance(void, AlreadyDone | Refused)
    head = await receiver.journal.head(READER)
    assert head is not None
    assert dict(head.state or {}) == {"letters": [1, 3]}
    recorded = await receiver.journal.entry(READER, 1)
    assert recorded is not None
    assert recorded.status is Status.SKIPPED
    assert recorded.reason == "voided by its sender: its queue does not take it"


async def test_one_regions_refusal_is_told_in_the_same_words_as_the_others(world: World) -> None:
    world.bus.unavailable = {"west"}
    await world.east.consumer.consume(writing([5_000, 2]))
    world.bus.unavailable = set()
    world.bus.largest.clear()
    world.clock.seconds += LAG_SECONDS

    await world.west.recovery.sweep()

    assert sent(world, "west") == sent(world, "east")
    assert kinds(world, "west") == [TOMBSTONE_TYPE, "letter"]


async def test_every_output_may_be_refused(world: World) -> None:
    await world.east.consumer.consume(writing([2_000, 3_000, 4_000]))

    assert kinds(world, "east") == kinds(world, "west") == [TOMBSTONE_TYPE] * 3
    assert await world.pending() == []


async def test_whatever_call_fails_the_void_and_the_others_have_the_same_bytes() -> None:
    async def work(world: World) -> None:
        limited(world)
        await redelivered(world, writing([1, 5_000, 3]), writing([4, 5], 1))
        await rest(world)

    expected: list[tuple[str, bytes]] = []
    async for world in worlds(work, handlers):
        expected = expected or sent(world, "east")
        assert len(expected) == 5
        for region in ("east", "west"):
            assert sent(world, region) == expected, (region, world.fault_plan)
        assert await world.pending() == [], world.fault_plan
        assert list(await world.journal.sessions(SessionNeed.RESOLUTION, limit=10)) == [WRITER]
