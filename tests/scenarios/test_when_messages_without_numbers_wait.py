"""Messages without numbers wait behind a halt or a claim: in the order of their arrival."""

from dataclasses import replace

import pytest

from shared.engine.consume.outcomes import (
    AlreadyDone,
    Claimed,
    Conflicting,
    Faulted,
    Parked,
    Processed,
)
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.engine.worker import WaitLimits
from shared.testkit.injected_faults import CallFault
from tests.business import LEASE_OVER, Outside, dies, plain, world_of
from tests.crashes import sent
from tests.world import POLICY, REGIONS, World

WINDOW = POLICY.window_seconds
SKIP = ResolutionRequest(ResolutionAction.SKIP, "Ada", "sent by mistake")
OTHER = replace(plain(0), body=b'{"amount":99}')


async def halted() -> World:
    """A session that stops at its first message."""
    world = World()
    assert isinstance(await world.east.consumer.consume(plain(0, "account.burn")), Faulted)
    return world


async def test_those_behind_a_halt_are_drained_in_the_order_of_their_arrival() -> None:
    world = await halted()
    arrivals = [5, 3, 9, 1, 7]
    for n, sequence in enumerate(arrivals):
        assert await world.worker(REGIONS[n % 2]).consumer.consume(plain(sequence)) == Parked()

    await world.west.resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [n + 1 for n in arrivals]
    assert "parked" not in world.entries()[-1]
    assert world.outputs("east") == world.outputs("west")


async def test_copies_of_those_behind_a_halt_are_done_already_and_others_refused() -> None:
    world = await halted()
    for sequence in (1, 2):
        await world.east.consumer.consume(plain(sequence))

    for region in (*REGIONS, *REGIONS):
        worker = world.worker(region)
        assert await worker.consumer.consume(plain(0, "account.burn")) == AlreadyDone()
        assert await worker.consumer.consume(plain(1)) == AlreadyDone()
        other = replace(plain(1), body=b'{"amount":99}')
        assert isinstance(await worker.consumer.consume(other), Conflicting)
        assert isinstance(await worker.consumer.consume(OTHER), Conflicting)
    await world.west.resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [2, 3]


async def test_one_behind_a_halt_is_not_too_old_when_its_turn_comes() -> None:
    world = await halted()
    await world.east.consumer.consume(plain(1))
    world.clock.seconds += 3 * WINDOW

    await world.west.resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [2]


async def test_a_late_copy_of_the_original_is_a_duplicate_after_an_edit() -> None:
    world = await halted()
    original = plain(0, "account.burn")
    await world.east.resolver.resolve(
        "acc-7", ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", b'{"amount":-1}')
    )

    for region in REGIONS:
        assert await world.worker(region).consumer.consume(original) == AlreadyDone()
    assert isinstance(await world.east.consumer.consume(OTHER), Conflicting)

    assert world.amounts() == [-1]


async def test_those_behind_a_claim_are_drained_in_the_order_of_their_arrival() -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, plain(0, "account.pay"), "append", CallFault.KILLED_AFTER)
    hurried = world.worker("west", replace(POLICY, waits=WaitLimits(gap_seconds=0)))
    arrivals = [5, 3, 9]
    for sequence in arrivals:
        assert await hurried.consumer.consume(plain(sequence)) == Parked()
    copies = [await world.east.consumer.consume(plain(n)) for n in arrivals]
    assert copies == [AlreadyDone()] * 3
    world.clock.seconds += LEASE_OVER

    await world.west.recovery.sweep()

    assert world.amounts() == [1, 6, 4, 10]
    assert world.outputs("east") == world.outputs("west")
    assert len(outside.asked) == 1


@pytest.mark.parametrize("region", REGIONS)
async def test_a_copy_of_a_claimed_one_takes_over_after_the_lease(region: str) -> None:
    outside = Outside()
    world = world_of(outside)
    pay = plain(0, "account.pay")
    await dies(world, pay, "replace", CallFault.KILLED_BEFORE)
    assert await world.worker(region).consumer.consume(pay) == Claimed()
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.worker(region).consumer.consume(pay), Processed)

    quiet = world_of(Outside())
    await quiet.east.consumer.consume(pay)
    assert world.amounts() == [1]
    assert len(outside.keys[1]) == 1
    for to in REGIONS:
        assert sent(world, to) == quiet.outputs(to) != []


async def test_other_content_under_the_id_of_a_claimed_one_is_refused_visibly() -> None:
    world = world_of(Outside())
    await dies(world, plain(0, "account.pay"), "append", CallFault.KILLED_AFTER)

    for region in REGIONS:
        outcome = await world.worker(region).consumer.consume(OTHER)
        assert isinstance(outcome, Conflicting)
