"""The store or the bus fails, for a call or for minutes: few deliveries, and each effect once."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product

import pytest

from functions.triggers.receive import PAUSE_SECONDS_MAX, pause_seconds, receive_message
from shared.domain.errors import LockstepError
from shared.domain.failures import (
    BUS,
    FAILURE_RULES,
    STORE,
    Failure,
    FailureClass,
    Service,
    make_error,
)
from shared.domain.message import Message
from shared.testkit.injected_faults import CALL_ERRORS, CallFault, FaultPlan
from shared.testkit.intercepted import CALLS, WRITES
from tests.crashes import sent
from tests.deliveries import delivery, delivery_of
from tests.sizes import IS_PROOF
from tests.world import LAG_SECONDS, REGIONS, World, message, sweep_later

# When an error stays for ten minutes, few deliveries are spent, and everything ends afterwards.
#
# A listener hands a failed message out again after some milliseconds, so nothing but the function's
# own pause keeps it from spending all its deliveries, and the store's request units with them.

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
    world: World, why: str, scope: str
) -> None:
    await world.east.consumer.consume(message(0, kind="account.bill"))
    plan = FailingPlan(world, STORE, STORE_FAILURES[why], scope)
    world.journal.fault_plan = plan
    # A new process, which remembers nothing.
    world.east = world.worker("east")

    assert await deliver_until_settled(world, "account.bill", 1) < DELIVERIES_MAX

    made = plan.failed + len(plan.made)
    assert made * CALL_UNITS / OUTAGE_SECONDS < UNITS_A_SECOND_MAX
    await expect_healed(world)


@pytest.mark.parametrize("why", BUS_FAILURES)
async def test_a_failing_bus_spends_few_deliveries_and_loses_none(world: World, why: str) -> None:
    world.bus.fault_plan = FailingPlan(world, BUS, BUS_FAILURES[why], "everything")

    deliveries = [await deliver_until_settled(world, "account.bill", n) for n in range(2)]

    assert sum(deliveries) < 2 * DELIVERIES_MAX
    await expect_healed(world)


async def expect_healed(world: World) -> None:
    """After the outage everything comes to its end by sweeps alone."""
    world.clock.seconds = max(world.clock.seconds, OUTAGE_SECONDS) + 60.0
    for _ in range(5):
        await sweep_later(world)
    assert world.amounts() == [1, 2]
    assert await world.pending() == []


async def test_what_cannot_be_rejected_waits_as_well(world: World) -> None:
    world.bus.unavailable.update(REGIONS)
    count = 0
    while world.clock.now() < OUTAGE_SECONDS:
        count += 1
        with pytest.raises(Exception, match="no region surely took"):
            await receive_message(world.east, delivery(b"no message", {}, count))

    assert count < DELIVERIES_MAX


async def test_a_slow_failure_waits_no_longer_than_a_fast_one(world: World) -> None:
    def fail(_: bool) -> Exception:
        world.clock.seconds += 7.0
        return RuntimeError("slow")

    world.journal.fault_plan = FailingPlan(world, STORE, fail, "everything")
    with pytest.raises(RuntimeError):
        await receive_message(world.east, delivery_of(message(0), 4))

    assert world.clock.now() == pytest.approx(8.0)


async def test_shutting_down_ends_a_pause_at_once(world: World) -> None:
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


async def test_what_is_given_up_on_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    with world.without("west"):
        for n in range(40):
            await world.east.consumer.consume(message(0, kind="account.bill", session=f"acc-{n}"))
    fail = STORE_FAILURES["The key or the token is wrong."]
    world.journal.fault_plan = FailingPlan(world, STORE, fail, "writes")

    for _ in range(10):
        world.clock.seconds += 15.0
        await world.west.recovery.sweep()

    told = [text for text in caplog.messages if text.startswith("delivering a pending outbox")]
    assert 2 <= len(told) <= 4
    assert "Misconfigured: Cosmos DB: The key or the token is wrong." in told[0]
    assert "more since the last warning" in told[1]


# When any store or bus call fails, or two of them, each effect is once and outputs are the same.

type Fault = tuple[str, CallFault, int]

BILLS = [message(n, kind="account.bill") for n in range(3)]
# Out of order, so that the last is parked and drained; and with a fault that is skipped.
GAPPED = [BILLS[0], BILLS[2], BILLS[1]]
# The first comes last, so that two are parked and drained in one entry.
FOLDED = [BILLS[1], BILLS[2], BILLS[0]]
FAULTY = [BILLS[0], message(1, kind="account.hint"), BILLS[2]]

BUS_CALLS = ("send.east", "send.west")
PRODUCER_CALLS = {"add_pending", "key", "ledger", "save_ledger", "regions", "save_regions"}
BACKGROUND_CALLS = {"has_work", "sessions", "oldest_entries", "milestone", "compact"}
BACKGROUND_CALLS |= {"archive_age", "light_beacon"}
OPERATOR_CALLS = {"signs", "first_parked", "close"}
CLAIM_CALLS = {"stored_entry", "replace", "result"}
STAGING_CALLS = {"stage_part", "staged"}
ARRIVAL_CALLS = {"marker"}
EVICTION_CALLS = {"cursor"}
PAGE_CALLS = {"listed", "recent_entries", "waiting_seconds", "entries_since"}
PAGE_CALLS |= {"changed", "time", "sagas", "sagas_by_time", "sagas_due_first", "entries_naming"}
REPETITION_CALLS = {"repetition", "record_repetition", "end_repetition"}
REPORT_CALLS = {"keep_report", "report", "open_reports", "open_report_times", "close_report"}
BLOCKED_CALLS = {"blocked", "blocked_queues", "decide"}
SENDING_CALLS = {"begin_sending"}
ENDING_CALLS = {"end_ledger", "end_all_ledgers", "note_quiet", "remove_session", "remove_ledgers"}
ENDING_CALLS |= {"session_age"}
STORE_CALLS = (
    "head",
    "entry",
    "processed",
    "append",
    "parked",
    "parked_run",
    "pending",
    "acknowledge",
    "leave_pending",
)
FAULTS = [*product(STORE_CALLS + BUS_CALLS, CALL_ERRORS, range(3))]
# One pair in so many, spread over the whole list of pairs.
ONE_PAIR_IN = 1 if IS_PROOF else 61


@pytest.mark.slow
def test_no_call_of_the_journal_is_forgotten_here() -> None:
    elsewhere = PRODUCER_CALLS | BACKGROUND_CALLS | CLAIM_CALLS | STAGING_CALLS | ARRIVAL_CALLS
    elsewhere |= OPERATOR_CALLS | BLOCKED_CALLS | EVICTION_CALLS | PAGE_CALLS | REPETITION_CALLS
    elsewhere |= SENDING_CALLS | ENDING_CALLS | REPORT_CALLS
    assert {*STORE_CALLS} | elsewhere == CALLS


async def consume_until_settled(world: World, arriving: Message) -> None:
    """Redeliver to a new worker, east and west in turn, until one settles."""
    for attempt in range(4):
        region = world.worker(("east", "west")[attempt % 2])
        try:
            await region.consumer.consume(arriving)
        except LockstepError:
            world.clock.seconds += 3
            continue
        return
    pytest.fail(f"{arriving} was never settled")


async def run(arrivals: Sequence[Message], *faults: Fault) -> World:
    """Process what arrives, arming each fault before the arrival at which it fails; then sweep."""
    world = World()
    for index, arriving in enumerate(arrivals):
        for call, fault, fails_at in faults:
            if fails_at == index:
                fault_plan = world.bus.fault_plan if call in BUS_CALLS else world.journal.fault_plan
                fault_plan.plan(call, fault)
        await consume_until_settled(world, arriving)
        world.clock.seconds += 3
    world.journal.fault_plan.planned.clear()
    world.bus.fault_plan.planned.clear()
    for _ in range(2):
        world.clock.seconds += LAG_SECONDS
        await world.worker("east").recovery.sweep()
        await world.worker("west").recovery.sweep()
    return world


@pytest.mark.slow
@pytest.mark.parametrize(
    "arrivals", [BILLS, GAPPED, FOLDED, FAULTY], ids=["in turn", "gapped", "folded", "faulty"]
)
async def test_each_effect_is_once_and_each_output_the_same(arrivals: Sequence[Message]) -> None:
    quiet = await run(arrivals)
    expected = {queue: sent(quiet, "east", queue) for queue in ("out", "errors")}
    assert len(expected["out"]) + len(expected["errors"]) == len(arrivals)

    singles = [(fault,) for fault in FAULTS]
    for faults in [*singles, *islice(combinations(FAULTS, 2), 0, None, ONE_PAIR_IN)]:
        world = await run(arrivals, *faults)

        assert world.amounts() == quiet.amounts(), faults
        for region, queue in product(("east", "west"), expected):
            assert sent(world, region, queue) == expected[queue], (region, queue, faults)
        assert await world.journal.pending("acc-7", REGIONS) == [], faults
