"""User code does its worst: its message is a fault with the reason, and other sessions go on."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator, model_serializer

from shared.domain.errors import LockstepError
from shared.domain.handler import Context, Handled, Handlers, Kind, Output, StateModel
from shared.domain.reports import REASON_CHARACTERS_MAX
from shared.domain.saga.plan import Command, Plan, Stage, Step
from shared.domain.saga.record import SagaKinds
from shared.domain.wire import to_properties
from shared.engine.consume.outcomes import Faulted, PassedThrough, Processed
from shared.engine.handle.limit import HandlerLoops
from shared.engine.sagas.sagas import Sagas
from shared.ports import DeadLetter
from shared.testkit.memory_store import VirtualClock
from tests.business import plain
from tests.sizes import IS_PROOF
from tests.user_code import BY_NAME, LEAVES, RAISES, RETURNS, Way
from tests.world import REGIONS, Account, Amount, World, add, booked, message

type Do = Callable[[], Any]

ROOT = Path(__file__).parents[2]
WORST = "account.worst"


def registered(do: Do, kind: Kind, *, is_async: bool = False) -> Handlers:
    """Handlers of which one does its worst."""
    found = Handlers()
    found.register("account.add", state=Account, body=Amount)(add)
    state: dict[str, Any] = {} if kind is Kind.IDEMPOTENT else {"state": Account}

    def handle(_: Any, __: Amount, ___: Context) -> Any:
        return do()

    async def handle_async(_: Any, __: Amount, ___: Context) -> Any:
        await asyncio.sleep(0)
        return do()

    found.register(WORST, body=Amount, kind=kind, attempts=2, **state)(
        handle_async if is_async else handle
    )
    return found


async def reason_of(world: World, *, number: int = 0) -> str:
    """The reason of the fault that a message becomes in both regions; other sessions go on."""
    worst = message(number, kind=WORST)
    for region in (world.east, world.west):
        outcome = await region.consumer.consume(worst)
    assert not isinstance(outcome, Processed)
    return await fault_in(world)


async def fault_in(world: World) -> str:
    """The reason of the last entry, a fault that the error queues know, too."""
    for region in (world.east, world.west):
        other = message(0, session=f"other-{region.region}")
        assert isinstance(await region.consumer.consume(other), Processed)
    fault = next(one for one in reversed(world.entries()) if one["status"] == "faulted")
    assert fault["message"]["type"] == WORST
    assert [report["reason"] for report in world.reports()] == [fault["reason"]]
    return str(fault["reason"])


def in_a_handler(kind: Kind, *, is_async: bool = False) -> Callable[[Do], Awaitable[str]]:
    """The place: a handler of this kind."""

    async def play(do: Do) -> str:
        return await reason_of(World(handlers=registered(do, kind, is_async=is_async)))

    return play


def without_a_journal(*, is_async: bool) -> Callable[[Do], Awaitable[str]]:
    """The place: an idempotent handler."""

    async def play(do: Do) -> str:
        world = World(handlers=registered(do, Kind.IDEMPOTENT, is_async=is_async))
        worst = replace(message(0, kind=WORST), number=None)
        outcome = await world.east.consumer.consume(worst)
        assert isinstance(outcome, PassedThrough)
        (report,) = world.reports()
        assert report["reason"] == outcome.fault
        return str(outcome.fault)

    return play


async def in_a_fold(do: Do) -> str:
    """The place: a pure handler, among calls that come at once."""
    world = World(handlers=registered(do, Kind.PURE))
    sent = [message(0), message(1), message(2, kind=WORST), message(3)]
    await asyncio.gather(*(world.east.consumer.consume(one, n) for n, one in enumerate(sent)))
    assert world.amounts() == [1, 2]
    return await fault_in(world)


async def in_a_drain(do: Do) -> str:
    """The place: a pure handler whose message was parked behind a gap."""
    world = World(handlers=registered(do, Kind.PURE))
    await world.west.consumer.consume(message(1, kind=WORST))
    outcome = await world.east.consumer.consume(message(0))
    assert isinstance(outcome, Processed)
    return await fault_in(world)


async def in_a_dead_letter(do: Do) -> str:
    """The place: a pure handler of a message that the broker gave up on."""
    world = World(handlers=registered(do, Kind.PURE))
    worst = message(0, kind=WORST)
    letter = DeadLetter("acc-7", to_properties(worst), worst.body, "MaxDeliveryCountExceeded")
    await world.east.consumer.consume(worst, letter=letter)
    return await fault_in(world)


async def in_a_validator(do: Do) -> str:
    """The place: a validator of the message's body."""

    class Judged(BaseModel):
        amount: int

        @field_validator("amount")
        @classmethod
        def judge(cls, _: int) -> int:
            return int(bool(do()))

    found = Handlers()
    found.register("account.add", state=Account, body=Amount)(add)
    found.register(WORST, state=Account, body=Judged)(lambda state, _, __: state)
    return await reason_of(World(handlers=found))


async def in_a_states_validator(do: Do) -> str:
    """The place: a validator of the state that a message finds."""
    worst = False

    class Remembered(BaseModel):
        amounts: list[int] = []

        @field_validator("amounts")
        @classmethod
        def judge(cls, amounts: list[int]) -> list[int]:
            if worst:
                do()
            return amounts

    found = Handlers()

    @found.register("account.add", state=Remembered, body=Amount)
    @found.register(WORST, state=Remembered, body=Amount)
    def remember(state: Remembered, body: Amount, _: Context) -> Remembered:
        return Remembered(amounts=[*state.amounts, body.amount])

    world = World(handlers=found)
    await world.east.consumer.consume(message(0))
    worst = True
    await world.east.consumer.consume(message(1, kind=WORST))
    worst = False
    return await fault_in(world)


async def in_an_upgrade(do: Do) -> str:
    """The place: the upgrade of a state of an earlier version."""
    world = World(handlers=registered(do, Kind.PURE))
    await world.east.consumer.consume(message(0))
    newer, upgraded = Handlers(), StateModel(Account, 2, lambda _, __: do())
    for kind in ("account.add", WORST):
        newer.register(kind, state=upgraded, body=Amount)(add)
    world.handlers = newer
    world.east, world.west = world.worker("east"), world.worker("west")
    return await reason_of(world, number=1)


async def in_captured(do: Do) -> str:
    """The place: a function that looks at something for `Context.captured`."""
    found = Handlers()
    found.register("account.add", state=Account, body=Amount)(add)

    @found.register(WORST, state=Account, body=Amount)
    def handle(state: Account, _: Amount, context: Context) -> Account:
        context.captured("looked", do)
        return state

    return await reason_of(World(handlers=found))


async def in_a_serialiser(do: Do) -> str:
    """The place: an output's body that is written as JSON."""

    class Written(BaseModel):
        @model_serializer
        def write(self) -> dict[str, Any]:
            do()
            return {}

    def handle() -> Any:
        return Handled(Account(), (Output("account.told", Written()),))

    return await reason_of(World(handlers=registered(handle, Kind.PURE)))


async def in_a_step(do: Do) -> str:
    """The place: the handler of a saga's step."""
    world = World(handlers=registered(do, Kind.EFFECTFUL, is_async=True))
    command = plain(0, kind=WORST)
    for region in (world.east, world.west):
        # The session halts, so there is no answer yet.
        with suppress(LockstepError):
            await region.consumer.ask(command)
    return await fault_in(world)


async def in_a_plan(do: Do) -> str:
    """The place: the plan of a saga, made when it starts."""
    kinds = SagaKinds(registered(do, Kind.PURE))

    @kinds.register("order.place", body=Amount)
    def plan(_: Amount, __: Context) -> Plan:
        do()
        step = Step(name="add", do=Command(session="acc-7", type="account.add"))
        return Plan(parts=(Stage(steps=(step,)),))

    world = World(handlers=kinds.handlers)
    response = await Sagas(world.east.consumer).start("k", "order.place", b'{"amount":1}')
    assert not response.is_accepted
    for region in REGIONS:
        assert isinstance(
            await getattr(world, region).consumer.consume(message(0, session=f"o-{region}")),
            Processed,
        )
    return str(response.reason)


PLACES: dict[str, Callable[[Do], Awaitable[str]]] = {
    "pure handler": in_a_handler(Kind.PURE),
    "deterministic handler": in_a_handler(Kind.DETERMINISTIC),
    "effectful handler": in_a_handler(Kind.EFFECTFUL),
    "effectful coroutine": in_a_handler(Kind.EFFECTFUL, is_async=True),
    "idempotent handler": without_a_journal(is_async=False),
    "idempotent coroutine": without_a_journal(is_async=True),
    "fold": in_a_fold,
    "drain": in_a_drain,
    "dead letter": in_a_dead_letter,
    "validator": in_a_validator,
    "validator of the state": in_a_states_validator,
    "upgrade": in_an_upgrade,
    "captured": in_captured,
    "serialiser": in_a_serialiser,
    "saga's step": in_a_step,
    "saga's plan": in_a_plan,
}
WITH_A_STATE = ["pure handler", "deterministic handler", "effectful handler", "effectful coroutine"]


# Each way at three places and each place with many ways, or all with all.
PAIRS = [
    pytest.param(way, place, id=f"{way.name}-{place}")
    for (n, way), (at, place) in product(enumerate(RAISES), enumerate(PLACES))
    if IS_PROOF or (at - n) % len(PLACES) in (0, 5, 10)
]


@pytest.mark.parametrize(("way", "place"), PAIRS)
async def test_whatever_it_raises_is_a_fault_of_its_message(way: Way, place: str) -> None:
    reason = await PLACES[place](way.do)

    assert way.word in reason, reason
    assert reason.isprintable()
    assert len(reason) <= REASON_CHARACTERS_MAX
    json.dumps(reason).encode()


@pytest.mark.parametrize("place", WITH_A_STATE)
@pytest.mark.parametrize("way", RETURNS, ids=lambda way: way.name)
async def test_whatever_it_returns_that_is_no_result_is_a_fault(way: Way, place: str) -> None:
    assert way.word in await PLACES[place](way.do)


class CalmClock(VirtualClock):
    """A clock that lets the threads of handlers run: renewals of a claim keep nobody busy."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.02))


@pytest.mark.parametrize("kind", [Kind.PURE, Kind.EFFECTFUL])
@pytest.mark.parametrize("way", LEAVES, ids=lambda way: way.name)
async def test_what_it_leaves_behind_harms_nobody(way: Way, kind: Kind) -> None:
    found = registered(way.do, kind, is_async=kind is Kind.EFFECTFUL)

    @found.register("account.call", state=Account, body=Amount, kind=Kind.EFFECTFUL)
    async def call(account: Account, body: Amount, _: Context) -> Account:
        await asyncio.sleep(0)
        return booked(account, body)

    world, process = World(CalmClock(), handlers=found), os.getpid()
    world.east.consumer.runner.finish = HandlerLoops().finish
    outcome = await world.east.consumer.consume(message(0, kind=WORST))
    assert isinstance(outcome, Processed | Faulted)

    for n in range(20):
        for other in (message(n, session="pure"), message(n, session="call", kind="account.call")):
            assert isinstance(await world.east.consumer.consume(other), Processed)
    assert world.amounts("pure") == world.amounts("call") == [*range(1, 21)]
    assert os.getpid() == process


def test_each_way_and_each_place_stands_in_the_table_of_guarantees() -> None:
    page = (ROOT / "docs/guarantees.md").read_text("utf-8")
    rows = [row.split(" | ") for row in page.splitlines() if row.count(" | ") == 3]
    ways = {name for row in rows for name in row[1].split("; ")}
    places = {name for row in rows for name in row[2].split("; ")}

    assert {*BY_NAME} <= ways
    assert {*PLACES} <= places
