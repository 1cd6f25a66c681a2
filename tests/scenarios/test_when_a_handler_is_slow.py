"""A handler takes longer than its lease, or than it may: others wait, and every message ends."""

import asyncio
import json
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel, field_validator

from local.testing.patience import Patience
from shared.domain.errors import LockstepError, Unavailable
from shared.domain.handler import Context, Handle, Handlers, Kind
from shared.domain.message import Message
from shared.engine.build import Services
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Claimed,
    Conflicting,
    Faulted,
    Outcome,
    Parked,
    PassedThrough,
    Processed,
)
from shared.engine.handle.limit import WATCHDOG, HandlerThreads
from shared.engine.worker import Policy
from shared.ports import StoredEntry
from shared.settings import SETTINGS
from shared.testkit.injected_faults import CALL_ERRORS, CallFault, ProcessKilled
from shared.testkit.memory import MemoryJournal
from tests.business import LEASE_SECONDS, BusinessWorld, OrderedClock, healthy, payment, worker_with
from tests.loop_clock import LoopClock, in_virtual_time
from tests.world import (
    GAP_SECONDS,
    POLICY,
    REGIONS,
    Account,
    Amount,
    World,
    handlers,
    message,
    take,
)

# When a handler is slower than its lease, its claim is renewed, and everybody else waits.

PAY = payment(0)
SLOW_SECONDS = 3.5 * LEASE_SECONDS


def slow(seconds: float = SLOW_SECONDS) -> BusinessWorld:
    """A world in which the outside takes its time."""
    world = BusinessWorld(clock=OrderedClock())
    world.outside.before = lambda: world.clock.sleep(seconds)
    return world


async def after(world: World, seconds: float, worker: Services, arriving: Message) -> Outcome:
    """Consume a message that comes later."""
    await world.clock.sleep(seconds)
    return await worker.consumer.consume(arriving)


async def beside(world: World, *later: tuple[float, Message]) -> list[Outcome | BaseException]:
    """The east takes the payment, and the west these messages so many seconds later."""
    return await asyncio.gather(
        world.east.consumer.consume(PAY),
        *(after(world, seconds, world.west, one) for seconds, one in later),
        return_exceptions=True,
    )


async def test_whose_place_beside_it_another_producer_has_goes_back_to_its_queue() -> None:
    world = slow()
    ruling, fenced = message(1, amount=201, level=1), message(1, amount=101)

    _, parked, given_back = await beside(world, (15, ruling), (30, fenced))

    assert parked == Parked()
    assert isinstance(given_back, Unavailable)
    assert world.amounts() == [1, 201]
    assert isinstance(await world.west.consumer.consume(fenced), Conflicting)


async def test_a_copy_that_comes_at_any_time_is_settled_and_never_takes_over() -> None:
    world = slow()
    workers = [world.worker(REGIONS[n % 2]) for n in range(24)]

    owner, *copies = await asyncio.gather(
        world.east.consumer.consume(PAY),
        *(after(world, 5.0 * n, worker, PAY) for n, worker in enumerate(workers, start=1)),
    )

    assert isinstance(owner, Processed)
    assert {type(outcome) for outcome in copies} == {Claimed, AlreadyDone}
    assert len(world.outside.asked) == 1
    assert world.outputs("east") == world.outputs("west") == (await healthy(PAY)).outputs("east")


async def test_a_copy_waits_inside_its_invocation_and_not_for_ever() -> None:
    world = slow()

    async def how_long() -> float:
        await after(world, 1, world.west, PAY)
        return world.clock.now() - 1

    _, waited = await asyncio.gather(world.east.consumer.consume(PAY), how_long())

    assert GAP_SECONDS <= waited < GAP_SECONDS + 2


async def test_what_comes_behind_it_is_kept_beside_the_claim_and_drained_in_order() -> None:
    world = slow()
    bills = [message(n, kind="account.bill") for n in (1, 2, 3)]

    owner, *others = await beside(world, (3, bills[1]), (2, bills[0]), (1, bills[2]))

    assert isinstance(owner, Processed)
    assert others == [Parked()] * 3
    assert world.amounts() == [1, 2, 3, 4]
    assert "parked" not in world.entries()[-1]
    quiet = await healthy(PAY, *bills)
    assert world.outputs("east") == world.outputs("west") == quiet.outputs("east")


async def test_many_messages_that_are_kept_beside_it_do_not_wear_its_lease_out() -> None:
    world = slow()

    owner, *_ = await beside(world, *((5.0 * n, message(n)) for n in range(1, 13)))

    assert isinstance(owner, Processed)
    assert len(world.outside.asked) == 1
    assert world.amounts() == list(range(1, 14))


async def test_what_comes_behind_a_quick_one_only_waits() -> None:
    world = slow(GAP_SECONDS / 2)

    _, outcome = await beside(world, (1, message(1)))

    assert isinstance(outcome, Processed)
    assert [entry["status"] for entry in world.entries()] == ["completed", "completed"]
    assert not any(entry.get("from_parked") for entry in world.entries())


async def test_the_sweep_leaves_it_alone() -> None:
    world = slow()

    async def sweep_often() -> None:
        for _ in range(12):
            await world.clock.sleep(7)
            await world.west.recovery.sweep()

    await asyncio.gather(world.east.consumer.consume(PAY), sweep_often())

    assert (len(world.outside.asked), world.amounts()) == (1, [1])


@pytest.mark.parametrize("fault", CALL_ERRORS)
@pytest.mark.parametrize("call", ["stored_entry", "replace"])
async def test_one_renewal_that_goes_wrong_loses_no_claim(call: str, fault: CallFault) -> None:
    world = slow()
    world.journal.fault_plan.plan(call, fault)

    await beside(world, (2 * LEASE_SECONDS, PAY))

    assert len(world.outside.asked) == 1
    assert world.outputs("west") == (await healthy(PAY)).outputs("west")


class Lingering(MemoryJournal):
    """A journal whose first look at a claim does not end at once when it is cancelled."""

    asked: asyncio.Event
    answered: asyncio.Event

    async def stored_entry(self, session: str, position: int) -> StoredEntry | None:
        if not self.asked.is_set():
            self.asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                await self.answered.wait()
        return await super().stored_entry(session, position)


async def test_a_cancelled_worker_does_not_go_on_because_a_renewal_ends_late() -> None:
    world = BusinessWorld()
    journal = world.journal = Lingering(world.clock)
    journal.asked, journal.answered = asyncio.Event(), asyncio.Event()

    async def until_renewed() -> None:
        await journal.asked.wait()

    world.outside.after = until_renewed
    working = asyncio.create_task(worker_with(world, "east").consumer.consume(PAY))
    await journal.asked.wait()
    for _ in range(10):
        await asyncio.sleep(0)

    working.cancel()
    await asyncio.sleep(0)
    journal.answered.set()

    with pytest.raises(asyncio.CancelledError):
        await working
    assert world.entries()[0]["status"] == "working"


async def test_other_sessions_flow_meanwhile() -> None:
    world = slow()
    others = [message(n, session="acc-8") for n in range(2)]

    _, began, done = await asyncio.gather(
        world.east.consumer.consume(PAY),
        after(world, 1, world.east, others[0]),
        after(world, 1, world.west, others[1]),
    )

    assert isinstance(began, Processed)
    assert isinstance(done, Processed)


async def test_what_does_not_fit_beside_a_claim_waits_until_it_ends() -> None:
    world = slow(GAP_SECONDS + 3)
    note = ("ü" * 240_000).encode()
    claimed, second = (
        replace(payment(n), body=b'{"amount":%d,"note":"%s"}' % (n + 1, note)) for n in range(2)
    )

    outcomes = await asyncio.gather(
        world.east.consumer.consume(claimed), after(world, 1, world.west, second)
    )

    assert {type(outcome) for outcome in outcomes} == {Processed}
    assert world.amounts() == [1, 2]


# When a handler takes too long, or for ever, it is cut off, and its message has a named end.

HOST = json.loads((Path(__file__).parents[2] / "host.json").read_text("utf-8"))
LIMIT_SECONDS = POLICY.handler_seconds
BRIEF = replace(POLICY, handler_seconds=0.3)
FOR_EVER = 3_600.0
RENEWAL = "maxAutoLockRenewalDuration"


def handled_by(handle: Handle, kind: Kind, attempts: int = 3) -> Handlers:
    """The handlers of the tests, and one more for `account.slow`."""
    own = Handlers()
    own.register("account.slow", state=Account, body=Amount, kind=kind, attempts=attempts)(handle)
    return Handlers.joined([handlers, own])


def slow_message(session: str = "acc-7") -> Message:
    """A message for a slow handler."""
    return message(0, kind="account.slow", session=session)


@in_virtual_time
async def test_each_run_counts_as_an_attempt_whichever_region_it_is_in() -> None:
    runs: list[float] = []

    async def hang(account: Account, body: Amount, _: Context) -> Account:
        runs.append(asyncio.get_running_loop().time())
        await asyncio.sleep(FOR_EVER)
        return account

    world = World(LoopClock(), handlers=handled_by(hang, Kind.EFFECTFUL))
    held: list[float] = []
    while not world.entries() or world.entries()[-1]["status"] == "working":
        for region in REGIONS:
            began = world.clock.now()
            await world.worker(region).consumer.consume(slow_message())
            await world.worker(region).recovery.sweep()
            held.append(world.clock.now() - began)

    (fault,) = world.entries()
    assert fault["status"] == "faulted"
    assert f"took more than {LIMIT_SECONDS:g} s" in fault["reason"]
    assert len(runs) == 3
    assert max(held) < 2 * LIMIT_SECONDS


@in_virtual_time
async def test_failures_and_lost_owners_are_counted_together() -> None:
    runs: list[str] = []

    async def fail_then_die(account: Account, body: Amount, _: Context) -> Account:
        runs.append("run")
        if len(runs) % 2:
            raise ConnectionError("closed")
        raise ProcessKilled

    world = World(LoopClock(), handlers=handled_by(fail_then_die, Kind.EFFECTFUL, attempts=4))
    for _round in range(8):
        for region in REGIONS:
            try:
                await world.worker(region).consumer.consume(slow_message())
            except (LockstepError, ProcessKilled):
                await asyncio.sleep(POLICY.lease_seconds + 2)

    assert [entry["status"] for entry in world.entries()] == ["faulted"]
    assert len(runs) == 4


@in_virtual_time
async def test_one_that_ignores_its_cancellation_is_left_alone() -> None:
    async def ignore(account: Account, body: Amount, _: Context) -> Account:
        for _round in range(2):
            try:
                await asyncio.sleep(FOR_EVER)
            except asyncio.CancelledError:
                continue
        return account

    world = World(LoopClock(), handlers=handled_by(ignore, Kind.EFFECTFUL, attempts=1))
    assert isinstance(await world.east.consumer.consume(slow_message()), Faulted)

    assert world.clock.now() < LIMIT_SECONDS + 1


@in_virtual_time
async def test_an_idempotent_one_is_a_fault_too() -> None:
    async def hang(account: Account, body: Amount, _: Context) -> Account:
        await asyncio.sleep(FOR_EVER)
        return account

    world = World(LoopClock(), handlers=handled_by(hang, Kind.IDEMPOTENT))
    outcome = await world.east.consumer.consume(replace(slow_message(), number=None))
    assert isinstance(outcome, PassedThrough)
    assert f"took more than {LIMIT_SECONDS:g} s" in str(outcome.fault)


async def test_a_blocking_one_is_abandoned_in_its_thread() -> None:
    released = threading.Event()

    def block(account: Account, body: Amount, _: Context) -> Account:
        released.wait(20)
        return account

    world = World(policy=BRIEF, handlers=handled_by(block, Kind.EFFECTFUL, attempts=1))
    try:
        outcome = await world.east.consumer.consume(slow_message())
    finally:
        released.set()

    assert isinstance(outcome, Faulted)
    assert "took more than 0.3 s" in str(outcome.entry.reason)


async def test_as_many_blocking_ones_run_side_by_side_as_the_host_has_sessions() -> None:
    sessions = HOST["extensions"]["serviceBus"]["maxConcurrentSessions"]
    together = threading.Barrier(sessions)

    def meet(account: Account, body: Amount, _: Context) -> Account:
        together.wait(20)
        return account

    world = World(handlers=handled_by(meet, Kind.EFFECTFUL, attempts=1))
    consumed = await asyncio.gather(
        *(world.east.consumer.consume(slow_message(session=f"acc-{n}")) for n in range(sessions))
    )

    assert {type(outcome) for outcome in consumed} == {Processed}


async def test_runs_that_never_end_have_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.engine.handle.limit.ABANDONED_MAX", 2)
    threads, released = HandlerThreads(), threading.Event()

    blocked = [threads.submit(released.wait, 20) for _ in range(2)]
    with pytest.raises(RuntimeError, match="2 runs of handlers do not end"):
        threads.submit(released.wait, 20).result(1)
    released.set()

    assert [one.result(20) for one in blocked] == [True, True]


def for_ever(times: int = 1) -> None:
    """Go on for so many times after everything that is raised in it."""
    end = time.monotonic() + 20
    for _ in range(times):
        try:
            while time.monotonic() < end:
                pass
        except BaseException:
            if times == 1:
                raise


@pytest.mark.parametrize("times", [1, 5], ids=["once", "stubbornly"])
@pytest.mark.parametrize("kind", [Kind.PURE, Kind.DETERMINISTIC])
async def test_a_pure_one_that_runs_for_ever_is_cut_off(times: int, kind: Kind) -> None:
    def handle(account: Account, body: Amount, _: Context) -> Account:
        for_ever(times)
        return account

    world = World(policy=BRIEF, handlers=handled_by(handle, kind))
    outcome = await world.east.consumer.consume(slow_message())

    assert isinstance(outcome, Faulted)
    assert "took more than 0.3 s" in str(outcome.entry.reason)
    where = outcome.entry.raised_at[-1].rpartition(".")[2]
    assert where.endswith(" in for_ever") or where == "handle"
    # Whatever runs then is not disturbed, and nothing of the watch is left.
    world.east.worker.policy = POLICY
    await take(world.east, *(message(sequence, session="acc-8") for sequence in range(100)))
    assert len(world.amounts("acc-8")) == 100
    patience = Patience(60)
    while WATCHDOG.tool is not None:
        assert not patience.is_over()
        await asyncio.sleep(0.1)
    assert not any(sys.monitoring.get_tool(tool) == "lockstep-handler" for tool in range(6))


class Endless(Exception):
    """An exception that is never done telling its text."""

    def __str__(self) -> str:
        for_ever(1)
        return ""


class Puzzling(BaseModel):
    """A body whose validator never comes to an end."""

    amount: int

    @field_validator("amount")
    @classmethod
    def ponder(cls, amount: int) -> int:
        """Look at it for ever."""
        for_ever(1)
        return amount


@pytest.mark.parametrize("body", [Amount, Puzzling], ids=["its text", "its validator"])
async def test_a_pure_one_is_cut_off_that_takes_for_ever_where_it_is_looked_at(
    body: type[BaseModel],
) -> None:
    endless = Handlers()

    @endless.register("account.slow", state=Account, body=body)
    def raise_it(_: Account, __: BaseModel, ___: Context) -> Account:
        raise Endless

    world = World(policy=BRIEF, handlers=endless)
    outcome = await world.east.consumer.consume(message(0, kind="account.slow"))

    assert isinstance(outcome, Faulted)
    assert "took more than 0.3 s" in str(outcome.entry.reason)


def test_an_invocation_with_its_draining_ends_before_the_host_ends_it() -> None:
    default = next(s.default for s in SETTINGS if s.name == "LOCKSTEP_HANDLER_SECONDS")
    policy = Policy()
    assert float(str(default)) == policy.handler_seconds

    # A wait for a gap, the message's own runs, draining, and the runs of the last one drained.
    waits = policy.waits
    longest = waits.gap_seconds + waits.bound_seconds + 4 * policy.handler_seconds

    for limit in (HOST["functionTimeout"], HOST["extensions"]["serviceBus"][RENEWAL]):
        hours, minutes, seconds = map(float, limit.split(":"))
        assert longest < 3600 * hours + 60 * minutes + seconds
    assert policy.pure_seconds <= policy.lease_seconds / 2
