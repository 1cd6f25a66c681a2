"""A small business to simulate: orders as sagas, over stock, accounts and shelves.

Orders are those of `functions.handlers.orders`. Other sagas have any plan there can be, and their
steps go to shelves, too, whose keepers refuse, stumble and call the outside.
"""

import asyncio
import json
from enum import StrEnum

from pydantic import BaseModel

from functions.handlers import orders
from shared.domain.handler import Context, Handled, Handlers, Kind, OnFault
from shared.domain.message import Message
from shared.domain.saga.plan import Plan, Refusal
from shared.domain.saga.record import SagaKinds

PLAY = "saga.play"
PUT, TAKE, SPILL, CALL = "shelf.put", "shelf.take", "shelf.spill", "shelf.call"
# Longer than a lease now and then, and than a step's time.
EFFECT_SECONDS = 7.0


class Mood(StrEnum):
    """How a keeper takes a command."""

    WILLING = "willing"
    UNWILLING = "unwilling"  # it is refused
    CLUMSY = "clumsy"  # it fails, until a person lets it go
    MENDED = "mended"  # it fails, until a person corrects it


class Item(BaseModel):
    """What is put onto a shelf, or taken away."""

    name: str
    mood: Mood = Mood.WILLING


class Shelf(BaseModel):
    """What was put (+) and taken away (-), in order."""

    log: list[str] = []


def business() -> Handlers:
    """The handlers of everything that takes part."""
    handlers = Handlers()
    kinds = SagaKinds(handlers)

    @kinds.register(PLAY, body=Plan)
    def play(plan: Plan, _: Context) -> Plan:
        """Any plan at all."""
        return plan

    add_shelves(handlers)
    for handler in orders.handlers.by_type.values():
        if handler.message_type not in handlers.by_type:
            handlers.add(handler)
    return handlers


def add_shelves(handlers: Handlers) -> None:
    """The keepers of shelves."""

    @handlers.register(PUT, state=Shelf, body=Item)
    def put(shelf: Shelf, item: Item, _: Context) -> Handled[Shelf]:
        """Put something onto the shelf."""
        return moved(shelf, item, "+")

    @handlers.register(TAKE, state=Shelf, body=Item)
    def take(shelf: Shelf, item: Item, _: Context) -> Handled[Shelf]:
        """Take it away again."""
        return moved(shelf, item, "-")

    @handlers.register(SPILL, state=Shelf, body=Item, on_fault=OnFault.SKIP)
    def spill(_: Shelf, item: Item, __: Context) -> Handled[Shelf]:
        """Fail, and the session goes on."""
        raise ArithmeticError(f"{item.name} is spilt")

    @handlers.register(CALL, state=Shelf, body=Item, kind=Kind.EFFECTFUL)
    async def call(shelf: Shelf, item: Item, context: Context) -> Handled[Shelf]:
        """Ask somebody outside first, who takes his time."""
        await asyncio.sleep(context.random.random() ** 2 * EFFECT_SECONDS)
        return moved(shelf, item, "+")


def moved(shelf: Shelf, item: Item, sign: str) -> Handled[Shelf]:
    """The shelf after a command, if its keeper is in the mood for it."""
    match item.mood:
        case Mood.WILLING:
            return Handled(Shelf(log=[*shelf.log, f"{sign}{item.name}"]))
        case Mood.UNWILLING:
            return Handled(shelf, answer=Refusal(refused="not now"))
        case Mood.CLUMSY | Mood.MENDED:
            raise ArithmeticError(f"{item.name} fell down")


def corrected(message: Message) -> bytes | None:
    """What a person makes of a message that failed."""
    item = json.loads(message.body)
    if item.get("mood") != Mood.MENDED:
        return None
    return Item(name=item["name"]).model_dump_json().encode()
