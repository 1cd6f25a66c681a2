"""Handlers of an account, good ones and such as break what they promise."""

import asyncio
import datetime
import itertools
import logging
import random
import secrets
import time
import uuid
from dataclasses import dataclass

from pydantic import BaseModel, Field

from shared.domain.handler import Context, Handle, Handled, Handlers, Kind, NoState, Output
from shared.testkit import Given, given

log = logging.getLogger("suspects")

COLOURS = {"red", "green", "blue", "amber", "cyan", "pink", "teal", "lime"}
counter = itertools.count()
remembered: list[int] = []


class Amount(BaseModel):
    """What an account is told."""

    amount: int


class Account(BaseModel):
    """What an account remembers."""

    amounts: list[int] = []


class Note(BaseModel):
    """Something that a handler tells."""

    text: str
    stamp: str = ""


class Stamped(BaseModel):
    """Something that stamps itself when it is made."""

    stamp: str = Field(default_factory=lambda: str(uuid.uuid4()))


def telling(account: Account, body: Amount, text: str) -> Handled[Account]:
    """A booked amount and a note."""
    booked = Account(amounts=[*account.amounts, body.amount])
    return Handled(booked, (Output("note", Note(text=text), "notes"),))


def of(handle: Handle, kind: Kind = Kind.PURE) -> Handlers:
    """One handler of a kind."""
    handlers = Handlers()
    handlers.register("add", state=Account, body=Amount, kind=kind)(handle)
    return handlers


def three() -> list[Given]:
    """Three messages to one session."""
    return [given("acc-7", "add", {"amount": n}) for n in (1, 2, 3)]


def good(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book, log, and tell what is stable for the message."""
    rate = context.captured("rate", time.time)
    log.warning("booking %s", body.amount)
    stable = f"{context.new_id()} {context.random.random()} {context.now} {rate >= 0}"
    return telling(account, body, stable)


def with_uuid(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Make an id up."""
    return telling(account, body, str(uuid.uuid4()))


def with_secret(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Draw a token."""
    return telling(account, body, secrets.token_hex())


def with_chance(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Throw dice."""
    return telling(account, body, str(random.randint(1, 6)))


def with_clock(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Look at the clock."""
    return telling(account, body, str(datetime.datetime.now(datetime.UTC)))


def with_hidden_id(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Use a model that makes its own id."""
    return Handled(account, (Output("note", Stamped()),))


def with_file(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Read a file."""
    with open(__file__) as text:  # noqa: PTH123 - what a handler may do
        return telling(account, body, text.readline())


def with_hash(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Use Python's own hash."""
    return telling(account, body, str(hash("text")))


def changing_the_state(account: Account, body: Amount, _: Context) -> Account:
    """Append to the list that was given."""
    account.amounts.append(body.amount)
    return account


def changing_the_body(account: Account, body: Amount, _: Context) -> Account:
    """Scribble on the message."""
    body.amount += 1
    return Account(amounts=[*account.amounts, body.amount])


def counting(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Count in a variable of the module."""
    return telling(account, body, str(next(counter)))


def remembering(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Keep messages in a variable of the module; a copy at once is recognised."""
    if not remembered or remembered[-1] != body.amount:
        remembered.append(body.amount)
    return telling(account, body, str(len(remembered)))


def listing_a_set(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Go through a set in its own order."""
    return telling(account, body, ",".join(COLOURS))


listers = of(listing_a_set)


@dataclass
class Outside:
    """A system beyond the journal, which was told something."""

    told: list[int]


def effectful(outside: Outside) -> Handle:
    """A handler that calls the outside."""

    async def call(account: Account, body: Amount, _: Context) -> Handled[Account]:
        outside.told.append(body.amount)
        return telling(account, body, f"told {body.amount}")

    return call


async def waiting(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Wait for the outside, in real time."""
    await asyncio.sleep(0.02)
    return telling(account, body, "waited")


def effectful_counting(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Answer by how often it was called."""
    return telling(account, body, str(next(counter)))


class Forgetful:
    """A handler that fails on what it has seen before, as one with a cache of its own may."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, account: Account, body: Amount, _: Context) -> Account:
        self.left -= 1
        if self.left == 0:
            return account
        return Account(amounts=[*account.amounts, body.amount])


def failing(_: NoState, body: Amount, __: Context) -> NoState:
    """Fail."""
    raise ArithmeticError(f"cannot take {body.amount}")


def answering(account: Account, _: Amount, context: Context) -> Handled[Account]:
    """Answer whoever asked."""
    return Handled(account, (context.reply("answer", Note(text="yes")),))
