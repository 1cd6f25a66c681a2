"""Somebody says what is not theirs to say: it is refused by name, and harms no session."""

import json
import logging
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace

import pytest

from functions.handlers import orders, shooting_range, tracking
from functions.http.ingest import accept
from functions.triggers.receive import receive_message
from shared.domain.errors import CallerError, InvalidOptions, NotAllowed, ProducerDisconnected
from shared.domain.handler import Context, Handlers
from shared.domain.message import OWNER_LEVEL_MAX, Message, Number
from shared.domain.producer import HTTP_GROUP, Draft, ProducerOptions
from shared.domain.reports import TOMBSTONE_TYPE
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.saga.plan import Command, Direction, Plan, SagaState, Stage, Step, step_id
from shared.domain.saga.record import SagaKinds
from shared.domain.standstill import StandstillKind
from shared.publishing.message import SessionMessage
from shared.publishing.options import IdempotentProducerOptions
from shared.publishing.producer import IdempotentProducer
from tests.deliveries import delivery_of
from tests.saga_stage import Stage as SagaStage
from tests.saga_stage import order, stocked
from tests.unit.functions.test_ingest import post
from tests.world import World, message, require

BUSINESS = Handlers.joined([orders.handlers, tracking.handlers, shooting_range.handlers])
AT = "2026-05-28T20:26:40Z"
DEPARTED = json.dumps(
    {"status": "departed", "flight": "1", "origin": "A", "destination": "B", "at": AT}
).encode()
DEPOSIT = b'{"amount":1000}'
PLACED = order(("p", 60))


def said(
    session: str,
    kind: str,
    body: bytes = b"{}",
    number: Number | None = None,
    name: str = "from-a-stranger",
) -> Message:
    return Message(name, session, kind, body, number=number, time=AT)


async def listed_alerts(world: World, session: str) -> list[str]:
    """Why the list of what stands still asks for a person in a session; each can be closed."""
    page = await world.east.standstills.find({StandstillKind.ALERT}, session=session, limit=9)
    for one in page.standstills:
        request = ResolutionRequest(ResolutionAction.CLOSE, "Ada", "seen", at=one.position)
        await world.east.resolver.resolve(session, request)
    again = await world.east.standstills.find({StandstillKind.ALERT}, session=session, limit=9)
    assert again.standstills == ()
    return [one.cause for one in page.standstills]


# Session, type and body of what nobody outside may say.
ELSEWHERE = {
    "a type without sessions of its own": ("account:ada", "flight.status", DEPARTED),
    "a type of other sessions": ("account:ada", "stock.receive", b'{"quantity":5}'),
    "a type for its own sessions only": ("N14228", "account.deposit", DEPOSIT),
    "a type that starts a saga": ("N14228", "order.place", PLACED.encode()),
    "an event of a saga": ("account:ada", "saga.event", b'{"event":"approved"}'),
}
RESERVED = {
    "an event for a saga": ("saga:o-1", "saga.event", b'{"event":"approved"}'),
    "a time-out": ("saga:o-1", "saga.event", b'{"event":"timeout:approval"}'),
    "an end": ("saga:o-1", "saga.end", b'{"key":"o-1","state":"completed","outcomes":{}}'),
    "a start": ("saga:o-1", "order.place", PLACED.encode()),
    "anything else for a saga": ("saga:o-1", "account.deposit", DEPOSIT),
    "a tombstone": ("account:ada", TOMBSTONE_TYPE, b"{}"),
    "a fault": ("account:ada", "lockstep.fault", b"{}"),
    "a type that the app may have one day": ("account:ada", "lockstep.new", b"{}"),
}


@pytest.mark.parametrize("case", ELSEWHERE | RESERVED)
async def test_ingest_refuses_it_before_anything_is_numbered(case: str) -> None:
    world = World(handlers=BUSINESS)
    session, kind, body = (ELSEWHERE | RESERVED)[case]

    refused = await accept(world.east, post(body, session=session, type=kind))

    assert refused.status_code == 403
    problem = json.loads(refused.get_body())
    assert problem["type"] == "NotAllowed"
    assert kind in problem["detail"] or session in problem["detail"]
    assert await world.journal.ledger(session, HTTP_GROUP) is None
    assert world.bus.messages("east", "in") == []


@pytest.mark.parametrize("case", RESERVED)
async def test_the_python_producer_refuses_it_before_anything_is_numbered(case: str) -> None:
    world = World(handlers=BUSINESS)
    session, kind, body = RESERVED[case]
    producer = IdempotentProducer(world.producer(), IdempotentProducerOptions("shop"))

    with pytest.raises(NotAllowed):
        await producer.send([SessionMessage("m-1", kind, body)], session=session)
    if session.startswith("saga:"):
        with pytest.raises(NotAllowed):
            await producer.create_batch(session)

    assert await world.journal.ledger(session, "shop") is None
    assert world.bus.messages("east", "in") == []


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "un-numbered"])
@pytest.mark.parametrize("case", ELSEWHERE)
async def test_a_type_that_is_not_for_the_session_is_a_fault_that_stops_nothing(
    case: str, *, numbered: bool
) -> None:
    world = World(handlers=BUSINESS)
    session, kind, body = ELSEWHERE[case]
    numbers = [Number("till", 0, n) if numbered else None for n in range(2)]
    before = said("account:ada", "account.deposit", DEPOSIT, name="paid-in")
    await receive_message(world.east, delivery_of(before))

    for worker in (world.east, world.west):
        await receive_message(worker, delivery_of(said(session, kind, body, numbers[0])))

    fault = require(world.journal.newest(session))
    assert (fault.status, fault.halt) == ("faulted", None)
    assert fault.message is not None
    assert fault.message.body == body
    (report,) = world.reports()
    assert "is for" in report["reason"] or "is not for" in report["reason"]
    assert report["message"]["body"].encode() == body
    paid_in = await world.east.worker.read_head("account:ada")
    state = (await world.east.worker.input_after(paid_in)).state
    assert state == {"balance": 1000, "paid": 0}
    after = said(session, kind, body, numbers[1], name="next")
    await receive_message(world.east, delivery_of(after))
    assert world.journal.newest(session).parked == {}  # type: ignore[union-attr]
    assert await listed_alerts(world, session) == [fault.reason, fault.reason]


@pytest.mark.parametrize("case", RESERVED)
async def test_what_is_reserved_goes_whole_from_the_queue_to_the_error_queues(case: str) -> None:
    world = World(handlers=BUSINESS)
    session, kind, body = RESERVED[case]

    await receive_message(world.east, delivery_of(said(session, kind, body)))

    assert world.journal.newest(session) is None
    (report,) = world.reports()
    assert "outside" in report["reason"]
    assert b64decode(report["body"]) == body


@pytest.mark.parametrize("kind", ["lockstep.fault", "lockstep.new"])
async def test_a_numbered_one_of_the_apps_own_types_is_a_fault(world: World, kind: str) -> None:
    for arriving in (message(0, kind=kind), message(1)):
        await receive_message(world.east, delivery_of(arriving))

    assert world.amounts() == [2]
    assert [entry["status"] for entry in world.entries()] == ["faulted", "completed"]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"reason":' + b"[" * 200_000,
        b'{"reason":' + b"9" * 4_301 + b"}",
        b'{"reason":' + b"9" * 4_299 + b"}",
        b'{"reason":["a"]}',
        b'{"reason":"a\\nb\\u001b[31m"}',
        b'{"reason":"' + b"x" * 50_000 + b'"}',
        b"not json",
        b"[]",
    ],
    ids=["deep", "deep inside", "too many digits", "digits", "list", "escapes", "long", "no", "[]"],
)
async def test_any_tombstone_ends_its_number_in_one_short_line(world: World, body: bytes) -> None:
    for arriving in (replace(message(0, kind=TOMBSTONE_TYPE), body=body), message(1)):
        await receive_message(world.east, delivery_of(arriving))

    reason = world.entries()[0]["reason"]
    assert reason.startswith("voided by its sender: ")
    assert reason.isprintable()
    assert len(reason) < 2_100
    assert world.amounts() == [2]


@pytest.mark.parametrize("group", ["http", "session:acc-7", "saga:o-1", "$arrivals", "\ud800"])
def test_the_apps_own_groups_are_nobody_elses(group: str) -> None:
    with pytest.raises(InvalidOptions):
        IdempotentProducerOptions(group)
    with pytest.raises(InvalidOptions):
        ProducerOptions(group)


async def test_nobody_fences_what_ingest_accepts(world: World) -> None:
    stranger = message(0, group=HTTP_GROUP, level=OWNER_LEVEL_MAX)
    await receive_message(world.east, delivery_of(stranger))

    for n in range(2):
        accepted = await accept(world.east, post(b'{"amount":%d}' % (n + 5), key=f"k-{n}"))
        assert accepted.status_code == 202
    for sent in world.bus.messages("east", "in"):
        await receive_message(world.east, delivery_of(sent))

    # The number that the stranger used is told as a conflict, whole; nothing vanishes.
    assert world.amounts() == [1, 6]
    (report,) = world.reports()
    assert b64decode(report["body"]) == b'{"amount":5}'


async def test_a_fenced_producer_is_told_and_what_it_sent_is_kept_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    first, second = (Draft(f"d-{n}", "account.add", b'{"amount":%d}' % n) for n in (1, 2))
    producer, options = world.producer(), ProducerOptions("bank")
    await producer.publish("acc-7", [first], options)
    await producer.publish("acc-7", [second], options)
    sent = world.bus.messages("east", "in")
    await receive_message(world.east, delivery_of(sent[0]))
    await receive_message(world.east, delivery_of(message(1, 9, level=7)))

    # Number 1 was taken by the stranger; its producer goes on with number 2, which is fenced.
    await producer.publish("acc-7", [Draft("d-3", "account.add", b'{"amount":3}')], options)
    with caplog.at_level(logging.WARNING):
        for arriving in world.bus.messages("east", "in")[2:]:
            await receive_message(world.east, delivery_of(arriving))

    assert world.amounts() == [1, 9]
    refused = world.entries()[-1]
    assert (refused["status"], refused["reason"]) == (
        "skipped",
        "a producer of owner level 7 rules",
    )
    assert refused["message"]["body"] == '{"amount":3}'
    assert any(r.get("message", {}).get("id") == "d-3" for r in world.reports())
    assert "owner level 7" in caplog.text
    assert await listed_alerts(world, "acc-7") == ["a producer of owner level 7 rules"]
    with pytest.raises(ProducerDisconnected):
        await producer.publish("acc-7", [Draft("d-4", "account.add", b"{}")], options)


@pytest.fixture
async def stage() -> SagaStage:
    return await stocked(SagaStage(BUSINESS), ["p"], 100)


# Steps of an order whose ids a stranger may foresee, and where the saga ends then.
FORESEEN = {
    "reserve.p": ("stock:p", "stock.receive", b'{"quantity":1}', SagaState.COMPENSATED),
    "charge": ("account:ada", "account.deposit", b'{"amount":1}', SagaState.COMPENSATED),
    "ship.p": ("stock:p", "stock.receive", b'{"quantity":1}', SagaState.UNFINISHED),
}


@pytest.mark.parametrize("step", FORESEEN)
async def test_a_step_whose_id_another_used_is_never_done(stage: SagaStage, step: str) -> None:
    session, kind, body, end = FORESEEN[step]
    forged = said(session, kind, body, name=step_id("o-1", step, Direction.DO))
    await stage.worker().consumer.consume(forged)

    assert await stage.run("o-1", PLACED) is end

    outcome = stage.record("o-1").outcomes[step]
    assert outcome == "refused"
    paid, shipped = stage.state("account:ada")["paid"], stage.state("stock:p")["shipped"]
    assert (paid, shipped) == ((10, 0) if end is SagaState.UNFINISHED else (0, 0))
    if end is SagaState.COMPENSATED:
        assert stage.state("stock:p")["reserved"] == {}


async def test_a_compensation_whose_id_somebody_else_used_needs_a_person(stage: SagaStage) -> None:
    name = step_id("o-1", "reserve.p", Direction.UNDO)
    await stage.worker().consumer.consume(
        said("stock:p", "stock.receive", b'{"quantity":1}', name=name)
    )

    assert await stage.run("o-1", order(("p", 60), amount=5000)) is SagaState.COMPENSATION_FAILED

    assert stage.record("o-1").outcomes["reserve.p"] == "kept"


# Commands that no session would take, and how they are refused.
IMPOSSIBLE: Mapping[str, tuple[Command, str]] = {
    "a type for other sessions": (Command(session="N1", type="account.charge"), "is for account"),
    "an unknown type": (Command(session="N1", type="account.melt"), "no handler"),
    "an end of another saga": (Command(session="saga:o-2", type="saga.end"), "is a saga's"),
    "a tombstone": (Command(session="N1", type=TOMBSTONE_TYPE), "is the app's own"),
    "a body that its handler cannot read": (
        Command(session="account:ada", type="account.charge", body={"amount": -1}),
        "amount",
    ),
    "a session that cannot be": (Command(session="", type="account.charge"), "empty"),
}


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("case", IMPOSSIBLE)
async def test_a_saga_with_a_step_that_its_session_would_not_take_does_not_start(
    case: str, direction: Direction
) -> None:
    command, reason = IMPOSSIBLE[case]
    good = Command(session="account:ada", type="account.charge", body={"amount": 1})
    plans = Handlers()

    @SagaKinds(plans).register("odd", body=orders.Nothing)
    def plan(_: orders.Nothing, __: Context) -> Plan:
        done = Step(name="odd", do=command)
        undone = Step(name="odd", do=good, undo=command)
        return Plan(parts=(Stage(steps=(done if direction is Direction.DO else undone,)),))

    whole = Handlers(plans.by_type | orders.handlers.by_type)
    stage = SagaStage(whole)

    with pytest.raises(CallerError, match=reason):
        await stage.book().start("o-1", "odd", b"{}")

    assert stage.entries("saga:o-1") == []
