"""An output whose type has a handler here comes back to the app, under numbers of its own."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from shared.domain.handler import HERE, OUTPUTS, Context, Handled, Handlers, Kind, NoState, Output
from shared.domain.message import Number
from shared.domain.outbox import AppQueues
from shared.engine.consume.outcomes import Parked, Processed
from shared.engine.dispatch.deliver import Delivery
from shared.testkit.regions import consume_together
from tests.world import DELAY_SECONDS, LAG_SECONDS, REGIONS, Account, Amount, World, message

TARGET = "ledger"


def telling(kind: Kind, to: str | None = None, *, counts: bool = True) -> Handlers:
    """An account that tells a ledger of each amount; `counts` says that the ledger is here, too."""
    handlers = Handlers()

    def tell(_: Any, body: Amount, __: Context) -> Handled[Any]:
        state = Account(amounts=[body.amount]) if kind is not Kind.IDEMPOTENT else _
        return Handled(state, (Output("ledger.add", body, TARGET, to),))

    state: type[BaseModel] = NoState if kind is Kind.IDEMPOTENT else Account
    handlers.register("tell", state=state, body=Amount, kind=kind)(tell)
    if counts:
        handlers.register("ledger.add", state=Account, body=Amount)(add)
    return handlers


def add(account: Account, body: Amount, _: Context) -> Account:
    """Book an amount."""
    return Account(amounts=[*account.amounts, body.amount])


def told(sequence: int) -> Any:
    """The n-th message that is told on."""
    return message(sequence, kind="tell")


async def bring_back(world: World, queue: str = "in") -> list[object]:
    """Deliver everything that the queues of both regions were sent."""
    east = [await world.east.consumer.consume(m) for m in world.bus.messages("east", queue)]
    west = [await world.west.consumer.consume(m) for m in world.bus.messages("west", queue)]
    return [*east, *west]


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(
    ("to", "counts", "queue"),
    [
        (None, True, "in"),
        (None, False, "out"),
        (HERE, False, "in"),
        (OUTPUTS, True, "out"),
        ("audit", True, "audit"),
    ],
)
async def test_an_output_goes_where_its_type_has_a_handler_or_where_it_says(
    kind: Kind, to: str | None, counts: bool, queue: str
) -> None:
    world = World(handlers=telling(kind, to, counts=counts))
    numbered = [told(n) for n in range(3)]

    for one in numbered:
        await world.east.consumer.consume(one)

    for region in REGIONS:
        sent = {at: [m.body for m in world.bus.messages(at[0], at[1])] for at in world.bus.queues}
        assert sent[region, queue] == [one.body for one in numbered]
    assert {at[1] for at, bodies in sent.items() if bodies} == {queue}


@pytest.mark.parametrize("kind", [Kind.PURE, Kind.DETERMINISTIC, Kind.EFFECTFUL])
async def test_what_comes_back_is_processed_once_and_in_order(kind: Kind) -> None:
    world = World(handlers=telling(kind))
    for n in range(3):
        await world.east.consumer.consume(told(n))

    outcomes = await bring_back(world)

    assert sum(isinstance(one, Processed) for one in outcomes) == 3
    assert world.amounts(TARGET) == [1, 2, 3]
    assert await world.pending() == []


async def test_a_batch_sends_what_its_messages_would_send_one_by_one() -> None:
    world = World(handlers=telling(Kind.PURE))

    await consume_together(world.east, [told(n) for n in range(3)])

    assert len(world.entries()) == 1
    await bring_back(world)
    assert world.amounts(TARGET) == [1, 2, 3]


async def test_a_session_that_sent_them_elsewhere_before_begins_a_number_space_here() -> None:
    world = World(handlers=telling(Kind.PURE, counts=False))
    for n in range(3):
        await world.east.consumer.consume(told(n))
    world.handlers = telling(Kind.PURE)
    world.east = world.worker("east")

    await world.east.consumer.consume(told(3))

    (back,) = world.bus.messages("east", "in")
    assert back.number == Number("here:acc-7", 0, 0)
    # With the number 3 it would be parked for ever: the first three never come here.
    assert isinstance(await world.east.consumer.consume(back), Processed)
    assert world.entries()[-1]["produced"] == {"": {TARGET: 3}, "$here": {TARGET: 1}}


async def test_outputs_of_one_session_to_another_by_two_queues_of_one_app_do_not_collide() -> None:
    # The output queue is read by the same app, so both ways end in one journal.
    world = World(handlers=telling(Kind.PURE, OUTPUTS))
    queues = AppQueues(here="in", outputs="in", errors="errors")

    def delivery() -> Delivery:
        return Delivery(world.bus, world.clock, REGIONS, DELAY_SECONDS, queues)

    world.delivery = delivery  # type: ignore[method-assign]
    world.east = world.worker("east")
    await world.east.consumer.consume(told(0))
    world.handlers = telling(Kind.PURE)
    world.east, world.west = world.worker("east"), world.worker("west")
    await world.east.consumer.consume(told(1))

    outcomes = await bring_back(world)

    assert Parked() not in outcomes
    assert sum(isinstance(one, Processed) for one in outcomes) == 2
    assert world.amounts(TARGET) == [1, 2]


@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False)])
async def test_outputs_made_again_go_where_they_first_went(before: bool, after: bool) -> None:
    world = World(handlers=telling(Kind.DETERMINISTIC, counts=before))
    await world.east.consumer.consume(told(0))
    world.bus.unavailable = {"west"}
    await world.east.consumer.consume(told(1))
    world.bus.unavailable = set()
    world.clock.seconds += LAG_SECONDS

    world.handlers = telling(Kind.DETERMINISTIC, counts=after)
    await world.worker("west").recovery.sweep()

    assert await world.pending() == []
    queue = "in" if before else "out"
    assert world.bus.messages("west", queue) == world.bus.messages("east", queue)
    assert len(world.bus.messages("west", queue)) == 2


async def test_what_two_sessions_send_a_third_is_told_apart() -> None:
    world = World(handlers=telling(Kind.PURE))
    await world.east.consumer.consume(told(0))
    await world.east.consumer.consume(replace(told(0), session="acc-8", body=b'{"amount":9}'))

    await bring_back(world)

    assert world.amounts(TARGET) == [1, 9]
