"""Input is bad or absurd: each kind has a named end, at every entrance, and nothing is lost."""

import json
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import azure.functions as func
import pytest

from functions.handlers import orders
from functions.http import sagas
from functions.http.ingest import accept
from functions.http.operate import carry_out, show_session
from functions.triggers.receive import receive_message
from shared.domain import wire
from shared.domain.errors import CallerError
from shared.domain.message import BODY_BYTES_MAX, SEQUENCE_MAX, Message
from shared.domain.reports import TOMBSTONE_TYPE
from shared.ports import SessionNeed
from shared.publishing.message import SessionMessage
from shared.publishing.options import IdempotentProducerOptions
from shared.publishing.producer import IdempotentProducer
from tests.asking import ask
from tests.deliveries import delivery, delivery_of
from tests.saga_stage import Stage, order
from tests.unit.functions.test_ingest import post
from tests.unit.functions.test_sagas_http import Hub
from tests.world import GAP_SECONDS, SKIP, World, message

# When the input is bad, or looks as if, each kind has a named end, and nothing is lost.

PREFIX = wire.PREFIX
GOOD = wire.to_properties(message(0))
BODY = message(0).body


def without(name: str) -> dict[str, object]:
    """The properties of a good message but for one."""
    return {key: value for key, value in GOOD.items() if key != PREFIX + name}


def having(**attributes: object) -> dict[str, object]:
    """The properties of a good message with some others."""
    return GOOD | {PREFIX + name: value for name, value in attributes.items()}


def unnumbered(**attributes: object) -> dict[str, object]:
    """The properties of a message whose sender gives no numbers."""
    numbering = {PREFIX + name for name in wire.NUMBERING}
    return {key: value for key, value in having(**attributes).items() if key not in numbering}


@dataclass(frozen=True)
class Bad:
    """A delivery that is not a message, and what is said of it."""

    reason: str
    properties: Mapping[str, object] = field(default_factory=lambda: GOOD)
    body: bytes = BODY


REJECTED = {
    "no properties at all": Bad("specversion None", {}),
    "another version": Bad("specversion '0.3'", having(specversion="0.3")),
    "no session": Bad("attribute 'partitionkey' is missing", without("partitionkey")),
    "an empty session": Bad("the session is empty", having(partitionkey="")),
    "a session that is a number": Bad("'partitionkey' is missing or not", having(partitionkey=7)),
    "a session that is too long": Bad("the session has 129", having(partitionkey="s" * 129)),
    "no id": Bad("attribute 'id' is missing", without("id")),
    "an empty id": Bad("the message id is empty", having(id="")),
    "an id that is too long": Bad("the message id has 129", having(id="i" * 129)),
    "an id that is no text": Bad("the message id is no text", having(id="\ud800")),
    "no type": Bad("attribute 'type' is missing", without("type")),
    "an empty type": Bad("the type is empty", having(type="")),
    "no body": Bad("no body", body=b""),
    "a body that is not UTF-8": Bad("not UTF-8", body=b"\xff\xfe"),
    "a body that is too large": Bad("over 1000000", body=b"[" + b" " * BODY_BYTES_MAX + b"]"),
    "a body that escapes blow up": Bad("escaped, is over", body=b"\x01" * 300_000),
    "a reserved group": Bad("group '$arrivals' is reserved", having(producergroup="$arrivals")),
    "an empty group": Bad("needs a producer group", having(producergroup="")),
    "a session that Azure counts as too long": Bad(
        "the session has 130 characters, over 128", having(partitionkey="\U0001f6e9" * 65)
    ),
    "a group that is too long": Bad(
        "has 137 characters, over 136", having(producergroup="g" * 137)
    ),
    "a number without a group": Bad("'producergroup' is missing", without("producergroup")),
    "a number without a sequence": Bad("'producersequence' is", without("producersequence")),
    "a number without a level": Bad("'ownerlevel' is missing", without("ownerlevel")),
    "a sequence in words": Bad("not a whole number", having(producersequence="one")),
    "a sequence with a zero before it": Bad("not a whole number", having(producersequence="01")),
    "a number that is given twice": Bad(
        "attribute 'producersequence' is given twice, as 0 and as '1'",
        {**GOOD, "cloudEvents:producersequence": "1"},
    ),
    "two types": Bad(
        "attribute 'type' is given twice, as 'account.add' and as 'account.burn'",
        {**GOOD, "cloudEvents:type": "account.burn"},
    ),
    "a sequence that is true": Bad("not a whole number", having(producersequence=True)),
    "a negative sequence": Bad("sequence number -1 is outside", having(producersequence=-1)),
    "a sequence that is too large": Bad(
        "is outside 0..", having(producersequence=SEQUENCE_MAX + 1)
    ),
    "a level that is too large": Bad("owner level 32768", having(ownerlevel=32_768)),
    "a time that is a number": Bad("'time' is missing or not text", having(time=17)),
    "neither number nor time": Bad("neither a number nor a time", unnumbered()),
    "no number and no real time": Bad("no ISO 8601 time", unnumbered(time="noon")),
    "no number and old": Bad("s that are remembered", unnumbered(time="2013-01-01T05:17:00Z")),
    "no number and not sent yet": Bad("in the future", unnumbered(time="2036-01-01T05:17:00Z")),
    "an empty place for answers": Bad("'replyto' is missing or not", having(replyto=None)),
}


# Of these session, id and number can be read, so that the journal has an entry under the number.
UNREADABLE = {
    "another version",
    "no type",
    "an empty type",
    "no body",
    "a body that is not UTF-8",
    "a body that is too large",
    "a body that escapes blow up",
    "a time that is a number",
    "two types",
    "an empty place for answers",
}


@pytest.mark.parametrize("case", REJECTED)
async def test_what_is_no_message_goes_whole_to_the_error_queues(world: World, case: str) -> None:
    bad = REJECTED[case]

    await receive_message(world.east, delivery(bad.body, bad.properties))

    reasons = [entry["reason"] for entry in world.entries()]
    if case in UNREADABLE:
        assert [reason.startswith("its message cannot be read: ") for reason in reasons] == [True]
    else:
        assert reasons == []
    reports = world.reports()
    assert all(bad.reason in report["reason"] for report in reports)
    assert b"".join(b64decode(report["body"]) for report in reports) == bad.body
    assert {json.dumps(report["properties"]) for report in reports} == {
        json.dumps(dict(sorted(bad.properties.items())))
    }


@pytest.mark.parametrize("case", ["a body that is too large", "no session"])
async def test_the_report_is_the_same_for_every_copy(world: World, case: str) -> None:
    bad = REJECTED[case]

    for worker in (world.east, world.west):
        await receive_message(worker, delivery(bad.body, bad.properties))

    reports = world.bus.messages("east", "errors")
    middle = len(reports) // 2
    assert reports[:middle] == reports[middle:] != []


async def test_a_megabyte_of_properties_is_reported_whole(world: World) -> None:
    properties = {f"name {n}": '"\\\u00e9' * 300 for n in range(1_000)}

    await receive_message(world.east, delivery(BODY, properties))

    reports = [json.loads(m.body) for m in world.bus.messages("east", "errors")]
    text = "".join(report.get("properties_text", "") for report in reports)
    assert json.loads(text) == properties
    assert [b64decode(report["body"]) for report in reports if "body" in report] == [BODY]
    assert len({m.id for m in world.bus.messages("east", "errors")}) == len(reports) > 2


FAULTS = {
    "an unknown type": (replace(message(0), type="account.melt"), "no handler for type"),
    "a body that is not JSON": (replace(message(0), body=b"not json"), "Invalid JSON"),
    "a body that is not the model": (replace(message(0), body=b'{"amount":"x"}'), "amount:"),
    "a body that is no object": (replace(message(0), body=b"[]"), "body:"),
    "a large body of an unknown type": (
        replace(message(0), type="account.melt", body=b'"' + b"x" * (BODY_BYTES_MAX - 2) + b'"'),
        "no handler for type",
    ),
    "a large body of quotes": (
        replace(message(0), body=b'"' * 700_000),
        "Invalid JSON",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
async def test_what_no_handler_takes_is_kept_whole_as_a_fault(world: World, case: str) -> None:
    sent, reason = FAULTS[case]

    for worker in (world.east, world.west):
        await receive_message(worker, delivery_of(sent))

    (fault,), (report,) = world.entries(), world.reports()
    assert (fault["status"], fault["message"]["body"].encode()) == ("faulted", sent.body)
    assert reason in fault["reason"]
    assert reason in report["reason"]
    assert await world.journal.sessions(SessionNeed.RESOLUTION, limit=9) == ["acc-7"]
    await receive_message(world.east, delivery_of(message(1)))
    await world.east.resolver.resolve("acc-7", SKIP)
    assert world.amounts() == [2]


async def test_a_sequence_far_ahead_is_parked_and_stays_visible(world: World) -> None:
    far = message(SEQUENCE_MAX, amount=1)

    await receive_message(world.east, delivery_of(far))
    await receive_message(world.west, delivery_of(far))
    await receive_message(world.east, delivery_of(message(0)))

    assert world.clock.now() <= 3 * GAP_SECONDS
    assert world.amounts() == [1]
    assert world.entries()[-1]["parked"] == {"bank": 1}
    assert await world.journal.sessions(SessionNeed.DRAINING, limit=9) == ["acc-7"]
    assert await world.journal.parked("acc-7", far.number) == far  # type: ignore[arg-type]


# When the input is absurd, at every entrance, each kind has a named end.

# A name, and whether it can be one.
NAMES = {
    "empty": ("", False),
    "129 characters": ("x" * 129, False),
    "50 kB": ("x" * 50_000, False),
    "half a surrogate pair": ("a\ud800", False),
    "a zero": ("\0", True),
    "a new line": ("a\nERROR forged", True),
    "ANSI escapes": ("\x1b[31mred", True),
    "a line separator": ("a\u2028b", True),
    "from right to left": ("a\u202egnp", True),
    "a space": (" ", True),
}
# They can be found where an older release took them, and nothing new gets them.
UNSHOWN = {"a zero", "a new line", "ANSI escapes", "a line separator", "from right to left"}
# A body for a handler that wants {"amount": a whole number}, and whether it can read it.
BODIES = {
    "nothing": (b"", False),
    "no JSON": (b"\0", False),
    "no UTF-8": (b"\xff", False),
    "half a surrogate pair": (b'{"amount":"\\ud800"}', False),
    "nested 100,000 deep": (b'{"amount":' + b"[" * 100_000, False),
    "nested 129 deep": (b"[" * 129 + b"]" * 129, False),
    "4,301 digits": (b'{"amount":' + b"9" * 4_301 + b"}", False),
    "no number": (b'{"amount":NaN}', False),
    "no finite number": (b'{"amount":1e999}', False),
    "a fraction": (b'{"amount":1.5}', False),
    "a list of 300,000": (b"[" + b"1," * 300_000 + b"1]", False),
    "over a megabyte": (b"1" * 1_000_001, False),
    "a field twice": (b'{"amount":1,"amount":2}', True),
    "true for 1": (b'{"amount":true}', True),
    "50,000 more fields": (
        b'{"amount":1,' + b",".join(b'"%d":1' % n for n in range(50_000)) + b"}",
        True,
    ),
}
TIMES = {
    "no time": ("noon", False),
    "no day": ("2026-02-30", False),
    "no zone": ("2026-01-01T00:00:00+99:99", False),
    "50 kB": ("2" * 50_000, False),
    "a zero": ("\0", False),
    "before the first year": ("0001-01-01T00:00:00+14:00", True),
    "after the last year": ("9999-12-31T23:59:59-14:00", True),
}
GOOD_BODY = b'{"amount":5}'
PLACED = order(("p", 1))
START = sagas.start_saga_over_http


def ingest(value: str, part: str) -> Awaitable[func.HttpResponse]:
    asked = {"headers": {"ce-time": value}} if part == "time in a header" else {part: value}
    return accept(World().east, post(**asked))


def resolve(session: str) -> Awaitable[func.HttpResponse]:
    body = b'{"action":"skip","who":"Ada","why":"because"}'
    return carry_out(World().east, ask(body, route={"session": session}))


def saga(
    do: Any, key: str, body: bytes | str = "", event: str = "", **query: str
) -> Awaitable[func.HttpResponse]:
    request = ask(body, route={"key": key or "x" * 129, "event": event}, query=query)
    answer: Awaitable[func.HttpResponse] = do(Stage(orders.handlers).worker(), request, Hub())
    return answer


def show(key: str) -> Awaitable[func.HttpResponse]:
    request = ask(route={"key": key or "x" * 129})
    return sagas.describe_saga_over_http(Stage(orders.handlers).worker(), request)


def list_in(state: str) -> Awaitable[func.HttpResponse]:
    services = Stage(orders.handlers).worker()
    return sagas.list_over_http(services, ask(query={"state": state}))


# Each entrance takes a name, and answers 200, 202, 404 or 409 where there can be such a name.
NAMED_OVER_HTTP: dict[str, Callable[[str], Awaitable[func.HttpResponse]]] = {
    "ingest: key": lambda name: ingest(name, "key"),
    "ingest: session": lambda name: ingest(name, "session"),
    "session": lambda name: show_session(World().east, ask(route={"session": name})),
    "resolution: session": resolve,
    "start a saga: key": lambda name: saga(START, name, PLACED, type="order.place"),
    "tell a saga: key": lambda name: saga(sagas.add_event_over_http, name, event="approved"),
    "show a saga: key": show,
    "cancel a saga: key": lambda name: saga(sagas.cancel_over_http, name),
}
NEW_OVER_HTTP = {"ingest: key", "ingest: session", "start a saga: key"}
# Of these only a few words are known: 400, whatever else it is.
WORDS_OVER_HTTP: dict[str, Callable[[str], Awaitable[func.HttpResponse]]] = {
    "ingest: type": lambda word: ingest(word, "type"),
    "ingest: parameter": lambda word: ingest("1", word or "x"),
    "start a saga: type": lambda word: saga(START, "o-1", PLACED, type=word),
    "tell a saga: event": lambda word: saga(sagas.add_event_over_http, "o-1", event=word),
    "list sagas: state": lambda word: list_in(word or "x"),
}


def named_end(response: func.HttpResponse) -> int:
    """The status of an answer that is short, one line, and a problem where it is a refusal."""
    document = json.loads(response.get_body())
    if response.status_code >= 400 and "detail" in document:
        assert document["status"] == response.status_code
        assert 0 < len(document["detail"]) <= 2_000
        assert document["detail"].isprintable()
    return int(response.status_code)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("entrance", NAMED_OVER_HTTP)
async def test_a_name_over_http_can_be_one_or_is_a_bad_request(entrance: str, name: str) -> None:
    value, can_be = NAMES[name]
    can_be = can_be and not (name in UNSHOWN and entrance in NEW_OVER_HTTP)

    status = named_end(await NAMED_OVER_HTTP[entrance](value))

    assert status in ({200, 202, 404, 409} if can_be else {400})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("entrance", WORDS_OVER_HTTP)
async def test_an_unknown_word_over_http_is_a_bad_request(entrance: str, name: str) -> None:
    assert named_end(await WORDS_OVER_HTTP[entrance](NAMES[name][0])) == 400


@pytest.mark.parametrize("case", TIMES)
@pytest.mark.parametrize("part", ["time", "time in a header"])
async def test_a_time_over_http_is_one_or_a_bad_request(part: str, case: str) -> None:
    value, can_be = TIMES[case]

    assert named_end(await ingest(value, part)) == (202 if can_be else 400)


@pytest.mark.parametrize("case", BODIES)
async def test_a_body_over_http_can_be_read_or_is_refused(case: str) -> None:
    body, can_be = BODIES[case]

    ingested = named_end(await accept(World().east, post(body)))
    started = named_end(await saga(START, "o-1", body, type="order.place"))
    decided = named_end(await carry_out(World().east, ask(body, route={"session": "acc-7"})))

    assert ingested in ({202} if can_be else {400, 413})
    assert {started, decided} <= {400, 413}


@pytest.mark.parametrize("query", ["?type=account.add&type=account.burn", "?time=1&time=2"])
async def test_a_parameter_that_is_given_twice_is_a_bad_request(query: str) -> None:
    request = ask(
        GOOD_BODY,
        path=query,
        headers={"Idempotency-Key": "k"},
        route={"session": "acc-7"},
        query={"type": "account.add"},
    )

    refused = await accept(World().east, request)

    assert named_end(refused) == 400
    assert "given 2 times" in json.loads(refused.get_body())["detail"]


PROPERTIES = (
    "specversion",
    "id",
    "source",
    "type",
    "partitionkey",
    "time",
    "producergroup",
    "ownerlevel",
    "producersequence",
    "replyto",
    "replysession",
    "correlationid",
    "nobody-knows-this",
)
VALUES: Mapping[str, object] = {
    **{name: value for name, (value, _) in NAMES.items()},
    **{f"time: {name}": value for name, (value, _) in TIMES.items()},
    "a whole number": 7,
    "a number of 64 bits": 2**63 - 1,
    "a negative number": -1,
    "a fraction": 1.5,
    "not a number": float("nan"),
    "true": True,
    "nothing": None,
    "bytes": b"\xff",
    "a list": [1, [2]],
    "a map": {"a": {"b": 1}},
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("is_numbered", [True, False], ids=["numbered", "un-numbered"])
async def test_any_property_of_a_delivery_ends_in_the_journal_or_in_the_error_queues(
    world: World, name: str, value: str, *, is_numbered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    given = having() if is_numbered else unnumbered(time="2026-05-28T20:26:40Z")
    given[PREFIX + name] = VALUES[value]

    with caplog.at_level(logging.DEBUG):
        for worker in (world.east, world.west):
            await receive_message(worker, delivery(BODY, given))

    entries = [d for kept in world.journal.partitions.values() for d in kept.values()]
    reasons = [one.get("reason") or "" for one in entries if one.get("kind") == "entry"]
    is_processed = any(not reason.startswith("its message cannot be read") for reason in reasons)
    sent_back = {one.type for one in world.bus.messages("east", "errors")}
    assert is_processed != ("lockstep.rejected" in sent_back)
    assert len(reasons) <= 1
    for report in world.reports():
        assert report["reason"].isprintable()
        assert len(report["reason"]) <= 2_000
    for record in caplog.records:
        assert record.getMessage().isprintable()
        assert len(record.getMessage()) < 2_500


@pytest.mark.parametrize("case", BODIES)
@pytest.mark.parametrize("kind", ["account.add", "account.melt", TOMBSTONE_TYPE])
async def test_any_body_of_a_delivery_ends_in_the_journal_or_in_the_error_queues(
    kind: str, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    body, can_be = BODIES[case]
    properties = wire.to_properties(message(0, kind=kind))

    with caplog.at_level(logging.DEBUG):
        for worker in (world.east, world.west):
            await receive_message(worker, delivery(body, properties))

    entries = world.entries()
    is_rejected = any(b"lockstep" in m.type.encode() for m in world.bus.messages("east", "errors"))
    if kind == TOMBSTONE_TYPE:
        assert entries or is_rejected
    elif kind == "account.add" and can_be:
        assert [entry["status"] for entry in entries] == ["completed"]
    else:
        assert is_rejected
    assert all(record.getMessage().isprintable() for record in caplog.records)


def publish(session: str = "acc-7", **given: Any) -> Awaitable[object]:
    fields = {"message_id": "m", "message_type": "account.add", "body": GOOD_BODY} | given
    group, level = fields.pop("group", "bank"), fields.pop("level", None)
    producer = IdempotentProducer(
        World().producer(), IdempotentProducerOptions(group, owner_level=level)
    )
    return producer.send([SessionMessage(**fields)], session=session)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "part", ["session", "message_id", "message_type", "group", "reply_to", "reply_session"]
)
async def test_a_name_of_the_python_producer_is_one_or_is_refused(part: str, name: str) -> None:
    value, can_be = NAMES[name]
    if part.startswith("reply") and name in ("empty", "129 characters"):
        can_be = name == "empty" or part == "reply_to"
    if part == "message_type":
        can_be = name in ("129 characters", "a space")
    if part == "session":
        can_be = can_be and name not in UNSHOWN

    if can_be:
        await publish(**{part: value})
    else:
        with pytest.raises(CallerError):
            await publish(**{part: value})


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (part, value)
        for part in ("session", "message_id", "message_type", "group")
        for value in (5, 1.5, True, None, b"x", ["a"])
        # Whoever names no group is given one.
        if (part, value) != ("group", None)
    ],
)
async def test_what_is_no_text_is_refused_by_the_python_producer(part: str, value: object) -> None:
    with pytest.raises(CallerError):
        await publish(**{part: value})  # type: ignore[arg-type]


async def test_a_type_that_holds_a_zero_could_look_like_another_type_and_body() -> None:
    with pytest.raises(CallerError, match="control characters"):
        Message("m", "s", "a\0b", b"c")
