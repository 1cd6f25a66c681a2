"""A handler runs past its limit, or for ever: it is cut off, and its message has a named end."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from local.testing.patience import Patience
from proof.simulation.world.virtual_time import run
from shared.domain.errors import LockstepError
from shared.domain.handler import Context, Handle, Handlers, Kind
from shared.domain.message import Message
from shared.engine.consume.outcomes import Faulted, PassedThrough, Processed
from shared.engine.handle.limit import WATCHDOG, HandlerThreads
from shared.engine.worker import Policy
from shared.settings import SETTINGS
from shared.testkit.injected_faults import ProcessKilled
from tests.loop_clock import LoopClock
from tests.world import POLICY, REGIONS, Account, Amount, World, handlers, message

HOST = json.loads((Path(__file__).parents[2] / "host.json").read_text("utf-8"))
LIMIT_SECONDS = POLICY.handler_seconds
BRIEF = replace(POLICY, handler_seconds=0.3)
FOR_EVER = 3_600.0


def handled_by(handle: Handle, kind: Kind, attempts: int = 3) -> Handlers:
    """The handlers of the tests, and one more for `account.slow`."""
    own = Handlers()
    own.register("account.slow", state=Account, body=Amount, kind=kind, attempts=attempts)(handle)
    return Handlers.joined([handlers, own])


def slow(session: str = "acc-7") -> Message:
    """A message for a slow handler."""
    return message(0, kind="account.slow", session=session)


def test_each_run_counts_as_an_attempt_whichever_region_it_is_in() -> None:
    runs: list[float] = []

    async def hang(account: Account, body: Amount, _: Context) -> Account:
        runs.append(asyncio.get_running_loop().time())
        await asyncio.sleep(FOR_EVER)
        return account

    async def scenario() -> None:
        world = World(LoopClock(), handlers=handled_by(hang, Kind.EFFECTFUL))
        held: list[float] = []
        while not world.entries() or world.entries()[-1]["status"] == "working":
            for region in REGIONS:
                began = world.clock.now()
                await world.worker(region).consumer.consume(slow())
                await world.worker(region).recovery.sweep()
                held.append(world.clock.now() - began)

        (fault,) = world.entries()
        assert fault["status"] == "faulted"
        assert f"took more than {LIMIT_SECONDS:g} s" in fault["reason"]
        assert len(runs) == 3
        assert max(held) < 2 * LIMIT_SECONDS

    run(scenario())


def test_failures_and_lost_owners_are_counted_together() -> None:
    runs: list[str] = []

    async def fail_then_die(account: Account, body: Amount, _: Context) -> Account:
        runs.append("run")
        if len(runs) % 2:
            raise ConnectionError("closed")
        raise ProcessKilled

    async def scenario() -> None:
        world = World(LoopClock(), handlers=handled_by(fail_then_die, Kind.EFFECTFUL, attempts=4))
        for _round in range(8):
            for region in REGIONS:
                try:
                    await world.worker(region).consumer.consume(slow())
                except (LockstepError, ProcessKilled):
                    await asyncio.sleep(POLICY.lease_seconds + 2)

        assert [entry["status"] for entry in world.entries()] == ["faulted"]
        assert len(runs) == 4

    run(scenario())


def test_one_that_ignores_its_cancellation_is_left_alone() -> None:
    async def ignore(account: Account, body: Amount, _: Context) -> Account:
        for _round in range(2):
            try:
                await asyncio.sleep(FOR_EVER)
            except asyncio.CancelledError:
                continue
        return account

    async def scenario() -> None:
        world = World(LoopClock(), handlers=handled_by(ignore, Kind.EFFECTFUL, attempts=1))
        outcome = await world.east.consumer.consume(slow())
        assert isinstance(outcome, Faulted)
        assert world.clock.now() < LIMIT_SECONDS + 1

    run(scenario())


def test_an_idempotent_one_is_a_fault_too() -> None:
    async def hang(account: Account, body: Amount, _: Context) -> Account:
        await asyncio.sleep(FOR_EVER)
        return account

    async def scenario() -> None:
        world = World(LoopClock(), handlers=handled_by(hang, Kind.IDEMPOTENT))
        outcome = await world.east.consumer.consume(replace(slow(), number=None))
        assert isinstance(outcome, PassedThrough)
        assert f"took more than {LIMIT_SECONDS:g} s" in str(outcome.fault)

    run(scenario())


async def test_a_blocking_one_is_abandoned_in_its_thread() -> None:
    released = threading.Event()

    def block(account: Account, body: Amount, _: Context) -> Account:
        released.wait(20)
        return account

    world = World(policy=BRIEF, handlers=handled_by(block, Kind.EFFECTFUL, attempts=1))
    try:
        outcome = await world.east.consumer.consume(slow())
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
        *(world.east.consumer.consume(slow(session=f"acc-{n}")) for n in range(sessions))
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


def for_ever() -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        pass


def stubbornly() -> None:
    """Go on after everything that is raised in it."""
    end = time.monotonic() + 20
    for _ in range(5):
        try:
            while time.monotonic() < end:
                pass
        except BaseException:
            continue


@pytest.mark.parametrize("spin", [for_ever, stubbornly])
@pytest.mark.parametrize("kind", [Kind.PURE, Kind.DETERMINISTIC])
async def test_a_pure_one_that_runs_for_ever_is_cut_off(
    spin: Callable[[], None], kind: Kind
) -> None:
    def handle(account: Account, body: Amount, _: Context) -> Account:
        spin()
        return account

    world = World(policy=BRIEF, handlers=handled_by(handle, kind))
    outcome = await world.east.consumer.consume(slow())

    assert isinstance(outcome, Faulted)
    assert "took more than 0.3 s" in str(outcome.entry.reason)
    # Whatever runs then is not disturbed, and nothing of the watch is left.
    world.east.worker.policy = POLICY
    for sequence in range(100):
        await world.east.consumer.consume(message(sequence, session="acc-8"))
    assert len(world.amounts("acc-8")) == 100
    patience = Patience(60)
    while WATCHDOG.tool is not None:
        assert not patience.is_over()
        await asyncio.sleep(0.1)
    assert not any(sys.monitoring.get_tool(tool) == "lockstep-handler" for tool in range(6))


def seconds_of(duration: str) -> float:
    """Hours, minutes and seconds of host.json in seconds."""
    hours, minutes, seconds = (float(part) for part in duration.split(":"))
    return 3600 * hours + 60 * minutes + seconds


def test_an_invocation_with_its_draining_ends_before_the_host_ends_it() -> None:
    default = next(s.default for s in SETTINGS if s.name == "LOCKSTEP_HANDLER_SECONDS")
    policy = Policy()
    assert float(str(default)) == policy.handler_seconds

    # A wait for a gap, the message's own runs, draining, and the runs of the last one drained.
    waits = policy.waits
    longest = waits.gap_seconds + waits.bound_seconds + 4 * policy.handler_seconds

    assert longest < seconds_of(HOST["functionTimeout"])
    renewal = HOST["extensions"]["serviceBus"]["maxAutoLockRenewalDuration"]
    assert longest < seconds_of(renewal)
    assert policy.pure_seconds <= policy.lease_seconds / 2
