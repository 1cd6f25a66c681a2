"""A worker dies with a claim in its hands: somebody else does the work, once, with the same ids."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from shared.domain.errors import LockstepError, OutcomeUnknown
from shared.engine.consume.outcomes import AlreadyDone, Claimed, Processed
from shared.engine.worker import WaitLimits
from shared.ports import SessionNeed
from shared.storage.journal import Journal
from shared.testkit.injected_faults import CallFault, ProcessKilled
from shared.testkit.intercepted import InterceptedJournal
from tests.business import (
    LEASE_OVER,
    LEASE_SECONDS,
    Outside,
    business,
    dies,
    payment,
    swept,
    worker_with,
    world_of,
)
from tests.crashes import rest, sent, worlds
from tests.world import LAG_SECONDS, POLICY, REGIONS, World, message

PAY = payment(0)
STAGES = {
    "after its claim": ("append", CallFault.KILLED_AFTER),
    "after its effect": ("replace", CallFault.KILLED_BEFORE),
    "after its commit": ("replace", CallFault.KILLED_AFTER),
    "before it settles": ("leave_pending", CallFault.KILLED_AFTER),
}

type Recovery = Callable[[World], Awaitable[None]]


async def by_redelivery(world: World) -> None:
    """The message comes again in the owner's region."""
    await until_settled(world, "east")


async def by_the_other_copy(world: World) -> None:
    """The other region's copy comes after the lease."""
    await until_settled(world, "west")


async def by_the_sweep(world: World) -> None:
    """Nobody brings the message again."""
    await swept(world)


async def until_settled(world: World, region: str) -> None:
    """Deliver to new workers of a region until one settles."""
    for _ in range(4):
        with suppress(LockstepError, ProcessKilled):
            await world.worker(region).consumer.consume(PAY)
            return
        world.clock.seconds += LEASE_OVER
    pytest.fail("never settled")


RECOVERIES: list[Recovery] = [by_redelivery, by_the_other_copy, by_the_sweep]


async def healthy() -> tuple[World, Outside]:
    """What should have happened."""
    outside = Outside()
    world = world_of(outside)
    assert isinstance(await world.east.consumer.consume(PAY), Processed)
    return world, outside


async def claims_left(world: World) -> int:
    """CallFault many sessions are still claimed."""
    return len(await world.journal.sessions(SessionNeed.TAKE_OVER, limit=10))


@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("stage", STAGES)
async def test_one_effect_is_committed_with_the_same_outputs(
    stage: str, recovery: Recovery
) -> None:
    quiet, once = await healthy()
    outside = Outside()
    world = world_of(outside)

    await dies(world, PAY, *STAGES[stage])
    world.clock.seconds += LEASE_OVER
    await recovery(world)
    assert world.amounts() == [1]
    await rest(world)

    assert world.amounts() == [1]
    for region in REGIONS:
        assert sent(world, region) == quiet.outputs(region) != []
    assert outside.keys == once.keys
    assert (await claims_left(world), await world.pending()) == (0, [])


@pytest.mark.parametrize("recovery", RECOVERIES)
async def test_no_call_on_the_way_can_go_wrong_so_that_it_matters(recovery: Recovery) -> None:
    outside = Outside()

    async def work(world: World) -> None:
        outside.asked.clear()
        with suppress(LockstepError, ProcessKilled):
            await world.east.consumer.consume(PAY)
        world.east = world.worker("east")
        world.clock.seconds += LEASE_OVER
        await recovery(world)
        await swept(world)

    struck = worlds(work, business(outside))
    quiet = await anext(struck)
    keys = outside.keys
    async for world in struck:
        if not outside.asked and recovery is by_the_sweep:
            # It died before it claimed, so that the message is in its queue as it was.
            assert world.entries() == [], world.fault_plan
            continue
        assert world.amounts() == [1], world.fault_plan
        for region in REGIONS:
            assert sent(world, region) == sent(quiet, region) != [], (region, world.fault_plan)
        assert outside.keys == keys, world.fault_plan
        assert (await claims_left(world), await world.pending()) == (0, []), world.fault_plan


async def test_nobody_takes_over_before_the_lease_is_over() -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)

    assert await world.west.consumer.consume(PAY) == Claimed()

    assert (outside.asked, world.amounts()) == ([], [])
    assert world.entries()[0]["attempt"].startswith("east-1/")


async def test_a_copy_that_waits_takes_over_when_the_lease_is_over() -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, PAY, "replace", CallFault.KILLED_BEFORE)
    world.clock.seconds += LEASE_OVER - 10

    assert isinstance(await world.west.consumer.consume(PAY), Processed)

    assert world.amounts() == [1]
    assert len(outside.asked) == 2
    assert len(outside.keys[1]) == 1


class UnansweredJournal(InterceptedJournal):
    """A journal whose first replace is lost; before its caller hears of that, others go on."""

    def __init__(self, journal: Journal, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(journal)
        self.meanwhile = meanwhile
        self.is_lost = False

    async def intercept(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name == "replace" and not self.is_lost:
            self.is_lost = True
            await self.meanwhile()
            raise OutcomeUnknown("no answer")
        return await call()


async def test_who_does_not_know_whether_it_took_over_leaves_the_work_to_who_did() -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    world.clock.seconds += LEASE_OVER
    journal = UnansweredJournal(world.journal, lambda: world.west.consumer.consume(PAY))
    unsure = worker_with(world, "east", journal=journal)

    assert await unsure.consumer.consume(PAY) == AlreadyDone()

    assert journal.is_lost
    assert len(outside.asked) == 1
    assert world.amounts() == [1]


async def test_who_did_not_take_over_without_an_answer_tries_once_more_before_it_works() -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    world.clock.seconds += LEASE_OVER
    world.journal.fault_plan.plan("replace", CallFault.LOST)

    assert isinstance(await world.west.consumer.consume(PAY), Processed)

    assert len(outside.asked) == 1
    assert world.amounts() == [1]


async def test_the_next_message_takes_over_before_its_own_turn() -> None:
    quiet, _ = await healthy()
    await quiet.east.consumer.consume(message(1, kind="account.bill"))
    outside = Outside()
    world = world_of(outside)
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    world.clock.seconds += LEASE_OVER

    outcome = await world.west.consumer.consume(message(1, kind="account.bill"))

    assert isinstance(outcome, Processed)
    assert world.amounts() == [1, 2]
    for region in REGIONS:
        assert world.outputs(region) == quiet.outputs(region)


async def test_what_was_parked_beside_the_claim_is_drained_by_whoever_takes_over() -> None:
    world = world_of(Outside())
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    hurried = world.worker("west", replace(POLICY, waits=WaitLimits(gap_seconds=0)))
    for sequence in (2, 1, 3):
        await hurried.consumer.consume(message(sequence))
    assert world.amounts() == []
    world.clock.seconds += LEASE_OVER

    await world.west.recovery.sweep()

    assert world.amounts() == [1, 2, 3, 4]
    assert "parked" not in world.entries()[-1]


async def test_a_sweep_that_takes_over_drains_what_sweeps_before_it_could_not() -> None:
    world = world_of(Outside())
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    hurried = world.worker("west", replace(POLICY, waits=WaitLimits(gap_seconds=0)))
    await hurried.consumer.consume(message(1))
    # Each time in vain, so a sweep leaves what is parked alone for longer than the lease lasts.
    while world.clock.seconds < LEASE_SECONDS - LAG_SECONDS:
        world.clock.seconds += LAG_SECONDS
        await world.west.recovery.sweep()
    assert world.amounts() == []
    world.clock.seconds = LEASE_OVER

    await world.west.recovery.sweep()

    assert world.amounts() == [1, 2]


async def test_messages_that_keep_coming_do_not_keep_a_dead_owners_claim_alive() -> None:
    world = world_of(Outside())
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)

    for sequence in range(1, 6):
        world.clock.seconds += LEASE_SECONDS / 3
        await world.west.consumer.consume(message(sequence))

    assert world.amounts() == [1, 2, 3, 4, 5, 6]


async def test_the_redelivered_message_of_a_finished_claim_is_done_already() -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, PAY, "leave_pending", CallFault.KILLED_AFTER)

    assert await world.east.consumer.consume(PAY) == AlreadyDone()
    assert await world.west.consumer.consume(PAY) == AlreadyDone()

    assert len(outside.asked) == 1


async def test_a_message_that_kills_its_owner_every_time_becomes_a_fault() -> None:
    outside = Outside()
    world = world_of(outside)

    async def kill() -> None:
        raise ProcessKilled

    outside.after = kill
    for _ in range(6):
        with suppress(ProcessKilled):
            await world.worker("east").consumer.consume(PAY)
        world.clock.seconds += LEASE_OVER

    (fault,) = world.entries()
    assert (fault["status"], fault["reason"]) == (
        "faulted",
        "RuntimeError: its owner was lost in try 3",
    )
    assert len(outside.asked) == 3
    assert len(outside.keys[1]) == 1
    assert len(world.bus.messages("east", "errors")) == 1
