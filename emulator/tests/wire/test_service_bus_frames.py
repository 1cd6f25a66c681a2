"""What clients put on the wire against the specification of AMQP, and Azure takes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from uuid import UUID

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError
from proton import UNDESCRIBED, Array, Data, Described, Message, symbol, uint, ulong

from local.testing import raw_amqp
from local.testing.patience import eventually
from local.testing.raw_amqp import (
    ATTACH,
    DETACH,
    RECEIVER,
    SENDER,
    SOURCE,
    TARGET,
    RawClient,
    described,
    encode,
    encode_list,
    encode_nested,
    opened_client,
)
from wire.service_bus import SECONDS_MAX, Bus, receive, receive_one, running_bus

pytestmark = pytest.mark.wire
QUEUE, SESSIONS = "parcels", "flights"
HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES = 0x70, 0x71, 0x72, 0x73
APPLICATION_PROPERTIES, DATA = 0x74, 0x75


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def section(code: int, value: Any) -> bytes:
    return encode(Described(ulong(code), value))


def sending(client: RawClient, queue: str) -> int:
    """The handle of a link that has credit."""
    handle = client.attach(SENDER, queue)
    client.expect(raw_amqp.FLOW)
    return handle


def bodies(bus: Bus, queue: str = QUEUE, session: object = None, count: int = 1) -> list[bytes]:
    """What is received and completed, in order."""
    with bus.receiver(queue, session) as receiver:
        messages = receive(receiver, count)
        for message in messages:
            receiver.complete_message(message)
    return [b"".join(message.body) for message in messages]


@pytest.mark.parametrize("ids", [[5, 5, 5], [1, 0, 2], [7, 9, 8]])
def test_requests_with_repeated_or_exchanged_delivery_ids_are_each_answered(
    bus: Bus, ids: list[int]
) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        node = f"{QUEUE}/$management"
        requests, responses = client.attach(SENDER, node), client.attach(RECEIVER, node)
        client.give_credit(responses)
        client.expect(raw_amqp.FLOW)
        # The token took one id. These come together, before any is answered.
        for number, delivery_id in enumerate(ids):
            peek = Message(
                id=f"request {number}",
                reply_to=node,
                body={"from-sequence-number": 0, "message-count": 1},
                properties={"operation": "com.microsoft:peek-message"},
            )
            client.transfer(requests, bytes(peek.encode()), delivery_id=delivery_id)
        settled: list[int] = []
        answered: list[object] = []
        while len(settled) < len(ids) or len(answered) < len(ids):
            frame = client.read()
            assert frame.code not in (raw_amqp.END, raw_amqp.CLOSE), frame
            if frame.code == raw_amqp.DISPOSITION:
                first, last = frame.fields[1], frame.fields[2]
                settled += range(first, (first if last is None else last) + 1)
            elif frame.code == raw_amqp.TRANSFER:
                answer = Message()
                answer.decode(frame.payload)
                answered.append(answer.correlation_id)

    # Under the ids that the client sent, in its order.
    assert settled == ids
    assert answered == ["request 0", "request 1", "request 2"]


@pytest.mark.parametrize("place", ["name", "source", "target"])
def test_a_link_with_a_text_that_is_not_utf_8_is_refused_and_the_connection_goes_on(
    bus: Bus, place: str
) -> None:
    names = {"name": "link-x", "source": QUEUE, "target": "client-x"} | {place: "PLACE"}
    ends = (described(SOURCE, names["source"]), described(TARGET, names["target"]))
    attach = encode(described(ATTACH, names["name"], uint(9), RECEIVER, None, None, *ends))
    assert attach.count(b"PLACE") == 1
    with opened_client(bus.connection_string, QUEUE) as client:
        client.write_body(attach.replace(b"PLACE", b"\xff\xfe\xff\xfe\xff"))

        # The answer repeats what cannot be decoded, so it is looked at as it is.
        body = b""
        while not body.startswith(bytes((0, 0x53, DETACH))):
            body, _ = client.read_body()
        assert b"amqp:decode-error" in body
        client.attach(RECEIVER, QUEUE)
        assert client.expect(ATTACH).fields[0] == "link-2"


REJECTED, MODIFIED, ERROR, REASON = 0x25, 0x27, 0x1D, symbol("reason")
DEEP = encode_nested(2000)


def rejected(*error: Any) -> bytes:
    return encode(described(REJECTED, described(ERROR, *error)))


@pytest.mark.parametrize(
    "outcome",
    [
        rejected(symbol("odd name"), "why"),
        rejected(REASON, "odd name"),
        rejected(REASON, "why", {symbol("odd name"): 1}),
        b"\0\x53\x25" + encode_list(b"\0\x53\x1d" + encode_list(encode(REASON), b"\x40", DEEP)),
        encode(described(MODIFIED, True, True, {REASON: "odd name"})),
        b"\0\x53\x27" + encode_list(b"\x41", b"\x41", DEEP),
    ],
    ids=["condition", "description", "info", "deep info", "annotations", "deep annotations"],
)
def test_an_outcome_that_cannot_be_read_is_refused_and_the_connection_goes_on(
    bus: Bus, outcome: bytes
) -> None:
    payload = bytes(Message(body="x").encode())
    with opened_client(bus.connection_string, QUEUE) as client:
        handle, receiver = sending(client, QUEUE), client.attach(RECEIVER, QUEUE)
        client.transfer(handle, payload)
        client.give_credit(receiver)
        number = client.expect(raw_amqp.TRANSFER).fields[1]
        fields = encode_list(b"\x41", encode(uint(number)), b"\x40", b"\x42", outcome)
        client.write_body(b"\0\x53\x15" + fields.replace(b"odd name", b"odd\xffname"))
        while (frame := client.expect(raw_amqp.DISPOSITION)).fields[0] is not False:
            pass  # those of what it sent itself
        client.transfer(handle, payload)

        assert frame.fields[4].value[0].value[0] == "amqp:decode-error"
        assert client.outcome()[1].descriptor == raw_amqp.ACCEPTED


def test_ids_of_one_session_do_not_disturb_another(bus: Bus) -> None:
    with opened_client(bus.connection_string, QUEUE) as client:
        handle = sending(client, QUEUE)
        for delivery_id in (9, 9):
            body = bytes(Message(id=str(delivery_id), body=b"x", inferred=True).encode())
            client.transfer(handle, body, delivery_id=delivery_id)
            assert client.outcome()[0] == 9
        for code, fields in (  # a second session, on a channel of its own
            (raw_amqp.BEGIN, (None, uint(100), uint(5000), uint(5000))),
            (
                raw_amqp.ATTACH,
                (
                    *("again", uint(0), SENDER, None, None),
                    *(described(raw_amqp.SOURCE, "c"), described(raw_amqp.TARGET, QUEUE)),
                    *(None, None, uint(0)),
                ),
            ),
            (raw_amqp.TRANSFER, (uint(0), uint(100), b"t", uint(0), False, False)),
        ):
            payload = bytes(Message(id="m", body=b"y", inferred=True).encode())
            behind = payload if code == raw_amqp.TRANSFER else b""
            client.socket.sendall(raw_amqp.framed(code, *fields, payload=behind, channel=3))
        assert client.outcome() == (100, client_accepted())
    assert bodies(bus, count=3) == [b"x", b"x", b"y"]


def client_accepted() -> object:
    return described(raw_amqp.ACCEPTED)


def test_many_threads_renew_locks_over_one_receiver(bus: Bus) -> None:
    """As AutoLockRenewer does: nothing is lost, and the connection stays."""
    bus.send(QUEUE, *"abcdefgh")
    with bus.receiver(QUEUE) as receiver:
        messages = receive(receiver, 8)

        def renew(message: ServiceBusReceivedMessage) -> object:
            return receiver.renew_message_lock(message, timeout=SECONDS_MAX)

        with ThreadPoolExecutor(8) as threads:
            for _ in range(5):
                assert all(threads.map(renew, messages))
        for message in messages:
            receiver.complete_message(message)

    assert bus.count("renew-lock") == 40
    assert bus.namespace.depth(QUEUE)["locked"] == 0


def test_delivery_annotations_behind_the_body_are_taken_and_handed_on(bus: Bus) -> None:
    sent = AmqpAnnotatedMessage(
        data_body=b"x",
        delivery_annotations={"hop": "first"},
        annotations={"x-opt-partition-key": "p"},
        footer={"checksum": 7},
    )
    with bus.client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(sent)
        batch = sender.create_message_batch()
        batch.add_message(sent)
        batch.add_message(AmqpAnnotatedMessage(data_body=b"y"))
        sender.send_messages(batch)
    with bus.receiver(QUEUE) as receiver:
        messages = receive(receiver, 3)
        for message in messages:
            receiver.complete_message(message)

    assert [b"".join(message.body) for message in messages] == [b"x", b"x", b"y"]
    for message in messages[:2]:
        raw = message.raw_amqp_message
        assert dict(raw.delivery_annotations or {})[b"hop"] == b"first"
        assert dict(raw.footer or {}) == {b"checksum": 7}
        assert dict(raw.annotations or {})[b"x-opt-partition-key"] == b"p"


def test_a_body_that_is_itself_a_message_is_no_batch(bus: Bus) -> None:
    inner = bytes(Message(id="inner", body=b"inner", inferred=True).encode())
    with bus.client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(ServiceBusMessage(inner, message_id="outer"))

    assert bodies(bus) == [inner]


def test_only_the_message_format_makes_a_batch(bus: Bus) -> None:
    parts = [bytes(Message(id=name, body=name.encode(), inferred=True).encode()) for name in "ab"]
    payload = b"".join(section(DATA, part) for part in parts)
    with opened_client(bus.connection_string, QUEUE) as client:
        handle = sending(client, QUEUE)
        client.transfer(handle, payload, kind=raw_amqp.BATCH)
        assert client.outcome()[1].descriptor == raw_amqp.ACCEPTED
        client.transfer(handle, payload, kind=0)
        assert client.outcome()[1].descriptor == raw_amqp.ACCEPTED

    assert bus.namespace.depth(QUEUE)["active"] == 3
    assert bodies(bus, count=3)[2] == b"".join(parts)


def test_a_batch_that_holds_something_else_is_refused_whole(bus: Bus) -> None:
    good = bytes(Message(id="a", body=b"a").encode())
    payload = section(DATA, good) + section(DATA, b"\x00Ssomething else")
    with opened_client(bus.connection_string, QUEUE) as client:
        client.transfer(sending(client, QUEUE), payload, kind=raw_amqp.BATCH)
        error = client.outcome()[1].value[0].value

    assert error[0] == "amqp:decode-error"
    assert bus.namespace.depth(QUEUE)["active"] == 0


@pytest.mark.parametrize("session_id", [7, symbol("N101"), b"N101", UUID(int=1)])
def test_a_session_id_that_is_no_string_is_refused(bus: Bus, session_id: object) -> None:
    properties = section(PROPERTIES, ["m", *[None] * 9, session_id])
    with opened_client(bus.connection_string, SESSIONS) as client:
        client.transfer(sending(client, SESSIONS), properties + section(DATA, b"x"))
        state = client.outcome()[1]

    assert state.descriptor == raw_amqp.REJECTED
    condition, description = state.value[0].value[:2]
    assert condition == "amqp:decode-error"
    assert "the session id is no string" in description
    assert bus.namespace.depth(SESSIONS)["active"] == 0


def test_a_session_asked_for_by_what_is_no_string_is_refused(bus: Bus) -> None:
    receiver = bus.client.get_queue_receiver(SESSIONS, session_id=cast(Any, 1))

    with pytest.raises(ServiceBusError, match="is no string"), receiver:
        pass


def test_a_delivery_has_annotations_for_it_also_when_there_are_none(bus: Bus) -> None:
    bus.send("parcels", "a")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE

    with bus.client.get_queue_receiver("parcels", receive_mode=mode, max_wait_time=60) as receiver:
        message = receive_one(receiver)

    assert message.raw_amqp_message.delivery_annotations == {}


def test_what_is_received_and_deleted_has_an_empty_tag_and_so_no_lock_token(bus: Bus) -> None:
    large = "b" * 100_000  # comes in two frames
    for body in ("a", large):
        bus.send(QUEUE, body)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE

    with bus.client.get_queue_receiver(QUEUE, receive_mode=mode, max_wait_time=60) as receiver:
        messages = receive(receiver, 2)

    assert [b"".join(message.body) for message in messages] == [b"a", large.encode()]
    assert [message._delivery_tag for message in messages] == [b"", b""]
    assert [message.lock_token for message in messages] == [None, None]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"a": 1}, "map"),
        ([1, 2], "list"),
        ([], "list"),
        (Array(cast(Any, UNDESCRIBED), Data.INT, 1), "array"),
    ],
)
def test_an_application_property_of_no_simple_type_is_refused_when_sent(
    bus: Bus, value: object, kind: str
) -> None:
    properties = section(APPLICATION_PROPERTIES, {"route": value})
    with opened_client(bus.connection_string, QUEUE) as client:
        client.transfer(sending(client, QUEUE), properties + section(DATA, b"x"))
        error = client.outcome()[1].value[0].value

    assert error[0] == "amqp:link:message-size-exceeded"
    assert f"unsupported type {kind}" in error[1]
    assert "'route'" in error[1]
    assert bus.namespace.depth(QUEUE)["active"] == 0


def test_the_sdk_says_so_too(bus: Bus) -> None:
    properties: Any = {"route": {"from": "BOS"}}
    with (
        bus.client.get_queue_sender(QUEUE) as sender,
        pytest.raises(MessageSizeExceededError, match="unsupported type map"),
    ):
        sender.send_messages(ServiceBusMessage("x", application_properties=properties))


def test_the_lock_token_is_among_the_delivery_annotations(bus: Bus) -> None:
    bus.send(QUEUE, "x")
    with bus.receiver(QUEUE) as receiver:
        (peeked,) = receiver.peek_messages()
        message = receive_one(receiver)
        annotations = dict(message.raw_amqp_message.delivery_annotations or {})
        assert annotations[b"x-opt-lock-token"] == message.lock_token
        receiver.complete_message(message)

    assert not peeked.raw_amqp_message.delivery_annotations


def test_a_deferred_message_says_that_it_is_one(bus: Bus) -> None:
    bus.send(QUEUE, "x")
    with bus.receiver(QUEUE) as receiver:
        message = receive_one(receiver)
        receiver.defer_message(message)
        (peeked,) = receiver.peek_messages(sequence_number=1)
        (received,) = receiver.receive_deferred_messages(message.sequence_number or 0)
        receiver.complete_message(received)

    deferred = ServiceBusMessageState.DEFERRED
    assert (message.state, peeked.state) == (ServiceBusMessageState.ACTIVE, deferred)
    assert received.state == deferred


@pytest.mark.parametrize("way", ["send", "batch", "schedule"])
def test_a_message_without_an_id_gets_one_on_arrival(bus: Bus, way: str) -> None:
    sections = section(PROPERTIES, [None, None, None, "subject"]) + section(DATA, b"x")
    with opened_client(bus.connection_string, QUEUE) as client:
        if way == "schedule":
            node = f"{QUEUE}/$management"
            requests, responses = client.attach(SENDER, node), client.attach(RECEIVER, node)
            client.give_credit(responses)
            request = Message(
                id="r",
                reply_to=node,
                body={"messages": [{"message": sections}, {"message": section(DATA, b"x")}]},
                properties={"operation": "com.microsoft:schedule-message"},
            )
            client.transfer(requests, bytes(request.encode()))
            assert client.response().properties["statusCode"] == 200
        else:
            handle = sending(client, QUEUE)
            for bare in (sections, section(DATA, b"x")):
                payload = section(DATA, bare) if way == "batch" else bare
                client.transfer(handle, payload, kind=raw_amqp.BATCH if way == "batch" else 0)
                client.outcome()
    with bus.receiver(QUEUE) as receiver:
        first, second = receive(receiver, 2)
        for message in (first, second):
            receiver.complete_message(message)

    assert first.message_id
    assert second.message_id
    assert first.message_id != second.message_id
    assert (first.subject, b"".join(first.body)) == ("subject", b"x")


def test_after_a_stop_and_a_start_clients_come_back(bus: Bus) -> None:
    """The error with which the service closes connections is one that the SDK can read."""
    with (
        ServiceBusClient.from_connection_string(
            bus.namespace.connection_string, retry_backoff_factor=0.05
        ) as client,
        client.get_queue_sender(QUEUE) as sender,
        client.get_queue_receiver(QUEUE, max_wait_time=5) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        message = receive_one(receiver)
        receiver.complete_message(message)
        bus.namespace.stop()
        bus.namespace.start()
        sender.send_messages(ServiceBusMessage("after"))
        messages = receive(receiver, 1)
        receiver.complete_message(messages[0])

    assert [str(message) for message in messages] == ["after"]
    assert eventually(lambda: bus.namespace.depth(QUEUE)["active"] == 0)
