"""A claim's owner dies, or its store or its clock fails: the work is done once, in time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from shared.domain.errors import LockstepError, OutcomeUnknown, Unavailable
from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone, Claimed, Processed
from shared.engine.worker import WaitLimits
from shared.ports import SessionNeed
from shared.storage.journal import Journal
from shared.testkit.injected_faults import CALL_ERRORS, CallFault, FaultPlan, ProcessKilled
from shared.testkit.intercepted import InterceptedJournal
from tests.business import (
    LEASE_OVER,
    LEASE_SECONDS,
    OrderedClock,
    Outside,
    WrongClock,
    business,
    dies,
    payment,
    swept,
    worker_with,
    world_of,
)
from tests.crashes import redelivered, rest, sent, worlds
from tests.world import LAG_SECONDS, POLICY, REGIONS, World, message, take

# When the owner of a claim dies: a worker dies with a claim in its hands: somebody else does the
# work, once, with the same ids.


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

    faulty = worlds(work, business(outside))
    quiet = await anext(faulty)
    keys = outside.keys
    async for world in faulty:
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
    await take(hurried, *(message(sequence) for sequence in (2, 1, 3)))
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


# When a workers clock is wrong: a lease is counted by the store's clock, so a worker whose own is
# hours off is in time.


HOURS = 3600.0
OFF_BY = [-30 * HOURS, -HOURS, HOURS, 30 * HOURS]


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_it_does_not_take_over_early(off_by: float) -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    wrong = worker_with(world, "west", clock=WrongClock(world.clock, off_by))

    assert await wrong.consumer.consume(PAY) == Claimed()

    assert outside.asked == []


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_it_does_not_take_over_late(off_by: float) -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    world.clock.seconds += LEASE_OVER
    began = world.clock.now()
    wrong = worker_with(world, "west", clock=WrongClock(world.clock, off_by))

    assert isinstance(await wrong.consumer.consume(PAY), Processed)

    assert world.clock.now() == began
    assert len(outside.asked) == 1


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_its_own_claims_are_taken_over_in_their_time(off_by: float) -> None:
    outside = Outside()
    world = world_of(outside)
    world.east = worker_with(world, "east", clock=WrongClock(world.clock, off_by))
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)

    world.clock.seconds += LEASE_SECONDS / 4
    assert await world.west.consumer.consume(PAY) == Claimed()
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(PAY), Processed)


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_it_renews_its_claims_in_time(off_by: float) -> None:
    outside = Outside()
    world = world_of(outside, OrderedClock())

    async def take_long() -> None:
        await world.clock.sleep(3 * LEASE_SECONDS)

    outside.before = take_long
    wrong = worker_with(world, "east", clock=WrongClock(world.clock, off_by))

    async def copy_comes_late() -> object:
        await world.clock.sleep(2 * LEASE_SECONDS)
        return await world.west.consumer.consume(PAY)

    owner, copy = await asyncio.gather(wrong.consumer.consume(PAY), copy_comes_late())

    assert isinstance(owner, Processed)
    assert copy == Claimed()
    assert len(outside.asked) == 1


# When the store fails under a claim: a claim, its renewals or its end get no answer, or the store
# refuses writes for minutes.


# Every call of those that wait is faulty, too; a few of them will do.
IMPATIENT = replace(POLICY, waits=WaitLimits(gap_seconds=1.0, poll_seconds=0.5))
CALLS = ("append", "replace", "stored_entry", "entry", "head")
IN_TURN = [PAY, message(1, kind="account.bill"), payment(2)]
GAPPED = [payment(1), payment(0), message(2, kind="account.bill")]


async def undisturbed(*arrivals: Message) -> World:
    """What should have happened."""
    world = world_of(Outside())
    await take(world.east, *arrivals)
    return world


async def insist(world: World) -> None:
    """Redeliver to the same worker until it settles."""
    for _ in range(9):
        with suppress(LockstepError):
            await world.east.consumer.consume(PAY)
            return
        world.clock.seconds += LEASE_OVER
    pytest.fail("never settled")


@pytest.mark.parametrize(("call", "fault"), [*product(CALLS, CALL_ERRORS)])
async def test_one_that_goes_wrong_once_or_more_costs_no_effect(
    call: str, fault: CallFault
) -> None:
    expected = await undisturbed(PAY)
    for times in range(1, 8):
        outside = Outside()
        world = world_of(outside)
        world.journal.fault_plan.plan(call, *[fault] * times)

        await insist(world)
        world.journal.fault_plan = FaultPlan()
        await rest(world)

        assert world.amounts() == [1], times
        for region in REGIONS:
            assert sent(world, region) == expected.outputs(region), (region, times)
        assert len(outside.keys[1]) == 1


@pytest.mark.parametrize("arrivals", [IN_TURN, GAPPED], ids=["in turn", "gapped"])
async def test_any_call_can_go_wrong_in_any_way(arrivals: list[Message]) -> None:
    outside = Outside()

    async def work(world: World) -> None:
        outside.asked.clear()
        await redelivered(world, *arrivals)
        await swept(world)

    faulty = worlds(work, business(outside), IMPATIENT)
    quiet = await anext(faulty)
    assert quiet.amounts() == [1, 2, 3]
    keys = outside.keys
    async for world in faulty:
        assert world.amounts() == [1, 2, 3], world.fault_plan
        for region in REGIONS:
            assert sent(world, region) == sent(quiet, region) != [], (region, world.fault_plan)
        assert outside.keys == keys, world.fault_plan
        assert await world.pending() == [], world.fault_plan


async def test_an_applied_claim_without_an_answer_is_known_as_our_own() -> None:
    outside = Outside()
    world = world_of(outside)
    world.journal.fault_plan.plan("append", CallFault.UNANSWERED)

    assert isinstance(await world.east.consumer.consume(PAY), Processed)

    assert len(outside.asked) == 1


async def test_an_applied_end_without_an_answer_is_known_as_our_own() -> None:
    outside = Outside()
    world = world_of(outside)
    world.journal.fault_plan.plan("replace", CallFault.UNANSWERED)

    assert isinstance(await world.east.consumer.consume(PAY), Processed)

    assert len(outside.asked) == 1
    assert world.outputs("east") == (await undisturbed(PAY)).outputs("east")


async def test_an_applied_take_over_without_an_answer_is_known_as_our_own() -> None:
    outside = Outside()
    world = world_of(outside)

    async def die() -> None:
        raise ProcessKilled

    outside.before = die
    with suppress(ProcessKilled):
        await world.east.consumer.consume(PAY)
    outside.before = Outside().before
    world.clock.seconds += LEASE_OVER
    world.journal.fault_plan.plan("replace", CallFault.UNANSWERED)

    assert isinstance(await world.west.consumer.consume(PAY), Processed)

    assert len(outside.asked) == 1


async def test_a_store_that_refuses_claims_for_minutes_keeps_the_message_in_its_queue() -> None:
    outside = Outside()
    world = world_of(outside)
    world.journal.fault_plan.plan("append", *[CallFault.REFUSED] * 40)
    for _ in range(40):
        with pytest.raises(Unavailable):
            await world.east.consumer.consume(PAY)
        world.clock.seconds += 5
    assert outside.asked == []

    assert isinstance(await world.east.consumer.consume(PAY), Processed)

    assert len(outside.asked) == 1


async def test_a_store_that_refuses_the_end_for_a_moment_is_asked_again() -> None:
    outside = Outside()
    world = world_of(outside)
    world.journal.fault_plan.plan("replace", *[CallFault.REFUSED] * 4)

    assert isinstance(await world.east.consumer.consume(PAY), Processed)

    assert len(outside.asked) == 1


@pytest.mark.parametrize("fault", [CallFault.REFUSED, CallFault.LOST])
async def test_a_store_that_refuses_the_end_for_minutes_costs_another_run_with_the_same_key(
    fault: CallFault,
) -> None:
    outside = Outside()
    world = world_of(outside)
    world.journal.fault_plan.plan("replace", *[fault] * 30)
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await world.east.consumer.consume(PAY)
    world.journal.fault_plan.planned["replace"].clear()
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(PAY), Processed)
    assert await world.east.consumer.consume(PAY) == AlreadyDone()

    assert world.amounts() == [1]
    assert len(outside.asked) == 2
    assert len(outside.keys[1]) == 1
    for region in REGIONS:
        assert sent(world, region) == (await undisturbed(PAY)).outputs(region)


async def test_a_store_that_cannot_be_read_is_not_claimed_in() -> None:
    outside = Outside()
    world = world_of(outside)
    await world.east.consumer.consume(message(0))
    await world.east.consumer.consume(message(1, kind="account.hint"))
    world.journal.fault_plan.plan("entry", *[CallFault.REFUSED] * 5)

    for _ in range(5):
        with pytest.raises(Unavailable):
            await world.east.consumer.consume(payment(2))

    assert [entry.get("claimed") for entry in world.entries()] == [None, None]
    assert isinstance(await world.east.consumer.consume(payment(2)), Processed)
    assert len(outside.asked) == 1
