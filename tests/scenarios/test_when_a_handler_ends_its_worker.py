"""A handler ends its worker, which no `except` can catch: its message becomes a fault by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from functions.triggers.receive import receive_message
from shared.domain.errors import LockstepError
from shared.domain.handler import Context, Handlers, Kind
from shared.domain.journal import Owner
from shared.domain.message import Message
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.build import Services
from shared.engine.consume.consume import AGAIN
from shared.engine.consume.outcomes import Failed, Faulted, Parked, PassedThrough, Processed
from shared.testkit.exercise import exercise
from shared.testkit.given import given
from shared.testkit.injected_faults import CallFault, ProcessKilled
from shared.testkit.intercepted import InterceptedJournal
from tests.business import LEASE_OVER, plain, worker_with
from tests.crashes import assert_the_same_whatever_fails
from tests.deliveries import delivery_of
from tests.world import (
    IMPATIENT,
    POLICY,
    REGIONS,
    RETRY,
    Account,
    Amount,
    World,
    booked,
    handlers,
    message,
    take,
)

KINDS = [Kind.PURE, Kind.DETERMINISTIC, Kind.EFFECTFUL, Kind.IDEMPOTENT]
OUTSIDE = (Kind.EFFECTFUL, Kind.IDEMPOTENT)
DEADLY = 666


def deadly(kind: Kind, *, attempts: int = 3) -> Handlers:
    """The pure handlers of the tests, and one for `account.kill` that ends its worker."""

    def kill(account: Account, body: Amount, _: Context) -> Account:
        if body.amount == DEADLY:
            raise ProcessKilled("account.kill")
        return booked(account, body)

    async def kill_outside(account: Account, body: Amount, _: Context) -> Account:
        return kill(account, body, _)

    async def kill_freely(state: object, body: Amount, _: Context) -> object:
        kill(Account(), body, _)
        return state

    own = Handlers()
    handle = {Kind.EFFECTFUL: kill_outside, Kind.IDEMPOTENT: kill_freely}.get(kind, kill)
    state = {} if kind is Kind.IDEMPOTENT else {"state": Account}
    own.register("account.kill", body=Amount, kind=kind, attempts=attempts, **state)(handle)  # type: ignore[arg-type, type-var]
    return Handlers.joined([handlers, own])


def killer(sequence: int = 0, session: str = "bad", amount: int = DEADLY) -> Message:
    return message(sequence, amount, session=session, kind="account.kill")


class Distant(InterceptedJournal):
    """A journal as far away as a real one: whoever calls it lets others go on meanwhile."""

    async def intercept(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        for _ in range(5):
            await asyncio.sleep(0)
        return await call()


@dataclass
class Hosted:
    """A region's queue and host: what ends a worker brings all back that was in its hands.

    A host's next worker knows that the one before is gone, unless each has a host of its own.
    """

    region: str
    world: World
    has_one_host: bool = True
    is_careful: bool = True
    left: dict[Message, int] = field(default_factory=dict)
    deaths: int = 0

    def __post_init__(self) -> None:
        self.worker = self.start()

    def start(self) -> Services:
        journal = Distant(self.world.journal)
        started = worker_with(self.world, self.region, journal=journal)
        owner = f"{self.region}/{self.world.workers}"
        if self.has_one_host:
            started.worker.owner = Owner(self.region, owner)
        started.worker.careful_until = float("inf") if self.is_careful else 0.0
        return started

    def put(self, messages: Sequence[Message]) -> None:
        self.left |= dict.fromkeys(messages, 0)

    async def hand_over(self) -> None:
        """Everything that is left at once, as a host does."""

        async def deliver(arriving: Message, arrival: int) -> None:
            self.left[arriving] += 1
            count = self.left[arriving]
            try:
                await receive_message(self.worker, delivery_of(arriving, count, arrival))
            except LockstepError:
                return
            del self.left[arriving]

        calls = [asyncio.create_task(deliver(one, n)) for n, one in enumerate(self.left)]
        await self.until_dead(calls)

    async def sweep(self) -> None:
        await self.until_dead([asyncio.create_task(self.swept())])

    async def swept(self) -> None:
        with suppress(LockstepError):
            await self.worker.recovery.sweep()

    async def until_dead(self, calls: Sequence[asyncio.Task[None]]) -> None:
        if not calls:
            return
        await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        # A trigger raises nothing but Exceptions, so there it is the cause.
        if any(
            isinstance(cause, ProcessKilled)
            for one in ended
            if one
            for cause in (one, one.__cause__)
        ):
            self.deaths += 1
            self.worker = self.start()


async def play(world: World, *hosts: Hosted, rounds: int = 12) -> None:
    """Let each region take what it has, and sweep, until nothing more should happen."""
    for _ in range(rounds):
        for host in hosts:
            await host.hand_over()
        world.clock.seconds += LEASE_OVER / 4
        for host in hosts:
            await host.sweep()
    assert [host.left for host in hosts] == [{}] * len(hosts)


def require_fault(world: World, session: str = "bad") -> None:
    """The bad message is kept whole as a fault that says what happened; nothing is claimed."""
    fault = world.entries(session)[-1]
    assert fault["status"] == "faulted"
    assert "the worker that ran its handler ended, in try" in fault["reason"]
    assert fault["message"]["body"] == f'{{"amount":{DEADLY}}}'


GOOD = {f"good-{n}": [message(k, session=f"good-{n}") for k in range(3)] for n in range(6)}
EVERY_GOOD = [one for own in GOOD.values() for one in own]


def require_unharmed(world: World) -> None:
    for session in GOOD:
        assert world.amounts(session) == [1, 2, 3]
        assert {e["status"] for e in world.entries(session)} <= {"completed", "parked"}


@pytest.mark.parametrize("where", [("east",), REGIONS], ids=["one region", "both regions"])
@pytest.mark.parametrize("kind", KINDS)
async def test_its_message_is_a_fault_and_others_are_unharmed(
    kind: Kind, where: Sequence[str]
) -> None:
    world = World(handlers=deadly(kind))
    hosts = [Hosted(region, world) for region in where]
    for host in hosts:
        host.put([*EVERY_GOOD[:9], killer(), *EVERY_GOOD[9:]])

    await play(world, *hosts)

    require_fault(world)
    require_unharmed(world)
    assert max(host.deaths for host in hosts) <= (3 if kind in OUTSIDE else 2)
    assert len(world.reports()) == 1


async def test_a_pure_one_ends_two_workers_of_a_host_and_what_follows_it_waits() -> None:
    world = World(handlers=deadly(Kind.PURE))
    east = Hosted("east", world)
    east.put([killer(), message(1, session="bad"), message(2, session="bad")])

    await play(world, east)

    assert east.deaths == 2
    assert [entry["status"] for entry in world.entries("bad")] == ["faulted", "parked", "parked"]
    assert world.entries("bad")[0]["reason"].endswith("ended, in try 2")


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_a_fault_where_hosts_end_with_their_workers(kind: Kind) -> None:
    world = World(handlers=deadly(kind))
    hosts = [Hosted(region, world, has_one_host=False) for region in REGIONS]
    for host in hosts:
        host.put([killer(), *EVERY_GOOD])

    await play(world, *hosts, rounds=20)

    require_fault(world)
    require_unharmed(world)


@pytest.mark.parametrize("kind", [Kind.PURE, Kind.EFFECTFUL])
async def test_one_that_lies_parked_ends_too_whoever_drains_it(kind: Kind) -> None:
    world = World(handlers=deadly(kind))
    hurried = world.worker("west", IMPATIENT)
    outcomes = await take(hurried, killer(1), *(message(n, session="bad") for n in (2, 3)))
    assert outcomes == [Parked()] * 3
    # Sweeps would help, if they were careful.
    east = Hosted("east", world, is_careful=False)
    east.put([message(0, session="bad"), *EVERY_GOOD])
    for _ in range(6):
        await east.hand_over()
    assert east.left == {}

    await play(world, east)

    assert [entry["status"] for entry in world.entries("bad")][-1] == "faulted"
    require_fault(world)
    require_unharmed(world)
    assert world.amounts("bad") == [1]
    assert east.deaths <= 3


async def test_one_that_a_sweep_drains_ends_too() -> None:
    world = World(handlers=deadly(Kind.PURE))
    await take(world.worker("west", IMPATIENT), killer(1), message(2, session="bad"))
    # The missing message is committed by a worker that dies before it drains.
    head = await world.east.worker.read_head("bad")
    dispatcher = world.east.consumer.dispatcher
    first = await dispatcher.prepare(head, message(0, session="bad"))
    assert await world.east.consumer.give_entry(first)
    hosts = [Hosted(region, world) for region in REGIONS]

    await play(world, *hosts)

    require_fault(world)
    assert sum(host.deaths for host in hosts) <= 3


async def test_a_command_ends_too_and_its_step_is_refused() -> None:
    world = World(handlers=deadly(Kind.PURE))
    world.handlers.by_type["account.kill"] = replace(
        world.handlers.by_type["account.kill"], on_fault=handlers.by_type["account.hint"].on_fault
    )
    command = replace(plain(0, "account.kill"), body=killer().body)
    east, reply = Hosted("east", world), None
    for _ in range(6):
        with suppress(ProcessKilled, LockstepError):
            reply = await east.worker.consumer.ask(command)
        if reply is not None:
            break
        east.deaths += 1
        east.worker = east.start()

    assert isinstance(reply, Failed)
    assert "the worker that ran its handler ended" in reply.reason
    assert east.deaths <= 3


async def test_one_without_a_journal_is_counted_when_it_comes_again() -> None:
    world = World(handlers=deadly(Kind.IDEMPOTENT))
    bad = replace(killer(), number=None)
    fine = replace(killer(amount=1), number=None, id="fine")
    east = Hosted("east", world)
    east.put([bad, *EVERY_GOOD])

    await play(world, east)

    require_fault(world)
    require_unharmed(world)
    assert east.deaths <= 3
    # It needs no time for that, and a first delivery touches no journal.
    before = dict(world.journal.fault_plan.calls)
    assert await world.east.consumer.consume(fine) == PassedThrough()
    assert dict(world.journal.fault_plan.calls) == before
    assert isinstance(
        await world.east.consumer.consume(replace(fine, session="other"), as_try=AGAIN), Processed
    )


@pytest.mark.parametrize("decision", [RETRY, "edit"])
async def test_a_person_who_retries_it_gets_a_fault_again_or_an_end(
    decision: ResolutionRequest | str,
) -> None:
    world = World(handlers=deadly(Kind.PURE))
    east = Hosted("east", world)
    east.put([killer(), message(1, session="bad")])
    await play(world, east)

    if isinstance(decision, str):
        body = b'{"amount":1}'
        decision = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", body)
        await east.worker.resolver.resolve("bad", decision)
        assert world.amounts("bad") == [1, 2]
        return
    with pytest.raises(ProcessKilled):
        await east.worker.resolver.resolve("bad", decision)
    east.worker = east.start()
    await play(world, east)
    require_fault(world)
    assert east.deaths == 2


@pytest.mark.parametrize("attempts", [1, 2])
async def test_an_effectful_one_of_few_attempts_outlives_the_death_of_a_worker(
    attempts: int,
) -> None:
    world = World(handlers=deadly(Kind.EFFECTFUL, attempts=attempts))
    pay = killer(amount=5)

    def end_worker(*_: object) -> Account:
        raise ProcessKilled("another one's handler")

    kept = world.handlers.by_type["account.kill"]
    for _ in range(2):
        world.handlers.by_type["account.kill"] = replace(kept, handle=end_worker)
        with suppress(ProcessKilled):
            await world.worker("east").consumer.consume(pay, as_try=AGAIN)
        world.clock.seconds += LEASE_OVER
    world.handlers.by_type["account.kill"] = kept

    assert isinstance(await world.worker("east").consumer.consume(pay), Processed)
    assert world.amounts("bad") == [5]


async def test_one_attempt_is_one_where_the_handler_raises() -> None:
    world, ran = World(handlers=deadly(Kind.EFFECTFUL, attempts=1)), 0

    async def fail(*_: object) -> Account:
        nonlocal ran
        ran += 1
        raise ConnectionError("closed")

    kept = world.handlers.by_type["account.kill"]
    world.handlers.by_type["account.kill"] = replace(kept, handle=fail)

    assert isinstance(await world.east.consumer.consume(killer(amount=5)), Faulted)
    assert ran == 1


def test_exercise_takes_a_handler_of_one_attempt() -> None:
    report = exercise(
        deadly(Kind.EFFECTFUL, attempts=1),
        [given("acc-7", "account.kill", Amount(amount=n)) for n in (1, 2)],
        hash_seeds=(),
        runs_max=200,
    )

    assert report.state("acc-7")["amounts"] == [1, 2]


@pytest.mark.parametrize("kind", ["account.add", "account.bill"])
async def test_any_call_can_go_wrong_for_what_comes_again(kind: str) -> None:
    brief = replace(POLICY, waits=replace(POLICY.waits, gap_seconds=1.0))
    arrivals = [message(n, kind=kind) for n in (1, 0, 2)]

    async def work(world: World) -> None:
        for arriving in arrivals:
            for _ in range(6):
                with suppress(LockstepError, ProcessKilled):
                    await world.east.consumer.consume(arriving, as_try=AGAIN)
                    break
                world.east = world.worker("east")
                world.clock.seconds += LEASE_OVER
        for region in (*REGIONS, *REGIONS):
            world.clock.seconds += LEASE_OVER
            with suppress(LockstepError, ProcessKilled):
                await world.worker(region).recovery.sweep()

    outputs = 0 if kind == "account.add" else 3
    await assert_the_same_whatever_fails(work, handlers, [1, 2, 3], outputs, brief)


async def test_what_comes_again_because_of_an_exception_costs_no_claim() -> None:
    world = World()
    world.journal.fault_plan.plan("append", CallFault.REFUSED, CallFault.REFUSED)
    arrivals = [delivery_of(message(0), count, arrival=7) for count in (1, 2, 3)]
    for refused in arrivals[:2]:
        with pytest.raises(LockstepError):
            await receive_message(world.east, refused)
    writes = world.journal.fault_plan.calls["append"]

    await receive_message(world.east, arrivals[2])

    assert world.amounts() == [1]
    assert world.journal.fault_plan.calls["append"] == writes + 1
    assert world.journal.fault_plan.calls["replace"] == 0
    # In a worker that has not seen these exceptions it may have ended the ones before.
    await receive_message(world.west, delivery_of(message(1), 3, arrival=8))
    assert world.amounts() == [1, 2]
    assert world.journal.fault_plan.calls["replace"] == 1
