"""What a link may ask for when it attaches, and what becomes of it: the table of the page."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from proton import UNDESCRIBED, Array, Data, Described, Message, symbol, ubyte, uint, ulong

from local.testing import raw_amqp
from local.testing.raw_amqp import (
    ATTACH_FIELDS,
    RECEIVER,
    SENDER,
    SOURCE,
    TARGET,
    RawClient,
    described,
    opened_client,
)
from pages.pages import coded, page
from wire.service_bus import Bus, running_bus

pytestmark = pytest.mark.wire
QUEUE, SESSIONS = "parcels", "flights"
SESSION_FILTER = symbol("com.microsoft:session-filter")
DOCUMENTED = page("docs/service-bus.md").table("asked for at attach")
TARGET_FIELDS = (
    *("address", "durable", "expiry-policy", "timeout", "dynamic", "dynamic-node-properties"),
    "capabilities",
)
SOURCE_FIELDS = (
    *(*TARGET_FIELDS[:-1], "distribution-mode", "filter", "default-outcome", "outcomes"),
    "capabilities",
)


def symbols(*names: str) -> Array:
    none: Any = UNDESCRIBED
    return Array(none, Data.SYMBOL, *map(symbol, names))


# Each as it stands in the table, with fields of a source, a target or the attach.
WITHOUT_EFFECT: dict[str, Mapping[str, Any]] = {
    "durable": {"durable": uint(2)},
    "expiry-policy": {"expiry-policy": symbol("never")},
    "timeout": {"timeout": uint(600)},
    "distribution-mode=move": {"distribution-mode": symbol("move")},
    "default-outcome": {"default-outcome": described(raw_amqp.MODIFIED, True)},
    "outcomes": {"outcomes": symbols("amqp:accepted:list", "x:burnt:list")},
    "capabilities": {"capabilities": symbols("queue", "x:fireproof")},
    "offered-capabilities": {"offered-capabilities": symbols("x:fireproof")},
    "desired-capabilities": {"desired-capabilities": symbols("DELAYED_DELIVERY")},
    "max-message-size": {"max-message-size": ulong(1024)},
    "unsettled": {"unsettled": {b"tag": described(raw_amqp.ACCEPTED)}},
    "incomplete-unsettled": {"incomplete-unsettled": True},
    "any other property": {"properties": {symbol("com.microsoft:receiver-name"): "r"}},
}
REFUSED: dict[str, Mapping[str, Any]] = {
    "any other filter": {
        "filter": {
            symbol("selector"): Described(symbol("apache.org:selector-filter:string"), "n > 2")
        }
    },
    "distribution-mode=copy": {"distribution-mode": symbol("copy")},
    "dynamic": {"dynamic": True},
    "com.microsoft:transfer-destination-address": {
        "properties": {symbol("com.microsoft:transfer-destination-address"): "short"}
    },
    "a coordinator": {"target": described(raw_amqp.COORDINATOR)},
}
HONOURED = {
    "com.microsoft:session-filter",
    "snd-settle-mode",
    "rcv-settle-mode",
    "initial-delivery-count",
    "com.microsoft:timeout",
}


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def attach(client: RawClient, role: bool, asked: Mapping[str, Any], path: str = QUEUE) -> int:
    """Attach to the path, with what is asked written where it belongs."""
    node = {"address": path, **asked}
    own = {"address": "client", **{key: asked[key] for key in asked if key in TARGET_FIELDS}}
    source, target = (own, node) if role is SENDER else (node, own)
    ends = {
        "source": described(SOURCE, *(source.get(field) for field in SOURCE_FIELDS)),
        "target": described(TARGET, *(target.get(field) for field in TARGET_FIELDS)),
    }
    fields = {key: value for key, value in asked.items() if key in ATTACH_FIELDS}
    return client.attach(role, path, fields=ends | fields)


def answer_to(client: RawClient, role: bool, asked: Mapping[str, Any]) -> list[Any]:
    """The answer to an attach, from the settle modes on: but for the names of the link."""
    attach(client, role, asked)
    return client.expect(raw_amqp.ATTACH).fields[3:]


def condition_of_refusal(client: RawClient) -> list[Any]:
    """The condition and the description of the next detach."""
    error: list[Any] = client.expect(raw_amqp.DETACH).fields[2].value[:2]
    return error


def test_every_request_of_the_table_is_tried() -> None:
    assert DOCUMENTED.names() == WITHOUT_EFFECT.keys() | REFUSED.keys() | HONOURED


@pytest.mark.parametrize("role", [SENDER, RECEIVER])
@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_what_has_no_effect_is_not_in_the_answer(bus: Bus, name: str, role: bool) -> None:
    assert DOCUMENTED.column()[name] == "no effect"
    with opened_client(bus.connection_string, QUEUE) as client:
        plain = answer_to(client, role, {})

        assert answer_to(client, role, WITHOUT_EFFECT[name]) == plain


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_itself(bus: Bus, name: str) -> None:
    (condition,) = coded(DOCUMENTED.column()[name])
    role = SENDER if {"properties", "target"} & REFUSED[name].keys() else RECEIVER
    with opened_client(bus.connection_string, QUEUE) as client:
        attach(client, role, REFUSED[name])
        refused = condition_of_refusal(client)

        assert refused[0] == condition
        attach(client, role, {})  # the connection goes on
        assert client.expect(raw_amqp.ATTACH).fields[0] == "link-3"


@pytest.mark.parametrize("path", [QUEUE, SESSIONS])
@pytest.mark.parametrize(
    ("filters", "named"),
    [
        (REFUSED["any other filter"]["filter"], "selector (apache.org:selector-filter:string)"),
        # Of Azure.Messaging.ServiceBus 7.21 with EnableNonExclusiveSession.
        (
            {
                symbol("com.microsoft:non-exclusive-session-filter:list"): Described(
                    ulong(0x137000000E), ["N101", None]
                )
            },
            "com.microsoft:non-exclusive-session-filter:list",
        ),
        ({symbol("it's mine"): "x", SESSION_FILTER: None}, "its mine"),
    ],
)
def test_a_filter_that_is_not_applied_is_refused_in_the_words_of_azure(
    bus: Bus, path: str, filters: dict[Any, Any], named: str
) -> None:
    """Azure.Messaging.ServiceBus reads what stands behind the last apostrophe."""
    with opened_client(bus.connection_string, path) as client:
        attach(client, RECEIVER, {"filter": filters}, path)
        condition, description = condition_of_refusal(client)

    words = "contains invalid filter type. System only support Jms or Apache selector filter type."
    start, _, rest = description.rpartition("'")
    assert (condition, start) == ("amqp:not-allowed", "The link 'link-2")
    assert rest.startswith(f" {words} ")
    assert rest.endswith(f"and so not {named}")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"filter": ["n > 2"]}, "The filters of a link are no map"),
        ({"properties": 7}, "The properties of a link are no map"),
        (
            {"properties": {symbol("com.microsoft:timeout"): "soon"}},
            "com.microsoft:timeout is no number",
        ),
    ],
)
def test_what_is_not_of_the_type_it_must_be_is_refused(
    bus: Bus, asked: Mapping[str, Any], said: str
) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        attach(client, RECEIVER, asked)

        assert condition_of_refusal(client) == ["amqp:decode-error", said]


@pytest.mark.parametrize("place", ["filter", "properties"])
def test_an_attach_with_a_symbol_that_is_not_ascii_is_refused_and_its_connection_goes_on(
    bus: Bus, place: str
) -> None:
    odd = {symbol("odd name"): 1}
    source = described(SOURCE, QUEUE, *[None] * 6, odd if place == "filter" else None)
    fields = ("link", uint(9), RECEIVER, None, None, source, described(TARGET, QUEUE))
    more = (*[None] * 6, odd if place == "properties" else None)
    with opened_client(bus.connection_string, QUEUE) as client:
        frame = raw_amqp.framed(raw_amqp.ATTACH, *fields, *more)
        client.socket.sendall(frame.replace(b"odd name", b"odd\xffname"))
        assert condition_of_refusal(client)[0] == "amqp:decode-error"

        attach(client, RECEIVER, {})
        assert client.expect(raw_amqp.ATTACH).fields[5] is not None


@pytest.mark.parametrize("is_described", [False, True])
def test_the_session_in_force_is_in_the_answer_and_nothing_else(
    bus: Bus, is_described: bool
) -> None:
    wanted: Any = Described(SESSION_FILTER, "N101") if is_described else "N101"
    asked = {"filter": {SESSION_FILTER: wanted}, "capabilities": symbols("queue")}
    with opened_client(bus.connection_string, SESSIONS) as client:
        attach(client, RECEIVER, asked, SESSIONS)
        source = client.expect(raw_amqp.ATTACH).fields[5].value

    given = dict(zip(SOURCE_FIELDS, source, strict=False))
    assert (given["address"], given["filter"]) == (SESSIONS, {SESSION_FILTER: "N101"})
    assert given.get("capabilities") is None


def test_the_time_for_which_a_session_is_waited_is_that_of_the_client(bus: Bus) -> None:
    asked = {
        "filter": {SESSION_FILTER: None},
        "properties": {symbol("com.microsoft:timeout"): uint(50)},
    }
    with opened_client(bus.connection_string, SESSIONS) as client:
        attach(client, RECEIVER, asked, SESSIONS)

        assert condition_of_refusal(client)[0] == "com.microsoft:timeout"


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("role", [SENDER, RECEIVER])
def test_the_settle_mode_of_a_sender_is_in_the_answer(bus: Bus, role: bool, mode: int) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        assert answer_to(client, role, {"snd-settle-mode": ubyte(mode)})[0] == mode


@pytest.mark.parametrize(
    ("role", "mode", "answered"),
    [(RECEIVER, 0, 0), (RECEIVER, 1, 1), (SENDER, 0, 0), (SENDER, 1, 0)],
)
def test_the_settle_mode_of_a_receiver_is_in_the_answer_and_that_of_the_broker_is_first(
    bus: Bus, role: bool, mode: int, answered: int
) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        assert answer_to(client, role, {"rcv-settle-mode": ubyte(mode)})[1] == answered


def test_the_deliveries_of_a_sender_are_counted_from_its_own_number_on(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        handle = attach(client, SENDER, {"initial-delivery-count": uint(7)})
        assert client.expect(raw_amqp.FLOW).fields[5] == 7
        client.transfer(handle, bytes(Message(body="x").encode()))

        assert client.outcome()[1].descriptor == raw_amqp.ACCEPTED
