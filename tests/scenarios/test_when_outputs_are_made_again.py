"""A deterministic handler's outputs are not stored: they are made again on the state before."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from shared.domain.handler import Context, Handled, Handlers, Kind, Output
from shared.domain.message import Message
from shared.domain.outbox import EVERY_QUEUE
from shared.domain.standstill import StandstillKind
from shared.engine.consume.outcomes import AlreadyDone, Processed
from tests.crashes import redelivered, rest, sent, worlds
from tests.standing import shown
from tests.world import LAG_SECONDS, Account, Amount, Receipt, World, message

ROOT = Path(__file__).parents[2]

prices = {"today": [7]}


class Quote(BaseModel):
    """What an amount costs at the price of the day."""

    cost: int
    quote: str
    lucky_number: int
    tags: dict[str, int]


def quote(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book an amount and quote all of them at the price that was first looked up."""
    price = context.captured("price", lambda: prices["today"])[0]
    booked = Account(amounts=[*account.amounts, body.amount])
    quoted = Quote(
        cost=price * sum(booked.amounts),
        quote=context.new_id(),
        lucky_number=context.random.randrange(10**9),
        tags={name: len(name) for name in sorted({"red", "green", "blue", "amber"})},
    )
    return Handled(booked, (Output("account.quote", quoted),))


def handlers_with(handle: object = quote) -> Handlers:
    """The handlers of a deployment."""
    made = Handlers()
    register = made.register("quote", state=Account, body=Amount, kind=Kind.DETERMINISTIC)
    register(handle)  # type: ignore[type-var]
    return made


handlers = handlers_with()
QUOTES = [message(n, kind="quote") for n in range(3)]


@pytest.fixture
def world() -> World:
    """Two regions whose handler is deterministic."""
    return World(handlers=handlers)


@pytest.fixture(autouse=True)
def price_of_the_day() -> None:
    """Every test begins on the same day."""
    prices["today"] = [7]


async def leave_unsent(world: World, *quotes: Message) -> list[tuple[str, bytes]]:
    """Commit while both regions are dark; the answer is what should have been sent."""
    quiet = World(handlers=handlers)
    for arriving in quotes:
        await quiet.east.consumer.consume(arriving)
    await world.east.consumer.consume(quotes[0])
    for arriving in quotes[1:]:
        world.bus.unavailable = {"west"}
        await world.east.consumer.consume(arriving)
    world.bus.unavailable = set()
    world.clock.seconds += LAG_SECONDS
    return quiet.outputs("east")


async def test_they_are_not_in_the_journal(world: World) -> None:
    outcome = await world.east.consumer.consume(QUOTES[0])

    assert isinstance(outcome, Processed)
    (entry,) = world.entries()
    assert "batches" not in entry["outbox"]
    assert "lucky_number" not in json.dumps(entry)


async def test_a_region_that_missed_some_gets_the_same_bytes_on_the_state_before_each(
    world: World,
) -> None:
    expected = await leave_unsent(world, *QUOTES)
    prices["today"] = [99]

    await world.worker("west").recovery.sweep()

    assert world.outputs("west") == world.outputs("east") == expected
    assert await world.pending() == []


async def test_what_was_captured_is_what_the_handler_first_saw(world: World) -> None:
    def careless(account: Account, body: Amount, context: Context) -> Handled[Account]:
        price = context.captured("price", lambda: prices["today"])
        price.append(body.amount)
        cost = Quote(cost=sum(price), quote=context.new_id(), lucky_number=0, tags={})
        return Handled(account, (Output("account.quote", cost),))

    world.handlers = handlers_with(careless)
    world.bus.unavailable = {"west"}
    east = world.worker("east")
    await east.consumer.consume(QUOTES[0])
    world.bus.unavailable = set()
    world.clock.seconds += LAG_SECONDS

    await world.worker("west").recovery.sweep()

    assert world.outputs("west") == world.outputs("east") != []
    assert prices == {"today": [7]}


async def test_a_late_duplicate_changes_and_sends_nothing_new(world: World) -> None:
    for arriving in QUOTES:
        await world.east.consumer.consume(arriving)
    before = world.outputs("east")

    for arriving in reversed(QUOTES):
        assert await world.worker("east").consumer.consume(arriving) == AlreadyDone()
        assert await world.worker("west").consumer.consume(arriving) == AlreadyDone()

    assert world.outputs("east") == world.outputs("west") == before
    assert world.amounts() == [1, 2, 3]


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_with_another_hash_seed_and_clock_makes_the_same_bytes(seed: str) -> None:
    here = outputs_made_again()

    ran = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import *; print_outputs_made_again()"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed, "TZ": f"Etc/GMT+{seed}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(ran.stdout) == here
    assert len(here) == 3


def outputs_made_again() -> list[list[str]]:
    """The outputs of three messages, each made a second time by another worker."""
    import asyncio

    async def make_again() -> list[list[str]]:
        world = World(handlers=handlers)
        world.clock.seconds = float(os.environ.get("PYTHONHASHSEED") or 0) * 1_000
        await leave_unsent(world, *QUOTES)
        prices["today"] = [99]
        await world.worker("west").recovery.sweep()
        return [[m.id, m.body.decode()] for m in world.bus.messages("west", "out")]

    prices["today"] = [7]
    return asyncio.run(make_again())


def print_outputs_made_again() -> None:
    """For another process to call."""
    sys.stdout.write(json.dumps(outputs_made_again()))


async def test_other_bytes_are_never_sent_in_place_of_the_first_ones(world: World) -> None:
    def changed(account: Account, body: Amount, context: Context) -> Handled[Account]:
        receipt = Receipt(total=body.amount, receipt=context.new_id(), lucky_number=0)
        return Handled(account, (Output("account.quote", receipt),))

    expected = await leave_unsent(world, *QUOTES[:2])
    world.handlers = handlers_with(changed)
    await world.worker("west").recovery.sweep()
    assert world.outputs("west") == expected[:1]
    assert await world.pending() == []
    (blocked,) = await world.journal.blocked("acc-7")
    assert "come out otherwise than at first" in blocked.outbox.blocked["west"][EVERY_QUEUE]
    assert await shown(world.east) == [(StandstillKind.BLOCKED, "acc-7", 1)]

    world.handlers = handlers
    world.clock.seconds += LAG_SECONDS
    await world.worker("west").recovery.sweep()

    assert world.outputs("west") == expected


async def test_a_handler_that_now_fails_does_not_keep_other_sessions_from_their_rescue(
    world: World,
) -> None:
    def failing(_: Account, __: Amount, ___: Context) -> Account:
        raise ZeroDivisionError("a bug")

    world.bus.unavailable = {"west"}
    other = message(0, session="other", kind="quote")
    await world.east.consumer.consume(QUOTES[0])
    world.handlers = handlers_with(failing)
    await world.worker("east").consumer.consume(other)
    world.bus.unavailable = set()
    world.clock.seconds += LAG_SECONDS

    rescued = await world.worker("west").recovery.sweep()

    assert (rescued.helped, rescued.left) == (2, 0)
    (blocked,) = await world.journal.blocked("acc-7")
    assert "ZeroDivisionError: a bug" in blocked.outbox.blocked["west"][EVERY_QUEUE]
    assert len(world.bus.messages("west", "errors")) == 1


async def test_whatever_call_fails_the_outputs_made_again_have_the_same_bytes() -> None:
    async def work(world: World) -> None:
        await redelivered(world, *QUOTES)
        await rest(world)

    expected: list[tuple[str, bytes]] = []
    async for world in worlds(work, handlers):
        expected = expected or sent(world, "east")
        assert len(expected) == 3
        assert world.amounts() == [1, 2, 3], world.fault_plan
        assert sent(world, "east") == sent(world, "west") == expected, world.fault_plan
        assert await world.pending() == [], world.fault_plan
