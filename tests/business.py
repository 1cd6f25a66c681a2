"""A business that calls the outside: payments, and everything the outside was asked."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count, product
from typing import Any

from shared.domain.errors import LockstepError
from shared.domain.handler import Context, Handled, Handlers, Kind, OnFault, Output
from shared.domain.journal import Owner
from shared.domain.message import Message
from shared.engine.build import Services, build
from shared.ports import Clock
from shared.storage.journal import Journal
from shared.testkit.injected_faults import CallFault, FaultPlan, ProcessKilled
from shared.testkit.intercepted import InterceptedJournal
from shared.testkit.memory_store import EPOCH_SECONDS, VirtualClock
from tests import sized_outputs
from tests.world import (
    REGIONS,
    Account,
    Amount,
    Boast,
    World,
    billed,
    booked,
    handlers,
    message,
    take,
)

LEASE_SECONDS = 30.0
# The store tells times in whole seconds, so a lease lasts one longer.
LEASE_OVER = LEASE_SECONDS + 2
ATTEMPTS = 3
BEGAN = datetime.fromtimestamp(EPOCH_SECONDS, UTC)

type Happening = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """What happens to most payments."""


@dataclass
class Outside:
    """Whom the handlers pay: every payment asked for, by its key, and what happens meanwhile."""

    asked: list[tuple[str, int]] = field(default_factory=list)
    before: Happening = nothing
    after: Happening = nothing

    async def pay(self, key: str, amount: int) -> None:
        """Take a payment."""
        await self.before()
        self.asked.append((key, amount))
        await self.after()

    @property
    def keys(self) -> dict[int, set[str]]:
        """The keys under which each amount was asked for: one, however often it was."""
        found: dict[int, set[str]] = {}
        for key, amount in self.asked:
            found.setdefault(amount, set()).add(key)
        return found


def business(outside: Outside) -> Handlers:
    """The pure handlers of the tests, and some that call the outside."""
    whole = Handlers.joined([handlers, sized_outputs.handlers])

    @whole.register(
        "account.pay", state=Account, body=Amount, kind=Kind.EFFECTFUL, attempts=ATTEMPTS
    )
    @whole.register(
        "account.tip", state=Account, body=Amount, kind=Kind.EFFECTFUL, on_fault=OnFault.SKIP
    )
    async def pay(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Pay outside, book the amount and send a receipt; a failed tip is skipped."""
        key = context.new_id()
        await outside.pay(key, body.amount)
        return billed(account, body, key, context)

    @whole.register("account.print", state=Account, body=Amount, kind=Kind.EFFECTFUL)
    async def printed(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Pay outside and send more than an entry holds."""
        key = context.new_id()
        await outside.pay(key, body.amount)
        page = Output("account.page", Boast(text=key * 9_000))
        return Handled(booked(account, body), (page, page))

    @whole.register("account.note", body=Amount, kind=Kind.IDEMPOTENT, attempts=2)
    async def note(_: Any, body: Amount, context: Context) -> Handled[Any]:
        """Tell somebody; telling twice does no harm."""
        await outside.pay(context.new_id(), body.amount)
        told = Boast(text=f"told {body.amount}")
        return Handled(_, (Output("account.told", told),))

    return whole


def payment(sequence: int, kind: str = "account.pay", session: str = "acc-7") -> Message:
    """The n-th message of a session, which calls the outside."""
    return message(sequence, kind=kind, session=session)


def plain(sequence: int, kind: str = "account.bill", *, sent_after: float = 0.0) -> Message:
    """A message without a number, sent so many seconds after the beginning."""
    time = (BEGAN + timedelta(seconds=sent_after)).isoformat()
    return replace(message(sequence, kind=kind), number=None, time=time)


class OrderedClock(VirtualClock):
    """Virtual time that passes only when everybody sleeps; sleepers wake in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self.numbers = count()
        self.passing: asyncio.Task[None] | None = None

    async def sleep(self, seconds: float) -> None:
        """Wake when this much time has passed."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self.sleepers, (self.seconds + seconds, next(self.numbers), woken))
        if self.passing is None or self.passing.done():
            self.passing = asyncio.create_task(self.pass_time())
        await woken

    async def pass_time(self) -> None:
        """Wake one sleeper after another, each when everybody else has done what it could."""
        while self.sleepers:
            for _ in range(20):
                await asyncio.sleep(0)
            wakes_at, _, woken = heappop(self.sleepers)
            if not woken.done():
                self.seconds = max(self.seconds, wakes_at)
                woken.set_result(None)


class WrongClock:
    """The clock of a machine that is far off; time passes on it as everywhere."""

    def __init__(self, clock: VirtualClock, off_by_seconds: float) -> None:
        self.clock = clock
        self.off_by_seconds = off_by_seconds

    def now(self) -> float:
        """Seconds that never go back."""
        return self.clock.now() + self.off_by_seconds

    def today(self) -> float:
        """Seconds since 1970, as this machine believes."""
        return self.clock.today() + self.off_by_seconds

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        await self.clock.sleep(seconds)


def dying(world: World) -> Happening:
    """What ends its worker every time: whatever that still asks of the store is not asked."""

    async def die() -> None:
        world.journal.fault_plan = FaultPlan()
        world.journal.fault_plan.plan("replace", CallFault.KILLED_BEFORE)

    return die


def failing(error: BaseException) -> Happening:
    """What raises an error every time."""

    async def fail() -> None:
        raise error

    return fail


class BusinessWorld(World):
    """Two healthy regions with the whole business, and the outside that it calls."""

    def __init__(self, outside: Outside | None = None, clock: VirtualClock | None = None) -> None:
        self.outside = outside or Outside()
        super().__init__(clock or VirtualClock(), handlers=business(self.outside))


async def healthy(*arrivals: Message) -> BusinessWorld:
    """A world in which these messages came one after another, and nothing failed."""
    world = BusinessWorld(clock=OrderedClock())
    await take(world.east, *arrivals)
    return world


def worker_with(
    world: World, region: str, *, journal: Journal | None = None, clock: Clock | None = None
) -> Services:
    """A worker that sees the journal, or the time, in its own way."""
    world.workers += 1
    return build(
        journal or world.journal,
        world.delivery(),
        clock or world.clock,
        Owner(region, f"{region}-{world.workers}"),
        world.handlers,
        world.producer(),
        world.policy,
    )


async def dies(
    world: World,
    arriving: Message,
    operation: str,
    how: CallFault,
    work: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """The east takes the message, or does other work, and dies at the first such call."""
    fault_plan = FaultPlan()
    fault_plan.plan(operation, how)
    world.journal.fault_plan = world.bus.fault_plan = fault_plan
    try:
        await (work() if work else world.east.consumer.consume(arriving))
    except ProcessKilled:
        world.east = world.worker("east")
        return
    raise AssertionError(f"nobody called {operation}")


async def claimed(seconds_ago: float = 0.0) -> BusinessWorld:
    """A world in which the east has claimed a payment and died, so long ago."""
    world = BusinessWorld()
    await dies(world, payment(0), "append", CallFault.KILLED_AFTER)
    world.clock.seconds += seconds_ago
    return world


async def processed_and_died(worker: Services, arriving: Message) -> None:
    """The worker gives the message its entry, and dies before it drains or settles."""
    consumer = worker.consumer
    head = await worker.worker.read_head(arriving.session)
    assert await consumer.give_entry(await consumer.dispatcher.prepare(head, arriving))


async def swept(world: World) -> None:
    """Leases run out, and each region sweeps; one that goes wrong, or left something, again."""
    for _, region in product(range(2), REGIONS):
        world.clock.seconds += LEASE_OVER
        with suppress(LockstepError, ProcessKilled):
            await world.worker(region).recovery.sweep()


class Gated(InterceptedJournal):
    """A journal as one worker sees it: its calls of some operations wait while the gate is shut."""

    def __init__(self, journal: Journal, *operations: str) -> None:
        super().__init__(journal)
        self.operations = operations
        self.gate = asyncio.Event()
        self.gate.set()
        self.waits = asyncio.Event()

    async def intercept(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make the call behind the gate."""
        if not self.gate.is_set() and (not self.operations or name in self.operations):
            self.waits.set()
            await self.gate.wait()
        return await call()
