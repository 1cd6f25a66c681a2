"""Numbers have many digits: a state, what was captured and outputs keep them, or are refused.

What no store changes is tested in `tests/contract/container.py`, and what is refused in
`test_when_a_state_is_large.py`.
"""

import json
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from shared.domain.handler import WHOLE_NUMBER_MAX, Context, Handled, Handlers, Kind, Output
from shared.domain.message import Message, Number
from tests.world import LAG_SECONDS, World, take

TICKS = 639313101001234567  # beyond 2^53, with neighbours of the same double
PRICE = Decimal("1234567890123.45678901234567890")
RATE = 0.1 + 0.2
handlers = Handlers()


class Trade(BaseModel):
    """What is traded."""

    ticks: int
    price: Decimal


class Book(BaseModel):
    """What was traded so far."""

    total: Decimal = Decimal(0)
    rate: float = 0.0
    fee: float = 0.0
    count: int = 0


class Confirmation(BaseModel):
    """What is answered: the trade, the book after it, and a rate as text."""

    trade: Trade
    book: Book
    rate: str


@handlers.register("trade", state=Book, body=Trade, kind=Kind.DETERMINISTIC)
def trade(book: Book, body: Trade, context: Context) -> Handled[Book]:
    """Book a trade at the rate that was looked up."""
    rate = context.captured("rate", lambda: {"eur": 12.0, "usd": RATE, "gold": -0.0})
    after = Book(
        total=book.total + body.price, rate=book.rate + RATE, fee=12.0, count=WHOLE_NUMBER_MAX
    )
    said = Confirmation(trade=body, book=after, rate=json.dumps(rate))
    return Handled(after, (Output("confirmed", said),))


def trade_message(sequence: int) -> Message:
    body = f'{{"ticks":{TICKS},"price":"{PRICE}"}}'.encode()
    return Message(f"trade-{sequence}", "book-1", "trade", body, Number("desk", 0, sequence))


TRADES = [trade_message(n) for n in range(3)]


def drop_zeros(value: Any) -> Any:
    """A document as a store gives it back that drops zeros at the end of numbers."""
    match value:
        case dict():
            return {name: drop_zeros(one) for name, one in value.items()}
        case list():
            return list(map(drop_zeros, value))
        case float():
            return int(value) if value.is_integer() else value
        case _:
            return value


async def test_what_is_stored_and_read_again_has_every_digit() -> None:
    world = World(handlers=handlers)
    await take(world.east, *TRADES[:2])

    state = world.entries("book-1")[-1]["state"]
    stored = Book.model_validate(json.loads(json.dumps(state)))

    assert state["total"] == str(PRICE * 2)
    assert stored == Book(total=PRICE * 2, rate=RATE * 2, fee=12.0, count=2**53)
    for _, body in world.outputs("east"):
        assert f'"ticks":{TICKS}'.encode() in body
        assert f'"price":"{PRICE}"'.encode() in body


async def test_outputs_made_again_have_the_same_digits_even_of_a_store_that_drops_zeros() -> None:
    """Azure has been seen to drop them, in a whole document, when it is patched."""
    world = World(handlers=handlers)
    await world.east.consumer.consume(TRADES[0])
    world.bus.unavailable = {"west"}
    await take(world.east, *TRADES[1:])
    world.bus.unavailable = set()
    world.clock.seconds += LAG_SECONDS
    partition = world.journal.partitions["book-1"]
    for document in partition.values():
        document |= {
            name: drop_zeros(document[name]) for name in ("state", "captured") if name in document
        }

    await world.worker("west").recovery.sweep()

    assert world.outputs("west") == world.outputs("east")
    assert len(world.outputs("west")) == 3
    assert await world.pending() == []
    assert await world.journal.blocked("book-1") == []
