"""docs/models.md: its program runs on old data; old code on new data waits, or names a reason."""

import json
import re

from pydantic import BaseModel

from shared.domain.handler import Context, Handlers
from shared.domain.message import Message, Number
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.consume.outcomes import Faulted, Outcome, Parked, Processed
from tests.docs.pages import page
from tests.world import LAG_SECONDS, World

PAGE = page("docs/models.md")


def first_version() -> Handlers:
    """The handlers before the change that the page describes."""
    handlers = Handlers()

    class Deposit(BaseModel):
        amount: int

    class Account(BaseModel):
        cents: int = 0

    @handlers.register("account.deposit", state=Account, body=Deposit)
    def deposit(account: Account, body: Deposit, _: Context) -> Account:
        return Account(cents=account.cents + 100 * body.amount)

    return handlers


def deposit(sequence: int) -> Message:
    number = Number("bank", 0, sequence)
    return Message(f"m{sequence}", "account:ada", "account.deposit", b'{"amount":5}', number)


async def deploy(before: Handlers, after: Handlers) -> tuple[World, Outcome]:
    """What becomes of the second deposit where the handlers changed after the first one."""
    world = World(handlers=before)
    await world.east.consumer.consume(deposit(0))
    world.handlers = after
    return world, await world.worker("east").consumer.consume(deposit(1))


async def test_the_program_of_the_page_reads_what_its_first_version_stored() -> None:
    world, outcome = await deploy(first_version(), PAGE.run()["handlers"])

    assert isinstance(outcome, Processed)
    states = [one["state"] for one in world.entries("account:ada")]
    assert states == [{"cents": 500}, {"balance": 10, "currency": "EUR"}]


async def test_its_first_version_parks_what_meets_the_state_of_the_second() -> None:
    world, outcome = await deploy(PAGE.run()["handlers"], first_version())

    assert outcome == Parked()
    world.handlers = PAGE.run()["handlers"]
    world.clock.seconds += 2 * LAG_SECONDS
    await world.worker("east").recovery.sweep()
    assert world.entries("account:ada")[-1]["state"] == {"balance": 10, "currency": "EUR"}


async def test_the_first_version_meets_a_state_whose_version_nobody_raised() -> None:
    names, forgotten = PAGE.run(), Handlers()
    register = forgotten.register("account.deposit", state=names["Account"], body=names["Deposit"])
    register(names["deposit"])

    _, outcome = await deploy(first_version(), forgotten)

    assert isinstance(outcome, Faulted)
    reason = "the stored state is not what Account version 1 reads: unknown 'cents', missing"
    assert str(outcome.entry.reason).startswith(reason)
    assert f"{reason} 'balance'" in PAGE.table("reason").names()


async def test_the_page_sets_a_state() -> None:
    (sent,) = re.findall(r"-d '(\{.+\})'", PAGE.text)
    asked = json.loads(sent)
    world = World(handlers=PAGE.run()["handlers"])
    await world.east.consumer.consume(deposit(0))

    body = json.dumps(asked["body"]).encode()
    action = ResolutionAction(asked["action"])
    wanted = ResolutionRequest(action, asked["who"], asked["why"], body)
    await world.east.resolver.resolve("account:ada", wanted)

    assert world.entries("account:ada")[-1]["state"] == asked["body"]
