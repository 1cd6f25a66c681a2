"""A claim, its renewals or its end get no answer, or the store refuses writes for minutes."""

from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from shared.domain.errors import LockstepError, OutcomeUnknown, Unavailable
from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.engine.worker import WaitLimits
from shared.testkit.injected_faults import CALL_ERRORS, CallFault, FaultPlan, ProcessKilled
from tests.business import LEASE_OVER, Outside, business, payment, swept, world_of
from tests.crashes import redelivered, rest, sent, worlds
from tests.world import POLICY, REGIONS, World, message

PAY = payment(0)
# Every call of those that wait is struck, too; a few of them will do.
IMPATIENT = replace(POLICY, waits=WaitLimits(gap_seconds=1.0, poll_seconds=0.5))
CALLS = ("append", "replace", "stored_entry", "entry", "head")
IN_TURN = [PAY, message(1, kind="account.bill"), payment(2)]
GAPPED = [payment(1), payment(0), message(2, kind="account.bill")]


async def healthy(*arrivals: Message) -> World:
    """What should have happened."""
    world = world_of(Outside())
    for arriving in arrivals:
        await world.east.consumer.consume(arriving)
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
    expected = await healthy(PAY)
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

    struck = worlds(work, business(outside), IMPATIENT)
    quiet = await anext(struck)
    assert quiet.amounts() == [1, 2, 3]
    keys = outside.keys
    async for world in struck:
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
    assert world.outputs("east") == (await healthy(PAY)).outputs("east")


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
        assert sent(world, region) == (await healthy(PAY)).outputs(region)


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
