"""Handlers of an account, good ones and such as break what they promise."""

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, Field

from shared.domain.handler import Context, Handle, Handled, Handlers, Kind, NoState, Output
from shared.testkit import Given, given
from tests.world import Account, Amount

log = logging.getLogger("suspects")

COLOURS = {"red", "green", "blue", "amber", "cyan", "pink", "teal", "lime"}
counter = itertools.count()
remembered: list[int] = []


class Note(BaseModel):
    """Something that a handler tells."""

    text: str
    stamp: str = ""


class Stamped(BaseModel):
    """Something that stamps itself when it is made."""

    stamp: str = Field(default_factory=lambda: str(uuid.uuid4()))


def of(handle: Handle, kind: Kind = Kind.PURE) -> Handlers:
    """One handler of a kind."""
    handlers = Handlers()
    handlers.register("add", state=Account, body=Amount, kind=kind)(handle)
    return handlers


def three() -> list[Given]:
    """Three messages to one session."""
    return [given("acc-7", "add", {"amount": n}) for n in (1, 2, 3)]


def booked(account: Account, body: Amount) -> Account:
    """The account after an amount."""
    return Account(amounts=[*account.amounts, body.amount])


def noting(account: Account, body: Amount, text: object) -> Handled[Account]:
    """A booked amount and a note."""
    return Handled(booked(account, body), (Output("note", Note(text=str(text)), "notes"),))


def telling(find: Callable[[], object]) -> Handle:
    """A handler that books an amount and notes what it finds."""
    return lambda account, body, _: noting(account, body, find())


def good(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book, log, and tell what is stable for the message."""
    rate = context.captured("rate", time.time)
    log.warning("booking %s", body.amount)
    stable = f"{context.new_id()} {context.random.random()} {context.now} {rate >= 0}"
    return noting(account, body, stable)


counting = telling(lambda: next(counter))
# It goes through a set in the set's own order.
listers = of(telling(lambda: ",".join(COLOURS)))


def changing_the_state(account: Account, body: Amount, _: Context) -> Account:
    """Append to the list that was given."""
    account.amounts.append(body.amount)
    return account


def changing_the_body(account: Account, body: Amount, _: Context) -> Account:
    """Scribble on the message."""
    body.amount += 1
    return booked(account, body)


def in_the_machines_zone(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Tell the day on which the sender's time falls where this machine stands."""
    return noting(account, body, context.now.astimezone().date())


def remembering(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Keep messages in a variable of the module; a copy at once is recognised."""
    if not remembered or remembered[-1] != body.amount:
        remembered.append(body.amount)
    return noting(account, body, len(remembered))


@dataclass
class Outside:
    """A system beyond the journal, which was told something."""

    told: list[int]


def effectful(outside: Outside) -> Handle:
    """A handler that calls the outside."""

    async def call(account: Account, body: Amount, _: Context) -> Handled[Account]:
        outside.told.append(body.amount)
        return noting(account, body, f"told {body.amount}")

    return call


async def waiting(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Wait for the outside, in real time."""
    await asyncio.sleep(0.02)
    return noting(account, body, "waited")


class Forgetful:
    """A handler that fails on what it has seen before, as one with a cache of its own may."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, account: Account, body: Amount, _: Context) -> Account:
        self.left -= 1
        return account if self.left == 0 else booked(account, body)


def failing(_: NoState, body: Amount, __: Context) -> NoState:
    """Fail."""
    raise ArithmeticError(f"cannot take {body.amount}")


def answering(account: Account, _: Amount, context: Context) -> Handled[Account]:
    """Answer whoever asked."""
    return Handled(account, (context.reply("answer", Note(text="yes")),))
