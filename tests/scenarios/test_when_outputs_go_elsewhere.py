"""Outputs go to other queues, come back to the app, or come later."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field

from shared.domain import wire
from shared.domain.handler import (
    AFTER_MAX,
    HERE,
    OUTPUTS,
    REMINDERS_MAX,
    Context,
    Handled,
    Handlers,
    Kind,
    NoState,
    Output,
)
from shared.domain.message import Message, Number
from shared.domain.outbox import AppQueues
from shared.domain.reports import FAULT_TYPE
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.wire import from_properties, to_properties
from shared.engine.consume.outcomes import AlreadyDone, Faulted, Outcome, Parked, Processed, Refused
from shared.testkit.injected_faults import CallFault
from shared.testkit.regions import consume_together
from tests.business import LEASE_OVER, dies
from tests.world import (
    DELAY_SECONDS,
    LAG_SECONDS,
    POLICY,
    REGIONS,
    Account,
    Amount,
    World,
    add,
    handlers,
    message,
    take,
)

# When a handler answers or publishes, outputs go to a queue, to a topic, or to whoever asked.

TIME = "2026-05-28T20:26:40+00:00"


class Quote(BaseModel):
    """An answer."""

    total: int


ANSWERING = replace(POLICY, reply_queues=frozenset({"answers"}))


def answering(kind: Kind) -> Handlers:
    """Handlers of a kind that send, publish and answer."""
    whole = Handlers.joined([handlers])

    @whole.register("account.ask", state=Account, body=Amount, kind=kind)
    def ask(account: Account, body: Amount, context: Context) -> Handled[Account]:
        booked = Account(amounts=[*account.amounts, body.amount])
        quote = Quote(total=sum(booked.amounts))
        outputs = (
            Output("account.total", quote, to="totals"),
            context.reply("account.quote", quote),
            Output("account.booked", quote),
            Output("account.total", quote, session="all", to="totals"),
        )
        return Handled(booked, outputs)

    return whole


def question(sequence: int) -> Message:
    """A message whose sender wants an answer."""
    asked = message(sequence, kind="account.ask")
    return replace(asked, time=TIME, reply_to="answers", reply_session="desk-3")


def queues(world: World, region: str) -> dict[str, list[Message]]:
    """What a region's queues and topics were sent."""
    return {name: world.bus.messages(region, name) for name in ("totals", "answers", "out")}


async def answered(kind: Kind) -> World:
    """Two questions, answered."""
    world = World(handlers=answering(kind), policy=ANSWERING)
    await take(world.east, question(0), question(1))
    return world


KINDS = [Kind.PURE, Kind.DETERMINISTIC, Kind.EFFECTFUL]


@pytest.mark.parametrize("kind", KINDS)
async def test_each_goes_where_it_is_sent_in_both_regions(kind: Kind) -> None:
    world = await answered(kind)

    sent = queues(world, "east")
    assert sent == queues(world, "west")
    assert [m.type for m in sent["totals"]] == ["account.total"] * 4
    assert [m.session for m in sent["totals"]] == ["acc-7", "all", "acc-7", "all"]
    assert [json.loads(m.body) for m in sent["out"]] == [{"total": 1}, {"total": 3}]
    # What is published is numbered for each destination and session.
    numbers = [m.number for m in sent["totals"] if m.number]
    assert [(n.group, n.sequence) for n in numbers] == [
        ("session:acc-7", sequence) for sequence in (0, 0, 1, 1)
    ]
    assert [m.number.sequence for m in sent["out"] if m.number] == [0, 1]


async def test_an_answer_says_what_it_answers_and_to_whom() -> None:
    first, second = queues(await answered(Kind.PURE), "west")["answers"]

    assert (first.session, first.type, first.body) == ("desk-3", "account.quote", b'{"total":1}')
    assert (first.correlation, second.correlation) == (question(0).id, question(1).id)
    assert (first.number, first.time) == (None, TIME)
    assert wire.from_properties(wire.to_properties(first), first.body) == first


async def test_an_answer_goes_to_the_askers_session_where_it_names_no_other() -> None:
    world = World(handlers=answering(Kind.PURE), policy=ANSWERING)

    await world.east.consumer.consume(replace(question(0), reply_session=None))

    (answer,) = queues(world, "east")["answers"]
    assert answer.session == "acc-7"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["errors", "in", "$errors", "$here", "payroll", None])
async def test_an_answer_to_nowhere_or_where_the_settings_do_not_allow_is_a_fault(
    place: str | None, kind: Kind
) -> None:
    world = World(handlers=answering(kind), policy=ANSWERING)

    outcome = await world.east.consumer.consume(replace(question(0), reply_to=place))

    assert isinstance(outcome, Faulted)
    why = f"no answer goes to {place!r}: LOCKSTEP_REPLY_QUEUES" if place else "asks for no answer"
    assert why in str(outcome.entry.reason)
    assert world.amounts() == []
    types = {m.type for copies in world.bus.queues.values() for m in (c.message for c in copies)}
    assert types == {FAULT_TYPE}


async def test_a_sender_may_name_any_queue_to_a_handler_that_does_not_answer() -> None:
    world = World()
    bill = replace(message(0, kind="account.bill"), reply_to="payroll")

    assert isinstance(await world.east.consumer.consume(bill), Processed)

    assert world.bus.messages("east", "payroll") == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("call", "how"),
    [
        ("append", CallFault.KILLED_AFTER),
        ("send.east", CallFault.KILLED_BEFORE),
        ("send.east", CallFault.KILLED_AFTER),
        ("send.west", CallFault.KILLED_AFTER),
        ("leave_pending", CallFault.KILLED_BEFORE),
    ],
)
async def test_a_worker_that_dies_costs_no_answer_and_changes_none(
    call: str, how: CallFault, kind: Kind
) -> None:
    quiet = await answered(kind)
    world = World(handlers=answering(kind), policy=ANSWERING)

    await dies(world, question(0), call, how)
    world.clock.seconds += LEASE_OVER
    await world.east.consumer.consume(question(0))
    await world.west.consumer.consume(question(1))

    assert world.amounts() == [1, 2]
    for region in REGIONS:
        for name, expected in queues(quiet, region).items():
            assert list(dict.fromkeys(queues(world, region)[name])) == expected, (region, name)
    assert await world.worker("west").consumer.consume(question(0)) == AlreadyDone()


# When an output comes back, because its type has a handler here, it has numbers of its own.

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


# Messages that are told on.
THREE = [message(sequence, kind="tell") for sequence in range(3)]


async def bring_back(world: World, queue: str = "in") -> list[Outcome]:
    """Deliver everything that the queues of both regions were sent."""
    east = await take(world.east, *world.bus.messages("east", queue))
    return [*east, *await take(world.west, *world.bus.messages("west", queue))]


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
    await take(world.east, *THREE)

    sent = {at: [m.body for m in world.bus.messages(*at)] for at in world.bus.queues}
    assert sent["east", queue] == sent["west", queue] == [one.body for one in THREE]
    assert {at[1] for at, bodies in sent.items() if bodies} == {queue}


@pytest.mark.parametrize("kind", [Kind.PURE, Kind.DETERMINISTIC, Kind.EFFECTFUL])
async def test_what_comes_back_is_processed_once_and_in_order(kind: Kind) -> None:
    world = World(handlers=telling(kind))
    await take(world.east, *THREE)

    outcomes = await bring_back(world)

    assert sum(isinstance(one, Processed) for one in outcomes) == 3
    assert world.amounts(TARGET) == [1, 2, 3]
    assert await world.pending() == []


async def test_a_batch_sends_what_its_messages_would_send_one_by_one() -> None:
    world = World(handlers=telling(Kind.PURE))

    await consume_together(world.east, THREE)

    assert len(world.entries()) == 1
    await bring_back(world)
    assert world.amounts(TARGET) == [1, 2, 3]


async def test_a_session_that_sent_them_elsewhere_before_begins_a_number_space_here() -> None:
    world = World(handlers=telling(Kind.PURE, counts=False))
    await take(world.east, *THREE)
    world.handlers = telling(Kind.PURE)
    world.east = world.worker("east")

    await world.east.consumer.consume(message(3, kind="tell"))

    (back,) = world.bus.messages("east", "in")
    assert back.number == Number("here:acc-7", 0, 0)
    # With the number 3 it would be parked for ever: the first three never come here.
    assert isinstance(await world.east.consumer.consume(back), Processed)
    assert world.entries()[-1]["produced"] == {"": {TARGET: 3}, "$here": {TARGET: 1}}


async def test_outputs_of_one_session_to_another_by_two_queues_of_one_app_do_not_collide() -> None:
    # The output queue is read by the same app, so both ways end in one journal.
    world = World(handlers=telling(Kind.PURE, OUTPUTS))
    delivery = replace(world.delivery(), queues=AppQueues(here="in", outputs="in", errors="errors"))
    world.delivery = lambda: delivery  # type: ignore[method-assign]
    world.east = world.worker("east")
    await world.east.consumer.consume(THREE[0])
    world.handlers = telling(Kind.PURE)
    world.east, world.west = world.worker("east"), world.worker("west")
    await world.east.consumer.consume(THREE[1])

    outcomes = await bring_back(world)

    assert Parked() not in outcomes
    assert sum(isinstance(one, Processed) for one in outcomes) == 2
    assert world.amounts(TARGET) == [1, 2]


@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False)])
async def test_outputs_made_again_go_where_they_first_went(before: bool, after: bool) -> None:
    world = World(handlers=telling(Kind.DETERMINISTIC, counts=before))
    await world.east.consumer.consume(THREE[0])
    with world.without("west"):
        await world.east.consumer.consume(THREE[1])
    world.clock.seconds += LAG_SECONDS

    world.handlers = telling(Kind.DETERMINISTIC, counts=after)
    await world.worker("west").recovery.sweep()

    assert await world.pending() == []
    queue = "in" if before else "out"
    assert world.bus.messages("west", queue) == world.bus.messages("east", queue)
    assert len(world.bus.messages("west", queue)) == 2


async def test_what_two_sessions_send_a_third_is_told_apart() -> None:
    world = World(handlers=telling(Kind.PURE))
    await take(world.east, THREE[0], replace(THREE[0], session="acc-8", body=b'{"amount":9}'))

    await bring_back(world)

    assert world.amounts(TARGET) == [1, 9]


# When an output is scheduled, the session hears of it later, unless it was cancelled.

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


def instruct(world: World, sequence: int, do: str = "place", *names: str) -> Message:
    """The n-th message of an order, sent now."""
    body = Told(do=do, names=list(names) or [NAME]).model_dump_json().encode()
    sent_at = datetime.fromtimestamp(world.clock.today(), UTC).isoformat()
    return replace(message(sequence, kind="order.told"), body=body, time=sent_at)


def reminders(world: World, region: str = "east") -> list[Message]:
    """What a region's own queue was sent, when its time has come."""
    world.clock.seconds += AFTER.total_seconds()
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
    await world.east.consumer.consume(instruct(world, 0))

    (east,), (west,) = (world.bus.queues[region, "in"] for region in REGIONS)
    assert east.visible_at - began == pytest.approx(AFTER.total_seconds())
    assert west.visible_at - began == pytest.approx(AFTER.total_seconds() + DELAY_SECONDS)
    assert east.message == west.message
    assert from_properties(to_properties(east.message), east.message.body) == east.message
    for region in (*REGIONS, *REGIONS):
        await take(world.worker(region), *reminders(world, region))
    assert heard(world) == ["place", "late payment"]
    assert "reminders" not in world.entries()[-1]


@pytest.mark.parametrize("name", ["", None])
async def test_when_it_has_no_name_it_comes_later_all_the_same(name: Any) -> None:
    handlers = Handlers()

    @handlers.register("order.told", state=Order, body=Told)
    def hear(order: Order, _: Told, __: Context) -> Handled[Order]:
        return Handled(order, (Output("order.late", Told(), to=HERE, after=AFTER, reminder=name),))

    world = World(handlers=handlers)
    began = world.clock.now()

    await world.east.consumer.consume(instruct(world, 0))

    (queued,) = world.bus.queues["east", "in"]
    assert queued.visible_at - began == pytest.approx(AFTER.total_seconds())


async def test_what_is_sent_meanwhile_does_not_wait_for_it(world: World) -> None:
    outcomes = await take(world.east, *(instruct(world, n, "place", str(n)) for n in range(3)))

    assert {type(outcome) for outcome in outcomes} == {Processed}
    assert [one.number for one in reminders(world)] == [None] * 3


@pytest.mark.parametrize("kind", [Kind.PURE, Kind.DETERMINISTIC, Kind.EFFECTFUL])
async def test_when_a_later_entry_cancelled_it_no_handler_is_called(kind: Kind) -> None:
    world = World(handlers=business(kind))
    await world.east.consumer.consume(instruct(world, 0))
    await world.west.consumer.consume(instruct(world, 1, "pay"))

    # The east remembers a head from before.
    (outcome,) = await take(world.east, *reminders(world))

    assert isinstance(outcome, Refused)
    assert outcome.entry.reason == (
        "the reminder 'payment' was cancelled, or set again, before its time came"
    )
    assert heard(world) == ["place", "pay"]
    assert await take(world.west, *reminders(world, "west")) == [AlreadyDone()]


async def test_an_idempotent_handler_is_not_called_for_what_was_cancelled() -> None:
    handlers, called = business(), []
    del handlers.by_type["order.late"]

    @handlers.register("order.late", body=Told, kind=Kind.IDEMPOTENT)
    def ring(state: Any, body: Told, _: Context) -> Any:
        called.append(body.do)
        return state

    world = World(handlers=handlers)
    await world.east.consumer.consume(instruct(world, 0, "place", "first", "second"))
    await world.east.consumer.consume(instruct(world, 1, "pay", "first"))

    await take(world.east, *reminders(world))

    assert called == ["late second"]


async def test_when_it_is_set_again_only_the_new_one_acts(world: World) -> None:
    await world.east.consumer.consume(instruct(world, 0))
    world.clock.seconds += 60
    await world.east.consumer.consume(instruct(world, 1))

    outcomes = await take(world.east, *reminders(world))

    assert [type(outcome) for outcome in outcomes] == [Refused, Processed]
    assert heard(world) == ["place", "place", "late payment"]


async def test_when_it_waits_behind_a_fault_it_can_still_be_cancelled(world: World) -> None:
    await take(world.east, instruct(world, 0), replace(instruct(world, 1), body=b"{}x"))
    await take(world.east, *reminders(world))
    assert world.entries()[-1]["parked"] == {"$arrivals": 1}

    pay = instruct(world, 1, "pay").body
    request = ResolutionRequest(ResolutionAction.EDIT, "Ada", "it was paid", body=pay)
    await world.east.resolver.resolve("acc-7", request)

    assert heard(world) == ["place", "pay"]
    assert world.entries()[-1]["status"] == "skipped"
    assert "parked" not in world.entries()[-1]


async def test_when_the_session_is_erased_nothing_reminds_it(world: World) -> None:
    await world.east.consumer.consume(instruct(world, 0))
    request = ResolutionRequest(ResolutionAction.ERASE, "Ada", "she asked for it")
    await world.east.resolver.resolve("acc-7", request)

    (outcome,) = await take(world.east, *reminders(world))

    assert isinstance(outcome, Refused)


MANY_NAMES = Told(names=[str(n) for n in range(REMINDERS_MAX + 1)]).model_dump_json().encode()


@pytest.mark.parametrize("wrong", [{"time": None}, {"body": MANY_NAMES}], ids=["no time", "many"])
async def test_where_it_cannot_come_its_cause_is_a_fault(
    world: World, wrong: dict[str, Any]
) -> None:
    outcome = await world.east.consumer.consume(replace(instruct(world, 0), **wrong))

    assert isinstance(outcome, Faulted)
    assert not reminders(world)


@pytest.mark.parametrize(
    "wrong",
    [{"after": timedelta(0)}, {"after": AFTER_MAX + timedelta(seconds=1)}, {"reminder": NAME}],
)
def test_what_does_not_go_together_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"scheduled up to|needs a time"):
        Output("order.late", Told(), **wrong)


@pytest.mark.parametrize(("session", "to"), [("another", HERE), (None, "audit")])
async def test_a_reminder_of_another_session_is_a_fault(session: str | None, to: str) -> None:
    handlers = business()
    del handlers.by_type["order.told"]

    @handlers.register("order.told", state=Order, body=Told)
    def remind(order: Order, body: Told, _: Context) -> Handled[Order]:
        late = Output("order.late", body, session, to, after=AFTER, reminder=NAME)
        return Handled(order, (late,))

    world = World(handlers=handlers)

    outcome = await world.east.consumer.consume(instruct(world, 0))

    assert isinstance(outcome, Faulted)
    assert "is for another session or queue" in (outcome.entry.reason or "")


async def test_a_stranger_who_names_a_reminder_calls_no_handler(world: World) -> None:
    await world.east.consumer.consume(instruct(world, 0))
    forged = replace(instruct(world, 1), type="order.late", reminder=NAME)
    others = (replace(forged, number=None), replace(forged, number=Number("x", 0, 0)))

    assert {type(one) for one in await take(world.east, forged, *others)} == {Refused}

    assert heard(world) == ["place"]
