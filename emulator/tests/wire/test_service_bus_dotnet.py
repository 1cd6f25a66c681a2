"""What the .NET SDK sends and expects, frame by frame: it does not run here."""

from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from azure.servicebus import ServiceBusSubQueue
from proton import UNDESCRIBED, Described, Message, symbol, timestamp, ulong

from local.faults import Action, Fault
from local.servicebus.nodes.authorization import KEY, KEY_NAME
from local.testing import raw_amqp
from local.testing.raw_amqp import RECEIVER, SENDER, RawClient, described, opened_client, raw_client
from wire.service_bus import Bus, receive_one, running_bus

pytestmark = pytest.mark.wire
QUEUE, SESSIONS = "parcels", "flights"


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def manage(client: RawClient, path: str, operation: str, body: dict[str, Any]) -> Any:
    """Ask the management node as the .NET SDK does; the answer, a `Message`."""
    requests = client.attach(SENDER, f"/{path}/$management")
    responses = client.attach(RECEIVER, f"/{path}/$management")
    client.give_credit(responses)
    request = Message(
        id="request",
        reply_to=f"/{path}/$management",
        body=body,
        properties={"operation": f"com.microsoft:{operation}"},
    )
    client.transfer(requests, bytes(request.encode()))
    return client.response()


def test_mssbcbs_without_an_initial_response_is_enough_to_connect(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE, "MSSBCBS") as client:
        client.attach(SENDER, QUEUE)

        assert client.expect(raw_amqp.ATTACH).fields[6].value[0] == QUEUE


def test_plain_with_the_key_needs_no_token(bus: Bus) -> None:
    with raw_client(bus.connection_string) as client:
        assert client.authenticate("PLAIN", f"\0{KEY_NAME}\0{KEY}".encode()) == 0
        client.open()
        handle = client.attach(SENDER, QUEUE)
        client.expect(raw_amqp.FLOW)
        client.transfer(handle, bytes(Message(body="x").encode()))

        assert client.outcome()[1].descriptor == raw_amqp.ACCEPTED
    assert bus.namespace.depth(QUEUE)["active"] == 1


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [("PLAIN", f"\0{KEY_NAME}\0guessed".encode()), ("PLAIN", b""), ("SCRAM-SHA-256", b"n,,")],
)
def test_a_wrong_key_or_an_unknown_mechanism_is_no_way_in(
    bus: Bus, mechanism: str, response: bytes
) -> None:
    with raw_client(bus.connection_string) as client:
        assert client.authenticate(mechanism, response) == 1
        with pytest.raises(EOFError):
            client.read()


def test_an_address_may_begin_with_a_slash(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        handle = client.attach(SENDER, f"/{QUEUE}")
        client.expect(raw_amqp.FLOW)
        client.transfer(handle, bytes(Message(body="x").encode()))

        assert client.outcome()[1].descriptor == raw_amqp.ACCEPTED
    assert bus.namespace.depth(QUEUE)["active"] == 1


def test_arrays_of_management_are_plain(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        message = bytes(Message(id="m", body="x").encode())
        answer = manage(client, QUEUE, "schedule-message", {"messages": [{"message": message}]})

        numbers = answer.body["sequence-numbers"]
    assert (numbers.descriptor, numbers.elements) == (UNDESCRIBED, (1,))


def test_the_times_of_renewed_locks_are_a_plain_array(bus: Bus) -> None:
    bus.send(QUEUE, "x")
    with bus.receiver(QUEUE) as receiver, opened_client(bus.connection_string, QUEUE) as client:
        token = receive_one(receiver).lock_token
        answer = manage(client, QUEUE, "renew-lock", {"lock-tokens": [token]})

        (until,) = answer.body["expirations"].elements
    assert answer.body["expirations"].descriptor == UNDESCRIBED
    assert isinstance(until, timestamp)


def test_the_names_of_sessions_are_a_plain_array(bus: Bus) -> None:
    bus.send(SESSIONS, "x", session="N101")
    end_of_time = timestamp(253_402_300_799_000)
    with opened_client(bus.connection_string, SESSIONS) as client:
        body = {"last-updated-time": end_of_time, "skip": 0, "top": 10}
        names = manage(client, SESSIONS, "get-message-sessions", body).body["sessions-ids"]

    assert (names.descriptor, names.elements) == (UNDESCRIBED, ("N101",))


def test_the_condition_of_a_refusal_is_a_symbol(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        answer = manage(client, QUEUE, "cancel-scheduled-message", {"sequence-numbers": [7]})

    condition = answer.properties["errorCondition"]
    assert condition == "com.microsoft:message-not-found"
    assert isinstance(condition, symbol)


def ask(client: RawClient, payload: bytes) -> None:
    """Ask the management node of the queue for what these bytes say."""
    requests, responses = (client.attach(role, f"{QUEUE}/$management") for role in (False, True))
    client.give_credit(responses)
    client.transfer(requests, payload)


def test_a_request_whose_properties_are_no_map_is_answered_that_there_is_no_such_operation(
    bus: Bus,
) -> None:
    properties = raw_amqp.encode(Described(ulong(0x74), ulong(7)))
    with opened_client(bus.connection_string, QUEUE) as client:
        ask(client, properties + raw_amqp.encode(Described(ulong(0x77), {"top": 1})))

        assert client.response().properties["errorCondition"] == "amqp:not-implemented"


def test_a_request_whose_reply_to_is_not_utf_8_is_rejected(bus: Bus) -> None:
    request = Message(reply_to="odd name", properties={"operation": "x"}, body={})
    with opened_client(bus.connection_string, QUEUE) as client:
        ask(client, bytes(request.encode()).replace(b"odd name", b"odd\xffname"))
        outcome = client.outcome()
        while outcome[0] == 0:  # of the request for authorization
            outcome = client.outcome()

    assert outcome[1].descriptor == raw_amqp.REJECTED


def test_a_request_that_nests_too_deep_is_rejected(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        ask(client, b"\0\x53\x77" + raw_amqp.encode_nested(2000))
        outcome = client.outcome()
        while outcome[0] == 0:  # of the request for authorization
            outcome = client.outcome()

    assert outcome[1].descriptor == raw_amqp.REJECTED


def test_when_a_request_is_delayed_it_is_applied_and_answered_as_it_was_sent(bus: Bus) -> None:
    bodies = [f"{number:04}" * 500 for number in range(40)]
    bus.faults.arm(Fault("servicebus.east", Action.DELAY, "schedule", seconds=0.2))
    answers: dict[bytes, Any] = {}
    with opened_client(bus.connection_string, QUEUE) as client:
        requests, responses = (
            client.attach(role, f"{QUEUE}/$management") for role in (False, True)
        )
        client.give_credit(responses, 100)
        for body in bodies:
            message = bytes(Message(id="m", body=body).encode())
            request = Message(
                id=body[:16].encode(),
                properties={"operation": "com.microsoft:schedule-message"},
                body={"messages": [{"message": message}]},
            )
            client.transfer(requests, bytes(request.encode()))
        while len(answers) < len(bodies):
            answer = client.response()
            answers[bytes(answer.correlation_id)] = answer.properties["statusCode"]

    assert answers == {body[:16].encode(): 200 for body in bodies}
    with bus.receiver(QUEUE) as receiver:
        found = [one.raw_amqp_message.body for one in receiver.peek_messages(100)]
    assert sorted(found) == [body.encode() for body in bodies]


@pytest.mark.parametrize("count", [float("inf"), float("nan"), -1, 2**32])
@pytest.mark.parametrize("name", ["skip", "top"])
def test_a_count_in_a_request_that_no_count_can_be_is_refused(
    bus: Bus, name: str, count: float
) -> None:
    body = {"last-updated-time": timestamp(0), "skip": 0, "top": 10, name: count}
    with opened_client(bus.connection_string, SESSIONS) as client:
        answer = manage(client, SESSIONS, "get-message-sessions", body)

    assert answer.properties["errorCondition"] == "com.microsoft:argument-error"


@pytest.mark.parametrize("message", [2**62, "text", [1]])
def test_a_message_to_schedule_that_is_no_binary_is_refused(bus: Bus, message: object) -> None:
    body = {"messages": [{"message-id": "1", "message": message}]}
    with opened_client(bus.connection_string, QUEUE) as client:
        answer = manage(client, QUEUE, "schedule-message", body)

    assert answer.properties["errorCondition"] == "com.microsoft:argument-error"


PROPERTIES = {"attempt": 3, "who": "weather"}


def check_dead_letter(bus: Bus) -> None:
    """Why it is dead is told, and the properties are there beside its own."""
    with bus.client.get_queue_receiver(
        QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=60
    ) as receiver:
        dead = receive_one(receiver)
        receiver.complete_message(dead)
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("bad", "no wind")
    given = dict(dead.application_properties or {})
    assert (given[b"attempt"], given[b"who"], given[b"own"]) == (3, b"weather", b"kept")


def send_with_a_property(client: RawClient) -> None:
    handle = client.attach(SENDER, QUEUE)
    client.expect(raw_amqp.FLOW)
    message = Message(id="m", body=b"x", properties={"own": "kept", "attempt": 1})
    client.transfer(handle, bytes(message.encode()))
    client.outcome()


def test_properties_given_with_a_dead_letter_over_the_link_are_kept(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        send_with_a_property(client)
        receiving = client.attach(RECEIVER, QUEUE)
        client.give_credit(receiving)
        delivery_id = client.expect(raw_amqp.TRANSFER).fields[1]
        info = {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "no wind", **PROPERTIES}
        error = described(
            0x1D,
            symbol("com.microsoft:dead-letter"),
            None,
            {symbol(key): value for key, value in info.items()},
        )
        state = described(raw_amqp.REJECTED, error)
        client.write(raw_amqp.DISPOSITION, RECEIVER, delivery_id, None, False, state)
        client.outcome()

    check_dead_letter(bus)


def test_properties_given_with_a_dead_letter_by_management_are_kept(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client, bus.receiver(QUEUE) as receiver:
        send_with_a_property(client)
        body = {
            "disposition-status": "suspended",
            "lock-tokens": [receive_one(receiver).lock_token],
            "deadletter-reason": "bad",
            "deadletter-description": "no wind",
            "properties-to-modify": PROPERTIES,
        }

        assert manage(client, QUEUE, "update-disposition", body).properties["statusCode"] == 200

    check_dead_letter(bus)


def test_properties_given_with_an_abandon_are_there_when_it_comes_again(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        send_with_a_property(client)
        receiving = client.attach(RECEIVER, QUEUE)
        client.give_credit(receiving)
        first = client.expect(raw_amqp.TRANSFER)
        changes = {symbol(key): value for key, value in PROPERTIES.items()}
        state = described(raw_amqp.MODIFIED, True, False, changes)
        client.write(raw_amqp.DISPOSITION, RECEIVER, first.fields[1], None, False, state)
        again = client.response()

    assert again.properties == {"own": "kept", **PROPERTIES}
    assert again.delivery_count == 1


def test_a_property_that_is_a_map_is_refused_and_the_message_stays(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client, bus.receiver(QUEUE) as receiver:
        send_with_a_property(client)
        held = receive_one(receiver)
        body = {
            "disposition-status": "abandoned",
            "lock-tokens": [held.lock_token],
            "properties-to-modify": {"nested": {"a": 1}},
        }
        answer = manage(client, QUEUE, "update-disposition", body)
        receiver.complete_message(held)

    assert answer.properties["statusCode"] == 400
    assert "'nested'" in answer.properties["statusDescription"]


def test_the_token_for_an_unknown_entity_is_refused_as_not_found(bus: Bus) -> None:
    with raw_client(bus.connection_string) as client:
        assert client.authenticate("MSSBCBS") == 0
        client.open()
        answer: Any = client.put_token("nowhere")

    assert answer.properties["status-code"] == 404
    assert "'nowhere' could not be found" in answer.properties["status-description"]


def test_a_transaction_is_refused_by_name(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        coordinator = described(raw_amqp.COORDINATOR, [symbol("amqp:local-transactions")])
        client.attach(SENDER, "", target=coordinator)
        error = client.expect(raw_amqp.DETACH).fields[2].value

    assert error[:2] == ["amqp:not-implemented", "Transactions are not honoured"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/$servicebus/websocket", {"Upgrade": "websocket", "Connection": "Upgrade"}),
        ("/", {"Upgrade": "websocket", "Connection": "keep-alive, Upgrade"}),
        ("/$servicebus/websocket/", {}),
    ],
)
def test_websockets_are_refused_by_name_and_the_transport_to_set_is_told(
    bus: Bus, path: str, headers: dict[str, str]
) -> None:
    connection = HTTPConnection(bus.namespace.host, bus.namespace.port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()

    assert answer.status == 501
    assert "AMQP over WebSockets is not offered" in said
    assert "ServiceBusTransportType.AmqpTcp in .NET" in said


def test_transfer_dead_letters_are_refused_by_name(bus: Bus) -> None:
    path = f"{QUEUE}/$Transfer/$DeadLetterQueue"
    with opened_client(bus.connection_string, QUEUE) as client:
        answer: Any = client.put_token(path)
        client.attach(RECEIVER, path)
        condition, description = client.expect(raw_amqp.DETACH).fields[2].value[:2]

    assert answer.properties["status-code"] == 404
    assert condition == "amqp:not-found"
    for said in (description, answer.properties["status-description"]):
        assert said.endswith("nothing is sent by way of another entity here")
