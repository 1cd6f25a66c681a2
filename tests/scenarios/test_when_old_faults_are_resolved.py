"""Resolved faults take no room in the list of what stands still, however many there are."""

import asyncio

import pytest

from shared.domain.errors import NotHalted
from shared.domain.standstill import StandstillKind
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.ports import SessionNeed
from shared.testkit.injected_faults import CallFault, ProcessKilled
from tests.standing import listed, shown
from tests.world import World, message

OLD = 150
SKIP = ResolutionRequest(ResolutionAction.SKIP, "Ada", "sent by mistake", at=0)


async def halt(world: World, session: str) -> None:
    """A session that a fault stops at its first entry."""
    await world.east.consumer.consume(message(0, session=session, kind="account.burn"))


async def test_the_open_one_among_150_resolved_ones_is_on_the_first_page(world: World) -> None:
    await halt(world, "open")
    for number in range(OLD):
        world.clock.seconds += 1
        await halt(world, f"old-{number}")
        await world.west.resolver.resolve(f"old-{number}", SKIP)

    assert list(await world.journal.sessions(SessionNeed.RESOLUTION, limit=1_000)) == ["open"]
    page = await world.west.standstills.find(limit=10)

    assert [one.session for one in page.standstills] == ["open"]
    assert page.after is None


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
async def test_flags_that_an_earlier_version_left_are_cleared_when_they_are_met(
    world: World, limit: int
) -> None:
    await halt(world, "open")
    for number in range(OLD):
        world.clock.seconds += 1
        session = f"old-{number}"
        await halt(world, session)
        await world.west.resolver.resolve(session, SKIP)
        # As it was written before resolutions cleared the flag.
        document = world.journal.store.partitions[session]["0" * 12]
        world.journal.store.put(session, document | {"faulted": True})
    skipping = message(0, session="hints", kind="account.hint")
    await world.east.consumer.consume(skipping)
    document = world.journal.store.partitions["hints"]["0" * 12]
    world.journal.store.put("hints", document | {"faulted": True})

    assert await shown(world.east, limit) == [(StandstillKind.HALT, "open", 0)]

    assert list(await world.journal.sessions(SessionNeed.RESOLUTION, limit=1_000)) == ["open"]


@pytest.mark.parametrize("how", [CallFault.KILLED_BEFORE, CallFault.KILLED_AFTER])
async def test_a_worker_that_dies_over_the_resolution_leaves_it_listed_or_done(
    world: World, how: CallFault
) -> None:
    await halt(world, "acc-7")
    world.journal.fault_plan.plan("append", how)

    with pytest.raises(ProcessKilled):
        await world.east.resolver.resolve("acc-7", SKIP)

    # The flag is cleared in the batch that ends the halt, so the two never differ.
    is_done = how is CallFault.KILLED_AFTER
    assert await shown(world.west) == ([] if is_done else [(StandstillKind.HALT, "acc-7", 0)])
    head = world.journal.newest("acc-7")
    assert head is not None
    assert (head.halt is None) is is_done


async def test_of_two_operators_at_once_one_decides_and_the_other_is_told(world: World) -> None:
    await halt(world, "acc-7")

    answers = await asyncio.gather(
        world.east.resolver.resolve("acc-7", SKIP),
        world.west.resolver.resolve("acc-7", SKIP),
        return_exceptions=True,
    )

    assert sorted(type(answer).__name__ for answer in answers) == ["Entry", "NotHalted"]
    assert len([e for e in world.entries() if "resolution" in e]) == 1
    assert await shown(world.east) == []


async def test_a_double_click_does_no_harm(world: World) -> None:
    await halt(world, "acc-7")
    await world.east.consumer.consume(message(1, kind="account.burn"))
    await world.east.resolver.resolve("acc-7", SKIP)

    with pytest.raises(NotHalted, match="is halted by entry"):
        await world.east.resolver.resolve("acc-7", SKIP)

    (left,) = await listed(world.west)
    assert left.position != 0
