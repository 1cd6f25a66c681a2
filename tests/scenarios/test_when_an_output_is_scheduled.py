"""A scheduled output: the session hears of it later, in each region, unless it was cancelled."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field

from shared.domain.handler import (
    AFTER_MAX,
    HERE,
    REMINDERS_MAX,
    Context,
    Handled,
    Handlers,
    Kind,
    Output,
)
from shared.domain.message import Message, Number
from shared.domain.wire import from_properties, to_properties
from shared.engine.consume.outcomes import AlreadyDone, Faulted, Processed, Refused
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from tests.world import DELAY_SECONDS, REGIONS, World, message

AFTER = timedelta(minutes=10)
NAME = "payment"


class Order(BaseModel):
    """What an order remembers."""

    heard: list[str] = Field(default_factory=list)


class Told(BaseModel):
    """What an order is told: what to do, and under which names."""

    do: str = "place"
    names: list[str] = Field(default_factory=lambda: [NAME])


def business(kind: Kind = Kind.PURE) -> Handlers:
    """Orders that wait for a payment, which is cancelled or runs out of time."""
    handlers = Handlers()

    @handlers.register("order.told", state=Order, body=Told)
    def hear(order: Order, body: Told, _: Context) -> Handled[Order]:
        heard = Order(heard=[*order.heard, body.do])
        if body.do == "place":
            late = [
                Output("order.late", Told(do=f"late {name}"), after=AFTER, reminder=name)
                for name in body.names
            ]
            return Handled(heard, tuple(late))
        return Handled(heard, cancels=tuple(body.names))

    @handlers.register("order.late", state=Order, body=Told, kind=kind)
    def give_up(order: Order, body: Told, _: Context) -> Order:
        return Order(heard=[*order.heard, body.do])

    return handlers


def told(world: World, sequence: int, do: str = "place", *names: str) -> Message:
    """The n-th message of an order, sent now."""
    body = Told(do=do, names=list(names) or [NAME]).model_dump_json().encode()
    sent_at = datetime.fromtimestamp(world.clock.today(), UTC).isoformat()
    return replace(message(sequence, kind="order.told"), body=body, time=sent_at)


def reminders(world: World, region: str = "east") -> list[Message]:
    """What a region's own queue was sent."""
    return world.bus.messages(region, "in")


def heard(world: World) -> list[str]:
    """What the order was told, in the order of the journal."""
    (*_, last) = (entry["state"]["heard"] for entry in world.entries() if "state" in entry)
    return list(last)


@pytest.fixture
def world() -> World:
    return World(handlers=business())


async def test_each_region_gets_its_copy_at_its_time_and_it_acts_once(world: World) -> None:
    began = world.clock.now()
    await world.east.consumer.consume(told(world, 0))

    visible = {
        region: [copy.visible_at - began for copy in world.bus.queues[region, "in"]]
        for region in REGIONS
    }
    assert visible["east"] == [pytest.approx(AFTER.total_seconds())]
    assert visible["west"] == [pytest.approx(AFTER.total_seconds() + DELAY_SECONDS)]
    (sent,) = reminders(world, "east")
    assert [sent] == reminders(world, "west")
    assert from_properties(to_properties(sent), sent.body) == sent
    world.clock.seconds += AFTER.total_seconds()
    for region in (*REGIONS, *REGIONS):
        for one in reminders(world, region):
            await world.worker(region).consumer.consume(one)
    assert heard(world) == ["place", "late payment"]
    assert "reminders" not in world.entries()[-1]


async def test_what_is_sent_meanwhile_does_not_wait_for_it(world: World) -> None:
    for n in range(3):
        assert isinstance(
            await world.east.consumer.consume(told(world, n, "place", str(n))), Processed
        )

    assert [one.number for one in reminders(world)] == [None] * 3


@pytest.mark.parametrize("kind", [Kind.PURE, Kind.DETERMINISTIC, Kind.EFFECTFUL])
async def test_when_a_later_entry_cancelled_it_no_handler_is_called(kind: Kind) -> None:
    world = World(handlers=business(kind))
    await world.east.consumer.consume(told(world, 0))
    await world.west.consumer.consume(told(world, 1, "pay"))
    world.clock.seconds += AFTER.total_seconds()

    # The east remembers a head from before.
    (outcome,) = [await world.east.consumer.consume(one) for one in reminders(world)]

    assert isinstance(outcome, Refused)
    assert outcome.entry.reason == (
        "the reminder 'payment' was cancelled, or set again, before its time came"
    )
    assert heard(world) == ["place", "pay"]
    for one in reminders(world, "west"):
        assert await world.west.consumer.consume(one) == AlreadyDone()


async def test_an_idempotent_handler_is_not_called_for_what_was_cancelled() -> None:
    handlers, called = business(), []
    del handlers.by_type["order.late"]

    @handlers.register("order.late", body=Told, kind=Kind.IDEMPOTENT)
    def ring(state: Any, body: Told, _: Context) -> Any:
        called.append(body.do)
        return state

    world = World(handlers=handlers)
    await world.east.consumer.consume(told(world, 0, "place", "first", "second"))
    await world.east.consumer.consume(told(world, 1, "pay", "first"))
    world.clock.seconds += AFTER.total_seconds()

    for one in reminders(world):
        await world.east.consumer.consume(one)

    assert called == ["late second"]


async def test_when_it_is_set_again_only_the_new_one_acts(world: World) -> None:
    await world.east.consumer.consume(told(world, 0))
    world.clock.seconds += 60
    await world.east.consumer.consume(told(world, 1))
    world.clock.seconds += AFTER.total_seconds()

    outcomes = [await world.east.consumer.consume(one) for one in reminders(world)]

    assert [type(outcome) for outcome in outcomes] == [Refused, Processed]
    assert heard(world) == ["place", "place", "late payment"]


async def test_when_it_waits_behind_a_fault_it_can_still_be_cancelled(world: World) -> None:
    await world.east.consumer.consume(told(world, 0))
    await world.east.consumer.consume(replace(told(world, 1), body=b"{}x"))
    world.clock.seconds += AFTER.total_seconds()
    for one in reminders(world):
        await world.east.consumer.consume(one)
    assert world.entries()[-1]["parked"] == {"$arrivals": 1}

    pay = told(world, 1, "pay").body
    request = ResolutionRequest(ResolutionAction.EDIT, "Ada", "it was paid", body=pay)
    await world.east.resolver.resolve("acc-7", request)

    assert heard(world) == ["place", "pay"]
    assert world.entries()[-1]["status"] == "skipped"
    assert "parked" not in world.entries()[-1]


async def test_when_the_session_is_erased_nothing_reminds_it(world: World) -> None:
    await world.east.consumer.consume(told(world, 0))
    request = ResolutionRequest(ResolutionAction.ERASE, "Ada", "she asked for it")
    await world.east.resolver.resolve("acc-7", request)

    (outcome,) = [await world.east.consumer.consume(one) for one in reminders(world)]

    assert isinstance(outcome, Refused)


async def test_when_its_cause_says_no_time_or_it_would_not_come_back_the_cause_faults(
    world: World,
) -> None:
    for wrong in (
        {"time": None},
        {"body": Told(names=[str(n) for n in range(REMINDERS_MAX + 1)]).model_dump_json().encode()},
    ):
        other = World(handlers=world.handlers)
        outcome = await other.east.consumer.consume(replace(told(other, 0), **wrong))
        assert isinstance(outcome, Faulted)
        assert not reminders(other)


@pytest.mark.parametrize(
    "wrong",
    [
        {"after": timedelta(0)},
        {"after": AFTER_MAX + timedelta(seconds=1)},
        {"reminder": NAME},
    ],
)
def test_what_does_not_go_together_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"scheduled up to|needs a time"):
        Output("order.late", Told(), **wrong)


@pytest.mark.parametrize(("session", "to"), [("another", HERE), (None, "audit")])
async def test_a_reminder_of_another_session_or_queue_is_a_fault(
    session: str | None, to: str
) -> None:
    handlers = business()
    del handlers.by_type["order.told"]

    @handlers.register("order.told", state=Order, body=Told)
    def remind(order: Order, body: Told, _: Context) -> Handled[Order]:
        late = Output("order.late", body, session, to, after=AFTER, reminder=NAME)
        return Handled(order, (late,))

    world = World(handlers=handlers)

    outcome = await world.east.consumer.consume(told(world, 0))

    assert isinstance(outcome, Faulted)
    assert outcome.entry.reason is not None
    assert "is for another session or queue" in outcome.entry.reason


async def test_a_stranger_who_names_a_reminder_calls_no_handler(world: World) -> None:
    await world.east.consumer.consume(told(world, 0))
    forged = replace(told(world, 1), type="order.late", reminder=NAME)

    for one in (forged, replace(forged, number=None), replace(forged, number=Number("x", 0, 0))):
        assert isinstance(await world.east.consumer.consume(one), Refused)

    assert heard(world) == ["place"]
