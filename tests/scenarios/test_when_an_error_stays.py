"""The store or the bus fails at once, for ten minutes, in every way that the table knows.

A listener hands a failed message out again after some milliseconds, so nothing but the function's
own pause keeps it from spending all its deliveries, and the store's request units with them.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from functions.triggers.receive import PAUSE_SECONDS_MAX, pause_seconds, receive_message
from shared.domain.failures import (
    BUS,
    FAILURE_RULES,
    STORE,
    Failure,
    FailureClass,
    Service,
    make_error,
)
from shared.testkit.injected_faults import CallFault, FaultPlan
from shared.testkit.intercepted import WRITES
from tests.deliveries import delivery, delivery_of
from tests.world import REGIONS, World, message

OUTAGE_SECONDS = 600.0
ANSWER_SECONDS = 0.001
LISTENER_SECONDS = 0.011
DELIVERIES_MAX = 100
# A strong query in one partition, the dearest thing that a failing message asks for.
CALL_UNITS = 10.0
UNITS_A_SECOND_MAX = 5.0


@dataclass
class FailingPlan(FaultPlan):
    """All calls fail, or only reads, or only writes, until the outage is over."""

    world: World
    service: Service
    fail: Callable[[bool], Exception]
    scope: str

    def __post_init__(self) -> None:
        super().__init__()
        self.failed = 0

    def next_fault(self, operation: str) -> CallFault | None:
        is_write = self.service is BUS or operation in WRITES
        is_meant = self.scope == "everything" or (self.scope == "writes") is is_write
        if is_meant and self.world.clock.now() < OUTAGE_SECONDS:
            self.world.clock.seconds += ANSWER_SECONDS
            self.failed += 1
            raise self.fail(is_write)
        return super().next_fault(operation)


def failures(service: Service) -> Iterator[tuple[str, Callable[[bool], Exception]]]:
    """Every failure of the table that a service may answer with, and one that nobody expected."""
    for rule in FAILURE_RULES:
        if rule.service is service and rule.failure_class is not FailureClass.ANSWER:
            code = rule.codes[0] if rule.codes else None
            failure = Failure(service, code, rule.sub_status)

            def fail(is_write: bool, failure: Failure = failure) -> Exception:
                return make_error(replace(failure, is_write=is_write), "")

            yield rule.why, fail
    yield "a defect", lambda _: RuntimeError("a defect")


STORE_FAILURES = dict(failures(STORE))
BUS_FAILURES = dict(failures(BUS))


async def deliver_until_settled(world: World, kind: str, sequence: int) -> int:
    """What the broker does with a message: the number of deliveries until it is settled."""
    for count in range(1, 10 * DELIVERIES_MAX):
        try:
            await receive_message(world.east, delivery_of(message(sequence, kind=kind), count))
        except Exception:
            world.clock.seconds += LISTENER_SECONDS
            continue
        return count
    pytest.fail("the message was never settled")


@pytest.mark.parametrize("scope", ["everything", "reads", "writes"])
@pytest.mark.parametrize("why", STORE_FAILURES)
async def test_a_failing_store_spends_few_deliveries_and_little_of_itself(
    why: str, scope: str
) -> None:
    world = World()
    await world.east.consumer.consume(message(0, kind="account.bill"))
    plan = FailingPlan(world, STORE, STORE_FAILURES[why], scope)
    world.journal.fault_plan = plan
    # A new process, which remembers nothing.
    world.east = world.worker("east")

    deliveries = await deliver_until_settled(world, "account.bill", 1)

    assert deliveries < DELIVERIES_MAX
    made = plan.failed + len(plan.made)
    assert made * CALL_UNITS / OUTAGE_SECONDS < UNITS_A_SECOND_MAX
    await expect_healed(world)


@pytest.mark.parametrize("why", BUS_FAILURES)
async def test_a_failing_bus_spends_few_deliveries_and_everything_is_sent_afterwards(
    why: str,
) -> None:
    world = World()
    plan = FailingPlan(world, BUS, BUS_FAILURES[why], "everything")
    world.bus.fault_plan = plan

    deliveries = await deliver_until_settled(world, "account.bill", 0)
    deliveries += await deliver_until_settled(world, "account.bill", 1)

    assert deliveries < 2 * DELIVERIES_MAX
    await expect_healed(world)


async def expect_healed(world: World) -> None:
    """After the outage everything comes to its end by sweeps alone."""
    world.clock.seconds = max(world.clock.seconds, OUTAGE_SECONDS)
    for _ in range(5):
        world.clock.seconds += 60.0
        for region in (world.east, world.west):
            await region.recovery.sweep()
    assert world.amounts() == [1, 2]
    assert await world.pending() == []


async def test_what_cannot_be_rejected_waits_as_well() -> None:
    world = World()
    world.bus.unavailable.update(REGIONS)
    count = 0
    while world.clock.now() < OUTAGE_SECONDS:
        count += 1
        with pytest.raises(Exception, match="no region surely took"):
            await receive_message(world.east, delivery(b"no message", {}, count))

    assert count < DELIVERIES_MAX


async def test_a_slow_failure_waits_no_longer_than_a_fast_one() -> None:
    world = World()

    def fail(_: bool) -> Exception:
        world.clock.seconds += 7.0
        return RuntimeError("slow")

    world.journal.fault_plan = FailingPlan(world, STORE, fail, "everything")
    with pytest.raises(RuntimeError):
        await receive_message(world.east, delivery_of(message(0), 4))

    assert world.clock.now() == pytest.approx(8.0)


async def test_shutting_down_ends_a_pause_at_once() -> None:
    world = World()
    started = asyncio.Event()

    async def wait_for_ever(seconds: float) -> None:
        started.set()
        await asyncio.Event().wait()

    world.journal.fault_plan = FailingPlan(world, STORE, STORE_FAILURES["a defect"], "everything")
    world.clock.sleep = wait_for_ever  # type: ignore[method-assign]
    receiving = asyncio.create_task(receive_message(world.east, delivery_of(message(0), 9)))
    await started.wait()
    receiving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await receiving


def test_the_pause_grows_and_is_bounded() -> None:
    assert [pause_seconds(n) for n in (1, 2, 3, 7)] == [1.0, 2.0, 4.0, 64.0]
    assert {pause_seconds(n) for n in (8, 100, 100_000)} == {PAUSE_SECONDS_MAX}


async def test_what_is_given_up_on_is_in_the_log_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.bus.unavailable = {"west"}
    for n in range(40):
        await world.east.consumer.consume(message(0, kind="account.bill", session=f"acc-{n}"))
    world.bus.unavailable = set()
    fail = STORE_FAILURES["The key or the token is wrong."]
    world.journal.fault_plan = FailingPlan(world, STORE, fail, "writes")

    for _ in range(10):
        world.clock.seconds += 15.0
        await world.west.recovery.sweep()

    told = [text for text in caplog.messages if text.startswith("delivering a pending outbox")]
    assert 2 <= len(told) <= 4
    assert "Misconfigured: Cosmos DB: The key or the token is wrong." in told[0]
    assert "more since the last warning" in told[1]
