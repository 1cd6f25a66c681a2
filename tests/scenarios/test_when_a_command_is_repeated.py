"""A coordinator applies a command again: it acts once, and the recorded answer comes back."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel

from shared.domain.errors import InvalidMessage, LockstepError, Unavailable
from shared.domain.handler import Context, Handled, Handlers, Kind, NoState, OnFault
from shared.domain.message import Message, Number
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.engine.sagas.steps import Answered, Failed, read_reply
from shared.testkit.injected_faults import CallFault
from shared.testkit.memory_store import EPOCH_SECONDS
from tests import saga_stage
from tests.world import REGIONS

handlers = Handlers()


class Stock(BaseModel):
    """What is left."""

    left: int = 10


class Take(BaseModel):
    """How many are wanted."""

    wanted: int


class Taken(BaseModel):
    """How many were given, and how many are left."""

    given: int
    left: int


@handlers.register("stock.take", state=Stock, body=Take)
def take(stock: Stock, body: Take, _: Context) -> Handled[Stock]:
    """Give what is wanted, or nothing."""
    given = body.wanted if body.wanted <= stock.left else 0
    after = Stock(left=stock.left - given)
    return Handled(after, answer=Taken(given=given, left=after.left))


@handlers.register("stock.drop", state=Stock, body=Take, on_fault=OnFault.SKIP)
def drop(_: Stock, __: Take, ___: Context) -> Stock:
    """Fail, and let the session go on."""
    raise ArithmeticError("dropped")


told: list[Take] = []


@handlers.register("stock.tell", body=Take, kind=Kind.IDEMPOTENT)
def tell(state: NoState, body: Take, _: Context) -> NoState:
    """Tell somebody; nothing of it is kept."""
    told.append(body)
    return state


@dataclass
class Supplier:
    """Somebody outside, who takes time."""

    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    delivers: asyncio.Event = field(default_factory=asyncio.Event)


@handlers.register("stock.order", state=Stock, body=Take, kind=Kind.EFFECTFUL)
async def order(stock: Stock, body: Take, context: Context) -> Handled[Stock]:
    """Have the supplier send some more."""
    supplier.is_asked.set()
    await supplier.delivers.wait()
    after = Stock(left=stock.left + body.wanted)
    return Handled(after, answer=Taken(given=-body.wanted, left=after.left))


supplier = Supplier()


@handlers.register("stock.burn", state=Stock, body=Take)
def burn(stock: Stock, body: Take, _: Context) -> Handled[Stock]:
    """Fail until a person corrects the message."""
    if body.wanted > 0:
        raise ArithmeticError("burnt")
    return Handled(stock, answer=Taken(given=0, left=stock.left))


class Shop(saga_stage.Stage):
    """Workers of both regions over one journal."""

    async def apply(self, message: Message, region: str = "east") -> Answered | Failed:
        """Apply a command in a new process."""
        reply = await self.worker(region).commands.apply(message)
        assert isinstance(reply, Answered | Failed)
        return reply

    def left(self) -> int:
        """The stock after everything."""
        return int(self.state("p-1").get("left", 10))


@pytest.fixture
def shop() -> Shop:
    return Shop(handlers)


def command(wanted: int, name: str = "c-1", kind: str = "stock.take") -> Message:
    """A command to the stock of one product."""
    time = datetime.fromtimestamp(EPOCH_SECONDS, UTC).isoformat()
    return Message(name, "p-1", kind, f'{{"wanted":{wanted}}}'.encode(), time=time)


async def test_it_acts_once_and_answers_the_same_in_every_process_and_region(shop: Shop) -> None:
    first = await shop.apply(command(4))
    await shop.apply(command(3, "c-2"))

    again = [await shop.apply(command(4), region) for region in REGIONS]

    assert first == Answered({"given": 4, "left": 6})
    assert again == [first, first]
    assert shop.left() == 3


async def test_a_handler_that_leaves_no_record_is_not_run_and_fails_by_name(shop: Shop) -> None:
    reply = await shop.apply(command(1, kind="stock.tell"))

    assert isinstance(reply, Failed)
    assert "'stock.tell'" in reply.reason
    assert "idempotent" in reply.reason
    assert told == []


async def test_other_content_under_its_id_fails_by_name(shop: Shop) -> None:
    _, reply = await shop.apply(command(4)), await shop.apply(command(5))

    assert isinstance(reply, Failed)
    assert "other content" in reply.reason
    assert shop.left() == 6


async def test_a_fault_that_is_skipped_is_the_answer(shop: Shop) -> None:
    for _ in range(2):
        assert await shop.apply(command(1, kind="stock.drop")) == Failed("ArithmeticError: dropped")


async def test_a_fault_that_halts_is_no_answer_until_a_person_decides(shop: Shop) -> None:
    burnt, waiting = command(1, kind="stock.burn"), (command(4, "c-2"), command(3, "c-3"))
    for halted in (burnt, burnt, *waiting):
        with pytest.raises(Unavailable):
            await shop.apply(halted)

    edit = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", b'{"wanted":0}')
    await shop.worker().resolver.resolve("p-1", edit)

    # Those that waited together have an answer each.
    assert await shop.apply(burnt) == Answered({"given": 0, "left": 10})
    assert await shop.apply(waiting[0]) == Answered({"given": 4, "left": 6})
    assert await shop.apply(waiting[1]) == Answered({"given": 3, "left": 3})


async def test_one_that_waits_beside_a_claim_is_not_given_the_answer_of_the_claim(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.scenarios.test_when_a_command_is_repeated.supplier", Supplier())
    owner = shop.worker()
    ordering = asyncio.create_task(owner.commands.apply(command(5, kind="stock.order")))
    await supplier.is_asked.wait()
    with pytest.raises(Unavailable):
        await shop.worker("west").commands.apply(command(2, "c-2"))

    # The claim is ended, and its owner dies before it comes to what waits beside it.
    shop.journal.fault_plan.plan("append", CallFault.REFUSED)
    supplier.delivers.set()
    with suppress(LockstepError):
        assert await ordering == Answered({"given": -5, "left": 15})

    assert await read_reply(shop.journal, command(2, "c-2")) is None
    late = await shop.worker().commands.apply(command(2, "c-2"))
    assert late == Answered({"given": 2, "left": 13})


async def test_a_numbered_message_is_no_command(shop: Shop) -> None:
    numbered = replace(command(1), number=Number("bank", 0, 0))

    with pytest.raises(InvalidMessage, match="no producer number"):
        await shop.apply(numbered)
