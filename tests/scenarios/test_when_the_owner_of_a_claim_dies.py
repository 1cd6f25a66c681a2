"""A claim's owner dies, or its store or its clock fails: the work is done once, in time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from shared.domain.errors import LockstepError, OutcomeUnknown, Unavailable
from shared.domain.journal import Owner
from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone, Claimed, Processed
from shared.engine.worker import WaitLimits
from shared.ports import SessionNeed
from shared.storage.journal import Journal
from shared.testkit.injected_faults import CallFault, ProcessKilled
from shared.testkit.intercepted import InterceptedJournal
from shared.testkit.memory_store import EPOCH_SECONDS
from tests.business import (
    LEASE_OVER,
    LEASE_SECONDS,
    BusinessWorld,
    OrderedClock,
    Outside,
    WrongClock,
    business,
    claimed,
    dies,
    dying,
    healthy,
    payment,
    swept,
    worker_with,
)
from tests.crashes import assert_the_same_whatever_fails, redelivered, rest, sent, worlds
from tests.world import IMPATIENT, LAG_SECONDS, POLICY, REGIONS, World, message, sweep_later, take

# When the owner of a claim dies, somebody else does the work, once, with the same ids.

PAY = payment(0)
STAGES = {
    "after its claim": ("append", CallFault.KILLED_AFTER),
    "after its effect": ("replace", CallFault.KILLED_BEFORE),
    "after its commit": ("replace", CallFault.KILLED_AFTER),
    "before it settles": ("leave_pending", CallFault.KILLED_AFTER),
}

type Recovery = Callable[[World], Awaitable[None]]


async def until_settled(world: World, *regions: str) -> None:
    """Deliver to new workers of these regions, or to the east's own one, until one settles."""
    for _ in range(9):
        for worker in [world.worker(region) for region in regions] or [world.east]:
            with suppress(LockstepError, ProcessKilled):
                await worker.consumer.consume(PAY)
                return
        world.clock.seconds += LEASE_OVER
    pytest.fail("never settled")


# The message comes again, or the other region's copy comes, or nobody brings it.
RECOVERIES: dict[str, Recovery] = {
    "by redelivery": lambda world: until_settled(world, "east"),
    "by the other copy": lambda world: until_settled(world, "west"),
    "by the sweep": swept,
}


async def claims_left(world: World) -> int:
    """The number of sessions that are still claimed."""
    return len(await world.journal.sessions(SessionNeed.TAKE_OVER, limit=10))


@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("stage", STAGES)
async def test_one_effect_is_committed_with_the_same_outputs(stage: str, recovery: str) -> None:
    quiet, world = await healthy(PAY), BusinessWorld()

    await dies(world, PAY, *STAGES[stage])
    world.clock.seconds += LEASE_OVER
    await RECOVERIES[recovery](world)
    assert world.amounts() == [1]
    await rest(world)

    assert_same(world, quiet)
    assert (await claims_left(world), await world.pending()) == (0, [])


def assert_same(world: BusinessWorld, quiet: BusinessWorld, case: object = None) -> None:
    """Both have the same effects, keys and outputs, and some in both regions."""
    assert (world.amounts(), world.outside.keys) == (quiet.amounts(), quiet.outside.keys), case
    for region in REGIONS:
        assert sent(world, region) == quiet.outputs(region) != [], (region, case)


@pytest.mark.parametrize("recovery", RECOVERIES)
async def test_no_call_on_the_way_can_go_wrong_so_that_it_matters(recovery: str) -> None:
    outside = Outside()

    async def work(world: World) -> None:
        outside.asked.clear()
        with suppress(LockstepError, ProcessKilled):
            await world.east.consumer.consume(PAY)
        world.east = world.worker("east")
        world.clock.seconds += LEASE_OVER
        await RECOVERIES[recovery](world)
        await swept(world)

    faulty = worlds(work, business(outside))
    quiet, keys = await anext(faulty), outside.keys
    async for world in faulty:
        if not outside.asked and recovery == "by the sweep":
            # It died before it claimed, so that the message is in its queue as it was.
            assert world.entries() == [], world.fault_plan
            continue
        assert (world.amounts(), outside.keys) == ([1], keys), world.fault_plan
        for region in REGIONS:
            assert sent(world, region) == sent(quiet, region) != [], (region, world.fault_plan)
        assert (await claims_left(world), await world.pending()) == (0, []), world.fault_plan


async def test_a_copy_that_waits_takes_over_when_the_lease_is_over(world: BusinessWorld) -> None:
    await dies(world, PAY, "replace", CallFault.KILLED_BEFORE)
    world.clock.seconds += LEASE_OVER - 10

    assert isinstance(await world.west.consumer.consume(PAY), Processed)

    assert (world.amounts(), len(world.outside.asked)) == ([1], 2)
    assert len(world.outside.keys[1]) == 1


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
    world = await claimed(LEASE_OVER)
    journal = UnansweredJournal(world.journal, lambda: world.west.consumer.consume(PAY))
    unsure = worker_with(world, "east", journal=journal)

    assert await unsure.consumer.consume(PAY) == AlreadyDone()

    assert journal.is_lost
    assert len(world.outside.asked) == 1
    assert world.amounts() == [1]


@pytest.mark.parametrize("fault", [CallFault.LOST, CallFault.UNANSWERED])
async def test_a_take_over_without_an_answer_is_known_as_our_own_or_tried_once_more(
    fault: CallFault,
) -> None:
    world = await claimed(LEASE_OVER)
    world.journal.fault_plan.plan("replace", fault)

    assert isinstance(await world.west.consumer.consume(PAY), Processed)

    assert len(world.outside.asked) == 1
    assert world.amounts() == [1]


@pytest.mark.parametrize("by", ["a copy", "the next message", "the sweep"])
async def test_the_next_worker_of_its_host_waits_for_no_lease(by: str) -> None:
    world = await claimed_by("machine-7/100")
    world.east.worker.owner = Owner("east", "machine-7/101")

    match by:
        case "a copy":
            assert isinstance(await world.east.consumer.consume(PAY), Processed)
        case "the next message":
            assert isinstance(await world.east.consumer.consume(payment(1)), Processed)
        case _:
            await world.east.recovery.resume_session(PAY.session, world.clock.seconds + 5.0)

    assert world.entries()[0]["status"] == "completed"
    assert world.clock.seconds - EPOCH_SECONDS < LEASE_OVER / 2


@pytest.mark.parametrize(
    "owner",
    [
        Owner("east", "machine-7/99"),
        Owner("east", "machine-7/100"),
        Owner("east", "machine-8/101"),
        Owner("west", "machine-7/101"),
        Owner("east", "machine-7-101"),
    ],
    ids=["an earlier one", "itself", "another host", "another region", "one of several"],
)
async def test_no_other_worker_takes_it_for_dead(owner: Owner) -> None:
    world = await claimed_by("machine-7/100")
    world.east.worker.owner = owner

    await world.east.recovery.resume_session(PAY.session, world.clock.seconds + 5.0)

    assert world.entries()[0]["status"] == "working"


async def claimed_by(instance: str) -> BusinessWorld:
    """A world in which this instance in the east has just claimed a payment and died."""
    world = BusinessWorld()
    world.east.worker.owner = Owner("east", instance)
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    return world


async def test_the_next_message_takes_over_before_its_own_turn() -> None:
    bill = message(1, kind="account.bill")
    world = await claimed(LEASE_OVER)

    assert isinstance(await world.west.consumer.consume(bill), Processed)

    assert_same(world, await healthy(PAY, bill))


async def test_what_was_parked_beside_the_claim_is_drained_by_whoever_takes_over() -> None:
    world = await claimed()
    hurried = world.worker("west", IMPATIENT)
    await take(hurried, *(message(sequence) for sequence in (2, 1, 3)))
    assert world.amounts() == []
    world.clock.seconds += LEASE_OVER

    await world.west.recovery.sweep()

    assert world.amounts() == [1, 2, 3, 4]
    assert "parked" not in world.entries()[-1]


async def test_a_sweep_that_takes_over_drains_what_sweeps_before_it_could_not() -> None:
    world = await claimed()
    hurried = world.worker("west", IMPATIENT)
    await hurried.consumer.consume(message(1))
    # Each time in vain, so a sweep leaves what is parked alone for longer than the lease lasts.
    while world.clock.seconds < LEASE_SECONDS - LAG_SECONDS:
        await sweep_later(world, "west")
    assert world.amounts() == []
    world.clock.seconds = LEASE_OVER

    await world.west.recovery.sweep()

    assert world.amounts() == [1, 2]


async def test_messages_that_keep_coming_do_not_keep_a_dead_owners_claim_alive() -> None:
    world = await claimed()

    for sequence in range(1, 6):
        world.clock.seconds += LEASE_SECONDS / 3
        await world.west.consumer.consume(message(sequence))

    assert world.amounts() == [1, 2, 3, 4, 5, 6]


async def test_the_redelivered_message_of_a_finished_claim_is_done_already() -> None:
    world = BusinessWorld()
    await dies(world, PAY, "leave_pending", CallFault.KILLED_AFTER)

    for worker in (world.east, world.west):
        assert await worker.consumer.consume(PAY) == AlreadyDone()

    assert len(world.outside.asked) == 1


async def test_a_message_that_kills_its_owner_every_time_becomes_a_fault() -> None:
    world = BusinessWorld()

    world.outside.after = dying(world)
    for _ in range(6):
        with suppress(ProcessKilled):
            await world.worker("east").consumer.consume(PAY)
        world.clock.seconds += LEASE_OVER

    (fault,) = world.entries()
    assert (fault["status"], fault["reason"]) == (
        "faulted",
        "RuntimeError: the worker that ran its handler ended, in try 3",
    )
    assert len(world.outside.asked) == 3
    assert len(world.outside.keys[1]) == 1
    assert len(world.bus.messages("east", "errors")) == 1


# When a worker's clock is wrong by hours, it is in time all the same: leases are the store's.

HOURS = 3600.0
OFF_BY = [-30 * HOURS, -HOURS, HOURS, 30 * HOURS]


@pytest.mark.parametrize("off_by", [0.0, *OFF_BY])
async def test_nobody_takes_over_before_the_lease_is_over(off_by: float) -> None:
    world = await claimed()
    wrong = worker_with(world, "west", clock=WrongClock(world.clock, off_by))

    assert await wrong.consumer.consume(PAY) == Claimed()

    assert (world.outside.asked, world.amounts()) == ([], [])
    assert world.entries()[0]["attempt"].startswith("east-1/")


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_it_does_not_take_over_late(off_by: float) -> None:
    world = await claimed(LEASE_OVER)
    began = world.clock.now()
    wrong = worker_with(world, "west", clock=WrongClock(world.clock, off_by))

    assert isinstance(await wrong.consumer.consume(PAY), Processed)

    assert world.clock.now() == began
    assert len(world.outside.asked) == 1


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_its_own_claims_are_taken_over_in_their_time(off_by: float) -> None:
    world = BusinessWorld()
    world.east = worker_with(world, "east", clock=WrongClock(world.clock, off_by))
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)

    world.clock.seconds += LEASE_SECONDS / 4
    assert await world.west.consumer.consume(PAY) == Claimed()
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(PAY), Processed)


@pytest.mark.parametrize("off_by", OFF_BY)
async def test_it_renews_its_claims_in_time(off_by: float) -> None:
    world = BusinessWorld(clock=OrderedClock())
    world.outside.before = lambda: world.clock.sleep(3 * LEASE_SECONDS)
    wrong = worker_with(world, "east", clock=WrongClock(world.clock, off_by))

    async def copy_comes_late() -> object:
        await world.clock.sleep(2 * LEASE_SECONDS)
        return await world.west.consumer.consume(PAY)

    owner, copy = await asyncio.gather(wrong.consumer.consume(PAY), copy_comes_late())

    assert isinstance(owner, Processed)
    assert copy == Claimed()
    assert len(world.outside.asked) == 1


# When the store fails under a claim, for a call or for minutes, the outside has one effect.

# Every call of those that wait is faulty, too; a few of them will do.
BRIEF = replace(POLICY, waits=WaitLimits(gap_seconds=1.0, poll_seconds=0.5))
IN_TURN = [PAY, message(1, kind="account.bill"), payment(2)]
GAPPED = [payment(1), payment(0), message(2, kind="account.bill")]


@pytest.mark.parametrize("arrivals", [IN_TURN, GAPPED], ids=["in turn", "gapped"])
async def test_any_call_can_go_wrong_in_any_way(arrivals: list[Message]) -> None:
    outside, keys = Outside(), list[object]()

    async def work(world: World) -> None:
        outside.asked.clear()
        await redelivered(world, *arrivals)
        await swept(world)

    async def also(world: World) -> None:
        keys.append(outside.keys)
        assert keys[-1] == keys[0]

    await assert_the_same_whatever_fails(work, business(outside), [1, 2, 3], 3, BRIEF, also)


@pytest.mark.parametrize(
    ("call", "faults"),
    [
        ("append", [CallFault.UNANSWERED]),
        ("replace", [CallFault.UNANSWERED]),
        ("replace", [CallFault.REFUSED] * 4),
    ],
    ids=["an applied claim", "an applied end", "an end that is refused for a moment"],
)
async def test_it_is_known_as_our_own_or_asked_again(call: str, faults: list[CallFault]) -> None:
    world = BusinessWorld()
    world.journal.fault_plan.plan(call, *faults)

    assert isinstance(await world.east.consumer.consume(PAY), Processed)

    assert len(world.outside.asked) == 1
    assert_same(world, await healthy(PAY))


async def test_a_store_that_refuses_claims_for_minutes_keeps_the_message_in_its_queue() -> None:
    world = BusinessWorld()
    world.journal.fault_plan.plan("append", *[CallFault.REFUSED] * 40)
    for _ in range(40):
        with pytest.raises(Unavailable):
            await world.east.consumer.consume(PAY)
        world.clock.seconds += 5
    assert world.outside.asked == []

    assert isinstance(await world.east.consumer.consume(PAY), Processed)

    assert len(world.outside.asked) == 1


@pytest.mark.parametrize("fault", [CallFault.REFUSED, CallFault.LOST])
async def test_a_store_that_refuses_the_end_for_minutes_costs_another_run(fault: CallFault) -> None:
    world = BusinessWorld()
    world.journal.fault_plan.plan("replace", *[fault] * 30)
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await world.east.consumer.consume(PAY)
    world.journal.fault_plan.planned["replace"].clear()
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(PAY), Processed)
    assert await world.east.consumer.consume(PAY) == AlreadyDone()

    assert len(world.outside.asked) == 2
    assert_same(world, await healthy(PAY))


async def test_a_store_that_cannot_be_read_is_not_claimed_in() -> None:
    world = await healthy(message(0), message(1, kind="account.hint"))
    world.journal.fault_plan.plan("entry", *[CallFault.REFUSED] * 5)

    for _ in range(5):
        with pytest.raises(Unavailable):
            await world.east.consumer.consume(payment(2))

    assert [entry.get("claimed") for entry in world.entries()] == [None, None]
    assert isinstance(await world.east.consumer.consume(payment(2)), Processed)
    assert len(world.outside.asked) == 1
