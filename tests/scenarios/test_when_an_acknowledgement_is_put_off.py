"""Every region took an entry's outputs; that is said with the next entry, or a little later."""

import asyncio
from dataclasses import replace

import pytest

from shared.engine.consume.outcomes import Processed
from shared.testkit.injected_faults import CALL_ERRORS, CallFault
from shared.testkit.memory_store import VirtualClock
from tests.crashes import FaultyWorld, redelivered, rest, sent, worlds
from tests.world import LAG_SECONDS, POLICY, World, handlers, message

IDLE_SECONDS = 1.0
PUT_OFF = replace(POLICY, acknowledge_seconds=IDLE_SECONDS)
BILLS = [message(n, kind="account.bill") for n in range(4)]


class SteppedClock(VirtualClock):
    """Time passes only when the test lets it; whoever sleeps waits for that."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = asyncio.Condition()

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has let this much time pass."""
        until = self.seconds + seconds
        async with self.passed:
            await self.passed.wait_for(lambda: self.seconds >= until)

    async def let_pass(self, seconds: float) -> None:
        """Let time pass and whoever waited for it go on."""
        self.seconds += seconds
        async with self.passed:
            self.passed.notify_all()
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def clock() -> SteppedClock:
    """A clock in the test's hands."""
    return SteppedClock()


@pytest.fixture
def world(clock: SteppedClock) -> World:
    """Two regions that put acknowledgements off."""
    return World(clock, policy=PUT_OFF)


async def bodies_of_a_quiet_world(count: int) -> list[tuple[str, bytes]]:
    """What a world that puts nothing off sends."""
    quiet = World()
    for bill in BILLS[:count]:
        await quiet.east.consumer.consume(bill)
    return quiet.outputs("east")


async def test_a_message_with_outputs_costs_one_write_and_nothing_else(world: World) -> None:
    for bill in BILLS:
        assert isinstance(await world.east.consumer.consume(bill), Processed)

    assert dict(world.journal.fault_plan.calls) == {"append": len(BILLS)}
    assert dict(world.bus.fault_plan.calls) == {"send.east": len(BILLS), "send.west": len(BILLS)}
    assert world.outputs("east") == world.outputs("west") == await bodies_of_a_quiet_world(4)


async def test_only_the_newest_outbox_is_left_to_acknowledge(world: World) -> None:
    for bill in BILLS:
        await world.east.consumer.consume(bill)

    assert [bool(entry.get("pending")) for entry in world.entries()] == [False, False, False, True]


async def test_after_the_idle_time_it_is_said_alone(world: World, clock: SteppedClock) -> None:
    await world.east.consumer.consume(BILLS[0])
    await clock.let_pass(IDLE_SECONDS / 2)
    assert world.journal.fault_plan.calls["leave_pending"] == 0

    await clock.let_pass(IDLE_SECONDS / 2)
    await clock.let_pass(IDLE_SECONDS / 2)

    assert world.journal.fault_plan.calls["leave_pending"] == 1
    assert await world.pending() == []


async def test_a_worker_that_dies_with_it_unsaid_costs_the_same_bytes_again(world: World) -> None:
    await world.east.consumer.consume(BILLS[0])
    await world.east.consumer.consume(BILLS[1])
    saying = world.east.consumer.committer.acknowledgements.recording
    assert saying is not None
    saying.cancel()

    for region in ("east", "west"):
        world.clock.seconds += LAG_SECONDS
        await world.worker(region).recovery.sweep()

    first, second = await bodies_of_a_quiet_world(2)
    assert world.outputs("east") == world.outputs("west") == [first, second, second]
    assert await world.pending() == []


async def test_another_region_that_goes_on_meanwhile_keeps_the_order(
    world: World, clock: SteppedClock
) -> None:
    await world.east.consumer.consume(BILLS[0])
    await world.west.consumer.consume(BILLS[1])
    await world.east.consumer.consume(BILLS[2])
    await clock.let_pass(2 * IDLE_SECONDS)
    await clock.let_pass(IDLE_SECONDS)

    assert sent(world, "east") == sent(world, "west") == await bodies_of_a_quiet_world(3)
    assert await world.pending() == []
    assert world.amounts() == [1, 2, 3]


@pytest.mark.parametrize("fault", [CallFault.LOST, CallFault.UNANSWERED])
async def test_it_is_carried_though_the_carrying_write_got_no_answer(
    world: World, fault: CallFault
) -> None:
    await world.east.consumer.consume(BILLS[0])
    world.journal.fault_plan.plan("append", fault)

    await world.east.consumer.consume(BILLS[1])

    assert [bool(entry.get("pending")) for entry in world.entries()] == [False, True]
    assert world.outputs("east") == await bodies_of_a_quiet_world(2)


@pytest.mark.parametrize("fault", CALL_ERRORS)
async def test_a_store_that_will_not_hear_it_leaves_it_to_the_sweep(
    world: World, clock: SteppedClock, fault: CallFault
) -> None:
    await world.east.consumer.consume(BILLS[0])
    world.journal.fault_plan.plan("leave_pending", fault)
    await clock.let_pass(2 * IDLE_SECONDS)
    await clock.let_pass(LAG_SECONDS)

    sweeps = [asyncio.create_task(worker.recovery.sweep()) for worker in (world.east, world.west)]
    await asyncio.gather(*sweeps)

    assert set(world.outputs("east")) == set(await bodies_of_a_quiet_world(1))
    assert await world.pending() == []


async def test_a_worker_that_closes_says_what_is_unsaid(world: World) -> None:
    await world.east.consumer.consume(BILLS[0])

    await world.east.consumer.committer.acknowledgements.close()

    assert await world.pending() == []
    assert world.journal.fault_plan.calls["leave_pending"] == 1


async def test_whatever_call_fails_the_same_bytes_arrive_in_order_in_both_regions() -> None:
    async def work(world: World) -> None:
        await redelivered(world, *BILLS[:3])
        await rest(world)

    expected: list[tuple[str, bytes]] = []
    async for world in worlds(work, handlers, PUT_OFF):
        assert isinstance(world, FaultyWorld)
        expected = expected or sent(world, "east")
        assert len(expected) == 3
        assert world.amounts() == [1, 2, 3], world.fault_plan
        assert sent(world, "east") == sent(world, "west") == expected, world.fault_plan
        assert await world.pending() == [], world.fault_plan
