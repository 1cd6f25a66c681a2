"""A handler does not come back: the worker's loop, and the handlers of others, go on."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

import pytest

from functions.http.operate import report_health
from shared.domain.handler import Context, Handle, Handlers, Kind
from shared.domain.message import Message
from shared.engine.consume.outcomes import Faulted, Processed
from shared.engine.handle import limit
from shared.engine.handle.limit import HandlerLoops
from shared.engine.worker import Policy
from tests.asking import ask
from tests.world import POLICY, Account, Amount, World, booked, handlers, message

ROOT = Path(__file__).parents[2]
BRIEF = replace(POLICY, handler_seconds=0.3)
# Nothing is held for longer, whatever goes wrong.
SECONDS_MAX = 30.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a loop count as held after a moment."""
    monkeypatch.setattr(limit, "HELD_SECONDS", 0.2)


def outside(handle: Handle) -> Handlers:
    """The handlers of the tests, one that may hold its loop, and one that only awaits."""
    own = Handlers()
    effectful = {"state": Account, "body": Amount, "kind": Kind.EFFECTFUL, "attempts": 1}
    own.register("account.hold", **effectful)(handle)  # type: ignore[arg-type]

    @own.register("account.call", state=Account, body=Amount, kind=Kind.EFFECTFUL)
    async def call(account: Account, body: Amount, _: Context) -> Account:
        await asyncio.sleep(0.001)
        return booked(account, body)

    return Handlers.joined([handlers, own])


def world_with(handle: Handle, east: Policy = POLICY) -> World:
    """A world whose workers run handlers in loops of their own, the same ones, as an app does."""
    world, loops = World(handlers=outside(handle)), HandlerLoops()
    world.east = world.worker("east", east)
    for worker in (world.east, world.west):
        worker.consumer.runner.finish = loops.finish
    return world


async def require_first_loop(world: World, loops: list[object]) -> None:
    """What comes is disturbed by nothing, and in the end has the first loop again.

    Clients that an app keeps are bound to it.
    """
    for n in range(10_000):
        again = message(0, 2, session=f"again-{n}", kind="account.hold")
        assert isinstance(await world.west.consumer.consume(again), Processed)
        if loops[-1] is loops[0]:
            break
    assert loops[-1] is loops[0]
    assert loops[0] is not asyncio.get_running_loop()


def holding(sequence: int = 0, session: str = "held") -> Message:
    return message(sequence, session=session, kind="account.hold")


def spin(released: threading.Event) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not released.is_set() and time.monotonic() < end:
        pass


def block(released: threading.Event) -> None:
    released.wait(SECONDS_MAX)


@pytest.mark.parametrize("hold", [spin, block])
async def test_others_are_done_while_it_is_held(
    hold: Callable[[threading.Event], None],
) -> None:
    held, released = threading.Event(), threading.Event()
    loops: list[object] = []

    async def handle(account: Account, body: Amount, _: Context) -> Account:
        loops.append(asyncio.get_running_loop())
        held.set()
        if body.amount == 1:
            hold(released)
        return booked(account, body)

    world = world_with(handle)
    bad = asyncio.create_task(world.east.consumer.consume(holding()))
    await asyncio.to_thread(held.wait, SECONDS_MAX)
    others = [message(0, session=f"s-{n}", kind="account.call") for n in range(5)]
    pure = message(0, session="pure")

    done = await asyncio.gather(*map(world.east.consumer.consume, [*others, pure]))
    assert (await report_health(world.east, ask(method="GET"))).status_code == 200

    # They came to their ends while nobody had let the other go.
    assert not released.is_set()
    assert not bad.done()
    assert {type(one) for one in done} == {Processed}
    released.set()
    assert isinstance(await bad, Processed)
    await require_first_loop(world, loops)


@pytest.mark.parametrize("is_child", [False, True], ids=["the run itself", "a task of it"])
async def test_a_busy_one_is_cut_off_at_its_limit_and_its_loop_is_used_again(
    *, is_child: bool
) -> None:
    went_on: list[str] = []
    loops: list[object] = []

    async def hold() -> None:
        spin(threading.Event())
        went_on.append("beyond the limit")

    async def handle(account: Account, body: Amount, _: Context) -> Account:
        loops.append(asyncio.get_running_loop())
        if body.amount == 1:
            await (asyncio.gather(hold()) if is_child else hold())
        return booked(account, body)

    world = world_with(handle, BRIEF)
    outcome = await world.east.consumer.consume(holding())
    assert isinstance(outcome, Faulted)
    assert "took more than 0.3 s" in str(outcome.entry.reason)

    await require_first_loop(world, loops)
    assert went_on == []


async def test_one_that_awaits_for_too_long_is_cancelled_where_it_is() -> None:
    cancelled = threading.Event()

    async def handle(account: Account, body: Amount, _: Context) -> Account:
        try:
            await asyncio.sleep(SECONDS_MAX)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return account

    outcome = await world_with(handle, BRIEF).east.consumer.consume(holding())

    assert isinstance(outcome, Faulted)
    assert await asyncio.to_thread(cancelled.wait, SECONDS_MAX)


WHO: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.mark.parametrize("is_async", [True, False])
async def test_its_context_is_that_of_its_call(*, is_async: bool) -> None:
    seen: list[str] = []

    def note(account: Account, body: Amount, _: Context) -> Account:
        seen.append(WHO.get())
        return booked(account, body)

    async def note_outside(account: Account, body: Amount, context: Context) -> Account:
        return note(account, body, context)

    world = world_with(note_outside if is_async else note)
    for name in ("ada", "bob"):
        WHO.set(name)
        await world.east.consumer.consume(holding(session=name))

    assert seen == ["ada", "bob"]


# What holds the worker's own loop in C, or the lock of the interpreter, ends the process.

PROGRAM = """
import asyncio, re, time
from shared.engine.handle import limit
limit.GRACE_SECONDS = 0.5
limit.LOOK_SECONDS = 0.1
from shared.domain.handler import Handlers, Kind
from shared.engine.handle.limit import WATCHDOG, HandlerLoops
from tests.world import Account, Amount, World, message, POLICY
from dataclasses import replace

own = Handlers()

{decorator}
{define} hold(account, body, _):
    {hold}
    return account

async def main():
    world = World(handlers=own, policy=replace(POLICY, handler_seconds=0.3))
    world.east.consumer.runner.finish = HandlerLoops().finish
    WATCHDOG.may_end_process(0.3)
    await world.east.consumer.consume(message(0, kind="account.hold"))

print("begun", flush=True)
asyncio.run(main())
print("ended", flush=True)
"""
DECORATOR = '@own.register("account.hold", state=Account, body=Amount, kind=Kind.{kind})'


@pytest.mark.parametrize(
    ("kind", "hold"),
    [
        ("PURE", "time.sleep(10**6)"),
        ("PURE", 're.match("(a+)+$", "a" * 60 + "b")'),
        ("EFFECTFUL", 're.match("(a+)+$", "a" * 60 + "b")'),
    ],
    ids=["a pure one that sleeps", "a pure one in C", "an async one in C"],
)
def test_what_cannot_be_cut_off_ends_the_process(kind: str, hold: str) -> None:
    define = "def" if kind == "PURE" else "async def"
    program = PROGRAM.format(decorator=DECORATOR.format(kind=kind), define=define, hold=hold)

    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (1, "begun\n"), ended.stderr
    # It says where it was.
    assert "Timeout" in ended.stderr
    assert "in hold" in ended.stderr
