"""Something stands still: it is listed until it is over, and no longer."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from shared.domain.errors import InvalidMessage, NotOpen, OutcomeUnknown, Unavailable, UnknownType
from shared.domain.journal import Resolution
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.standstill import StandstillKind
from shared.engine.operate.standstills import FEWEST
from shared.ports import SessionNeed
from shared.testkit.injected_faults import CallFault, ProcessKilled
from tests.sized_outputs import WRITER, handlers, writing
from tests.standstills import listed, shown
from tests.world import POLICY, REGIONS, SKIP, World, message, require

# When something stands still, it is listed until it is over, and has a verb.

DAY_SECONDS = 24 * 3600.0
LATE_SECONDS = POLICY.standstill_seconds + 1
DELIVER = ResolutionRequest(ResolutionAction.DELIVER, "Ada", "the region is back")


def closing(position: int) -> ResolutionRequest:
    return ResolutionRequest(ResolutionAction.CLOSE, "Ada", "put right by hand", at=position)


def refusing() -> World:
    """A world whose output queues take small messages only."""
    world = World(handlers=handlers)
    world.bus.largest = {(region, "out"): 3_000 for region in REGIONS}
    return world


async def test_outputs_that_a_region_misses_are_listed_once_they_are_late(world: World) -> None:
    with world.without("west"):
        await world.east.consumer.consume(message(0, kind="account.bill"))
        assert await shown(world.east) == []
        world.clock.seconds += LATE_SECONDS

        (pending,) = await listed(world.east)

        assert (pending.kind, pending.session) == (StandstillKind.PENDING, "acc-7")
        assert (pending.position, pending.regions) == (0, ("west",))
        assert pending.cause == "outputs have not reached west"
        (left,) = await world.east.resolver.deliver("acc-7", DELIVER)
        assert left.outbox.regions == ("west",)
    world.clock.seconds += LATE_SECONDS
    assert await world.east.resolver.deliver("acc-7", DELIVER) == ()
    assert await shown(world.east) == []
    assert world.outputs("west") == world.outputs("east")


async def test_a_producers_copies_are_listed_without_a_position(world: World) -> None:
    world.bus.unavailable = {"west"}
    await world.producer().send([message(0)])
    world.clock.seconds += LATE_SECONDS

    assert await shown(world.east) == [(StandstillKind.PENDING, "acc-7", None)]


async def test_a_fault_and_its_report_that_is_late_are_two_things(world: World) -> None:
    world.bus.unavailable = {"west"}
    await world.east.consumer.consume(message(0, kind="account.burn"))
    world.clock.seconds += LATE_SECONDS

    assert await shown(world.east) == [
        (StandstillKind.HALT, "acc-7", 0),
        (StandstillKind.PENDING, "acc-7", 0),
    ]


async def test_a_refused_output_is_listed_until_a_person_closes_it() -> None:
    world = refusing()
    await world.east.consumer.consume(writing([1, 5_000, 3]))
    (refused,) = await listed(world.west)
    assert (refused.kind, refused.session) == (StandstillKind.REFUSED, WRITER)
    assert list(refused.outputs.values()) == ["a message is too large for 'out'"]

    entry = await world.west.resolver.resolve(WRITER, closing(0))

    assert entry.closed == Resolution("close", "Ada", "put right by hand")
    assert world.journal.entry_at(WRITER, 0) == entry
    assert await shown(world.east) == []
    with pytest.raises(NotOpen, match="was closed by 'Ada'"):
        await world.east.resolver.resolve(WRITER, closing(0))


async def test_a_refused_output_is_kept_from_compaction_until_it_is_closed() -> None:
    world = refusing()
    for sequence, sizes in enumerate([[1], [5_000], [2], [3]]):
        await world.east.consumer.consume(writing(sizes, sequence))
    world.clock.seconds += POLICY.retention_seconds + DAY_SECONDS

    await world.east.compactor.compact()
    await world.west.compactor.compact()

    assert [int(entry["id"]) for entry in world.entries(WRITER)] == [1, 2, 3]
    assert await shown(world.west) == [(StandstillKind.REFUSED, WRITER, 1)]
    await world.west.resolver.resolve(WRITER, closing(1))
    world.clock.seconds += POLICY.retention_seconds + DAY_SECONDS
    await world.west.compactor.compact()
    assert [int(entry["id"]) for entry in world.entries(WRITER)] == [3]


@pytest.mark.parametrize("how", [CallFault.LOST, CallFault.UNANSWERED])
async def test_a_closing_without_an_answer_is_repeated_in_safety(how: CallFault) -> None:
    world = refusing()
    await world.east.consumer.consume(writing([5_000]))
    world.journal.fault_plan.plan("close", how)

    with pytest.raises(OutcomeUnknown):
        await world.east.resolver.resolve(WRITER, closing(0))
    with suppress(NotOpen):
        await world.east.resolver.resolve(WRITER, closing(0))

    assert await shown(world.east) == []


async def test_a_fault_that_stops_its_session_cannot_be_closed(world: World) -> None:
    world.bus.largest = {(region, "errors"): 250 for region in REGIONS}
    await world.east.consumer.consume(message(0, kind="account.burn"))
    before = await shown(world.east)
    assert (StandstillKind.HALT, "acc-7", 0) in before

    with pytest.raises(NotOpen, match="retry, edit or skip"):
        await world.east.resolver.resolve("acc-7", closing(0))

    assert await shown(world.east) == before


@pytest.mark.parametrize("position", [0, 1, 99])
async def test_what_asks_for_nobody_cannot_be_closed(world: World, position: int) -> None:
    await world.east.consumer.consume(message(0))

    with pytest.raises(NotOpen, match="asks for nobody"):
        await world.east.resolver.resolve("acc-7", closing(position))


async def test_the_type_of_a_message_is_corrected(world: World) -> None:
    await world.east.consumer.consume(message(0, 7, kind="account.burn"))
    await world.east.consumer.consume(message(1))

    def edit(to: str) -> ResolutionRequest:
        return ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", at=0, type=to)

    with pytest.raises(UnknownType, match="no handler for type"):
        await world.east.resolver.resolve("acc-7", edit("account.ad"))
    entry = await world.east.resolver.resolve("acc-7", edit("account.add"))

    assert entry.identities[0].type == "account.add"
    assert world.amounts() == [7, 2]


@pytest.mark.parametrize("text", ["", " ", "two\nlines", "a\x1b[31mred", "\u2028", "x" * 2_000])
def test_who_and_why_can_be_shown_in_one_line_of_a_log(text: str) -> None:
    for who, why in ((text, "why"), ("who", text)):
        with pytest.raises(InvalidMessage):
            ResolutionRequest(ResolutionAction.RETRY, who, why)


async def test_the_list_says_so_when_the_store_does_not_help(world: World) -> None:
    world.journal.fault_plan.plan("signs", CallFault.REFUSED)

    with pytest.raises(Unavailable):
        await world.east.standstills.find(limit=10)


# When old faults are resolved, they take no room in the list, however many there are.

OLD = 150
SKIPPED = replace(SKIP, at=0)


async def halt(world: World, session: str) -> None:
    """A session that a fault stops at its first entry."""
    await world.east.consumer.consume(message(0, session=session, kind="account.burn"))


async def among_resolved_ones(world: World) -> None:
    """An open halt, and many newer ones that are resolved."""
    await halt(world, "open")
    for number in range(OLD):
        world.clock.seconds += 1
        await halt(world, f"old-{number}")
        await world.west.resolver.resolve(f"old-{number}", SKIPPED)


async def test_the_open_one_among_150_resolved_ones_is_on_the_first_page(world: World) -> None:
    await among_resolved_ones(world)

    assert list(await world.journal.sessions(SessionNeed.RESOLUTION, limit=1_000)) == ["open"]
    page = await world.west.standstills.find(limit=10)

    assert [one.session for one in page.standstills] == ["open"]
    assert page.after is None


async def test_for_one_that_is_over_no_second_page_of_sessions_is_read(world: World) -> None:
    for number in range(100):
        await halt(world, f"open-{number}")
    world.clock.seconds += 1
    await halt(world, "over")
    await world.west.resolver.resolve("over", SKIPPED)
    over = world.journal.store.partitions["over"]["0" * 12]
    world.journal.store.put("over", over | {"faulted": True})
    world.journal.fault_plan.made.clear()

    page = await world.east.standstills.find(limit=50)

    assert [one.session.partition("-")[0] for one in page.standstills] == ["open"] * 50
    assert world.journal.fault_plan.made.count("head") == 50 + FEWEST


async def test_150_open_ones_are_all_listed_the_newest_first(world: World) -> None:
    for number in range(OLD):
        world.clock.seconds += number % 3
        await halt(world, f"open-{number}")

    found = await listed(world.east, limit=7)

    assert sorted(one.session for one in found) == sorted(f"open-{n}" for n in range(OLD))
    since = [one.since for one in found]
    assert since == sorted(since, reverse=True)
    assert {one.cause for one in found} == {"ArithmeticError: cannot burn 1"}


@pytest.mark.parametrize("limit", [1, 10, 100])
async def test_flags_that_earlier_versions_left_are_cleared(world: World, limit: int) -> None:
    def flag(session: str) -> None:
        """As it was written before resolutions cleared the flag."""
        document = world.journal.store.partitions[session]["0" * 12]
        world.journal.store.put(session, document | {"faulted": True})

    await among_resolved_ones(world)
    for number in range(OLD):
        flag(f"old-{number}")
    await world.east.consumer.consume(message(0, session="hints", kind="account.hint"))
    flag("hints")

    assert await shown(world.east, limit) == [(StandstillKind.HALT, "open", 0)]

    assert list(await world.journal.sessions(SessionNeed.RESOLUTION, limit=1_000)) == ["open"]


@pytest.mark.parametrize("how", [CallFault.KILLED_BEFORE, CallFault.KILLED_AFTER])
async def test_a_worker_that_dies_leaves_it_listed_or_done(world: World, how: CallFault) -> None:
    await halt(world, "acc-7")
    world.journal.fault_plan.plan("append", how)

    with pytest.raises(ProcessKilled):
        await world.east.resolver.resolve("acc-7", SKIPPED)

    # The flag is cleared in the batch that ends the halt, so the two never differ.
    is_done = how is CallFault.KILLED_AFTER
    assert await shown(world.west) == ([] if is_done else [(StandstillKind.HALT, "acc-7", 0)])
    head = require(world.journal.newest("acc-7"))
    assert (head.halt is None) is is_done


async def test_of_two_operators_at_once_one_decides_and_the_other_is_told(world: World) -> None:
    await halt(world, "acc-7")

    answers = await asyncio.gather(
        *(one.resolver.resolve("acc-7", SKIPPED) for one in (world.east, world.west)),
        return_exceptions=True,
    )

    assert sorted(type(answer).__name__ for answer in answers) == ["Entry", "NotHalted"]
    assert len([e for e in world.entries() if "resolution" in e]) == 1
    assert await shown(world.east) == []
