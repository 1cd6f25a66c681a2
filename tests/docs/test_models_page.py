"""docs/models.md: its program runs on old data; old code on new data gives a reason of the page."""

import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from shared.domain.handler import Context, Handlers
from shared.domain.message import Message, Number
from shared.engine.consume.outcomes import Faulted, Processed
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from tests.world import World

PAGE = (Path(__file__).parents[2] / "docs/models.md").read_text()
(PROGRAM,) = re.findall(r"^```python\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)


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


def program_of_the_page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(PROGRAM, "docs/models.md", "exec"), names)
    return names


def deposit(sequence: int) -> Message:
    """The n-th deposit, of five."""
    number = Number("bank", 0, sequence)
    return Message(f"m{sequence}", "account:ada", "account.deposit", b'{"amount":5}', number)


async def test_the_program_of_the_page_reads_what_its_first_version_stored() -> None:
    world = World(handlers=first_version())
    await world.east.consumer.consume(deposit(0))

    world.handlers = program_of_the_page()["handlers"]
    assert isinstance(await world.worker("east").consumer.consume(deposit(1)), Processed)

    states = [one["state"] for one in world.entries("account:ada")]
    assert states == [{"cents": 500}, {"balance": 10, "currency": "EUR"}]


async def test_its_first_version_halts_on_what_it_stored_with_a_reason_of_the_table() -> None:
    world = World(handlers=program_of_the_page()["handlers"])
    await world.east.consumer.consume(deposit(0))

    world.handlers = first_version()
    outcome = await world.worker("east").consumer.consume(deposit(1))

    assert isinstance(outcome, Faulted)
    assert outcome.entry.halt is not None
    assert f"| `{outcome.entry.reason}` |" in PAGE


async def test_the_first_version_meets_a_state_whose_version_nobody_raised() -> None:
    world = World(handlers=first_version())
    await world.east.consumer.consume(deposit(0))
    names = program_of_the_page()
    forgotten = Handlers()
    handle = names["deposit"]
    forgotten.register("account.deposit", state=names["Account"], body=names["Deposit"])(handle)

    world.handlers = forgotten
    outcome = await world.worker("east").consumer.consume(deposit(1))

    assert isinstance(outcome, Faulted)
    reason = "the stored state is not what Account version 1 reads: unknown 'cents', missing"
    assert str(outcome.entry.reason).startswith(reason)
    assert f"`{reason} 'balance'` |" in PAGE


async def test_the_page_sets_a_state() -> None:
    (sent,) = re.findall(r"-d '(\{.+\})'", PAGE)
    asked = json.loads(sent)
    world = World(handlers=program_of_the_page()["handlers"])
    await world.east.consumer.consume(deposit(0))

    body = json.dumps(asked["body"]).encode()
    action = ResolutionAction(asked["action"])
    wanted = ResolutionRequest(action, asked["who"], asked["why"], body)
    await world.east.resolver.resolve("account:ada", wanted)

    assert world.entries("account:ada")[-1]["state"] == asked["body"]
