"""Outputs go to the app's own queue, to a topic, or back to whoever asked."""

import json
from dataclasses import replace

import pytest
from pydantic import BaseModel

from shared.domain import wire
from shared.domain.handler import Context, Handled, Handlers, Kind, Output
from shared.domain.message import Message
from shared.domain.reports import FAULT_TYPE
from shared.engine.consume.outcomes import AlreadyDone, Faulted, Processed
from shared.testkit.injected_faults import CallFault
from tests.business import LEASE_OVER, dies
from tests.world import POLICY, REGIONS, Account, Amount, World, handlers, message

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


async def healthy(kind: Kind) -> World:
    """Two questions, answered."""
    world = World(handlers=answering(kind), policy=ANSWERING)
    for sequence in (0, 1):
        await world.east.consumer.consume(question(sequence))
    return world


KINDS = [Kind.PURE, Kind.DETERMINISTIC, Kind.EFFECTFUL]


@pytest.mark.parametrize("kind", KINDS)
async def test_each_goes_where_it_is_sent_in_both_regions(kind: Kind) -> None:
    world = await healthy(kind)

    for region in REGIONS:
        sent = queues(world, region)
        assert [m.type for m in sent["totals"]] == ["account.total"] * 4
        assert [m.session for m in sent["totals"]] == ["acc-7", "all", "acc-7", "all"]
        assert [json.loads(m.body) for m in sent["out"]] == [{"total": 1}, {"total": 3}]
    assert queues(world, "east") == queues(world, "west")


async def test_an_answer_says_what_it_answers_and_to_whom() -> None:
    world = await healthy(Kind.PURE)

    first, second = queues(world, "west")["answers"]

    assert (first.session, first.type, first.body) == ("desk-3", "account.quote", b'{"total":1}')
    assert (first.correlation, second.correlation) == (question(0).id, question(1).id)
    assert (first.number, first.time) == (None, TIME)
    assert wire.from_properties(wire.to_properties(first), first.body) == first


async def test_an_answer_goes_to_the_askers_session_where_it_names_no_other() -> None:
    world = World(handlers=answering(Kind.PURE), policy=ANSWERING)

    await world.east.consumer.consume(replace(question(0), reply_session=None))

    (answer,) = queues(world, "east")["answers"]
    assert answer.session == "acc-7"


async def test_what_is_published_is_numbered_for_each_destination_and_session() -> None:
    world = await healthy(Kind.PURE)

    numbers = [(m.session, m.number) for m in queues(world, "east")["totals"]]
    own = [m.number for m in queues(world, "east")["out"]]

    assert [(s, n.group, n.sequence) for s, n in numbers if n] == [
        ("acc-7", "session:acc-7", 0),
        ("all", "session:acc-7", 0),
        ("acc-7", "session:acc-7", 1),
        ("all", "session:acc-7", 1),
    ]
    assert [n.sequence for n in own if n] == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["errors", "in", "$errors", "$here", "payroll"])
async def test_an_answer_to_a_queue_that_the_settings_do_not_allow_is_a_fault(
    place: str, kind: Kind
) -> None:
    world = World(handlers=answering(kind), policy=ANSWERING)

    outcome = await world.east.consumer.consume(replace(question(0), reply_to=place))

    assert isinstance(outcome, Faulted)
    assert f"no answer goes to {place!r}: LOCKSTEP_REPLY_QUEUES" in str(outcome.entry.reason)
    assert world.amounts() == []
    types = {m.type for copies in world.bus.queues.values() for m in (c.message for c in copies)}
    assert types == {FAULT_TYPE}


async def test_a_sender_may_name_any_queue_to_a_handler_that_does_not_answer() -> None:
    world = World()
    bill = replace(message(0, kind="account.bill"), reply_to="payroll")

    assert isinstance(await world.east.consumer.consume(bill), Processed)

    assert world.bus.messages("east", "payroll") == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_question_without_a_place_for_answers_is_a_fault(kind: Kind) -> None:
    world = World(handlers=answering(kind), policy=ANSWERING)

    outcome = await world.east.consumer.consume(replace(question(0), reply_to=None))

    assert isinstance(outcome, Faulted)
    assert "asks for no answer" in str(outcome.entry.reason)
    assert queues(world, "east") == {"totals": [], "answers": [], "out": []}


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
    quiet = await healthy(kind)
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
