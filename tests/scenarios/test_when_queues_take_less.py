"""When queues take less than a document does: what is larger is refused before it has a number."""

import json
from base64 import b64decode
from dataclasses import replace

import pytest
from pydantic import BaseModel

from functions.triggers.receive import receive_message
from shared.domain.errors import InvalidMessage
from shared.domain.handler import (
    OUTPUTS,
    Context,
    Handled,
    HandlerInput,
    Handlers,
    Kind,
    NoState,
    Output,
)
from shared.domain.message import BODY_BYTES_MAX_BY_SKU
from shared.domain.producer import Draft, ProducerOptions
from shared.domain.reports import TOMBSTONE_TYPE
from shared.engine.consume.outcomes import Faulted
from shared.publishing.message import SessionMessage
from shared.publishing.options import IdempotentProducerOptions
from shared.publishing.producer import IdempotentProducer
from tests.deliveries import delivery
from tests.world import QUEUES, REGIONS, SKIP, Account, Amount, Boast, World, message, take

MOST = BODY_BYTES_MAX_BY_SKU["Standard"]
OPTIONS = ProducerOptions("bank")


@pytest.fixture
def world() -> World:
    """Two regions whose queues take what those of the sku Standard do, and nothing larger."""
    narrow = World(queues=replace(QUEUES, body_bytes_max=MOST))
    named = (QUEUES.here, QUEUES.outputs, QUEUES.errors)
    narrow.bus.largest = {(region, queue): MOST for region in REGIONS for queue in named}
    return narrow


@pytest.mark.parametrize("together", [1, 3], ids=["alone", "in a fold"])
async def test_when_an_output_is_too_large_its_message_is_a_fault_and_whole(
    world: World, together: int
) -> None:
    # A body of 2**18 letters and more: a queue of Premium would take it.
    huge = message(together - 1, 18, kind="account.boast")

    before = await take(world.east, *map(message, range(together - 1)))
    (outcome,) = await take(world.east, huge)

    assert isinstance(outcome, Faulted)
    assert outcome.entry.message == huge
    assert outcome.entry.reason == "the body has 262155 bytes, over 250000"
    assert world.outputs("east") == world.outputs("west") == []
    assert world.bus.messages("east", "errors") == world.bus.messages("west", "errors") != []
    assert len(before) == len(world.entries()) - 1
    await world.east.resolver.resolve("acc-7", SKIP)
    await take(world.east, message(together))
    assert world.amounts() == [*range(1, together), together + 1]


@pytest.mark.parametrize("kind", [Kind.EFFECTFUL, Kind.IDEMPOTENT])
async def test_when_a_handler_that_calls_the_outside_says_too_much_it_runs_once_and_is_a_fault(
    world: World, kind: Kind
) -> None:
    runs, own = [], Handlers()

    state = NoState if kind is Kind.IDEMPOTENT else Account

    @own.register("account.boast", state=state, body=Amount, kind=kind)
    async def boast(before: BaseModel, _: Amount, __: Context) -> Handled[BaseModel]:
        runs.append(1)
        return Handled(before, (Output("told", Boast(text="x" * MOST), to=OUTPUTS),))

    world.handlers = own

    await take(world.worker("east"), message(0, kind="account.boast"))

    assert runs == [1]
    assert world.outputs("east") == world.outputs("west") == []
    assert [one["reason"] for one in world.reports()] == ["the body has 250011 bytes, over 250000"]


async def test_when_the_fold_comes_to_an_output_that_is_too_large_it_ends_before(
    world: World,
) -> None:
    fold = world.east.consumer.folder.fold
    huge = message(1, 18, kind="account.boast")
    first = await world.east.consumer.dispatcher.prepare(None, message(0))

    folded = fold(first, [message(0), huge], HandlerInput())

    assert folded is not None
    assert [one.number.sequence for one in folded.identities] == [0]


async def test_when_a_draft_is_too_large_nothing_is_numbered_and_the_next_has_its_number(
    world: World,
) -> None:
    huge = Draft("huge", "account.add", b'"' + b"x" * MOST + b'"')
    fits = replace(huge, id="fits", body=b'"' + b"x" * (MOST - 2) + b'"')

    with pytest.raises(InvalidMessage, match="the body has 250002 bytes, over 250000"):
        await world.producer().publish("acc-7", [fits, huge], OPTIONS)

    assert await world.journal.ledger("acc-7", "bank") is None
    published = await world.producer().publish("acc-7", [fits], OPTIONS)
    assert [one.number and one.number.sequence for one in published.messages] == [0]
    assert [one.type for one in world.bus.messages("west", "in")] == ["account.add"]


async def test_when_a_message_is_too_large_no_batch_takes_it(world: World) -> None:
    client = IdempotentProducer(world.producer(), IdempotentProducerOptions("bank"))
    batch = await client.create_batch("acc-7")

    with pytest.raises(InvalidMessage, match="over 250000"):
        batch.try_add(SessionMessage("m-0", "account.add", b'"' + b"x" * MOST + b'"'))

    assert len(batch) == 0


async def test_when_a_numbered_message_is_too_large_nothing_is_sent(world: World) -> None:
    huge = replace(message(1), body=b'"' + b"x" * MOST + b'"')

    with pytest.raises(InvalidMessage, match="over 250000"):
        await world.producer().send([message(0), huge])

    assert world.bus.messages("east", "in") == world.bus.messages("west", "in") == []


@pytest.mark.parametrize("size", [MOST, 262_000])
async def test_when_a_delivery_that_fills_a_message_is_rejected_its_report_is_whole(
    world: World, size: int
) -> None:
    body = bytes(range(256)) * (size // 256)

    await receive_message(world.east, delivery(body, {"name": '"\\' * 10_000}))

    sent = world.bus.messages("west", "errors")
    reports = [json.loads(one.body) for one in sent]
    assert b"".join(b64decode(report["body"]) for report in reports) == body
    assert len(sent) == 3
    assert TOMBSTONE_TYPE not in {one.type for one in sent}
