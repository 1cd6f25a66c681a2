"""Encoded messages, read and written without decoding what the service need not know."""

from uuid import UUID

import pytest
from proton import Message as AmqpMessage
from proton import symbol, timestamp

from local.servicebus.amqp.message_format import Undecodable, read_transfer, write_delivery
from local.servicebus.message import (
    BrokeredMessage,
    DeadLetterReason,
    DeliveryLock,
    MessageState,
    StoredMessage,
)


def encoded(body: bytes, **properties: object) -> bytes:
    message = AmqpMessage(id="m", body=body, inferred=True)
    for name, value in properties.items():
        setattr(message, name, value)
    return bytes(message.encode())


def decoded(data: bytes) -> AmqpMessage:
    message = AmqpMessage()
    message.decode(data)
    return message


def data_section(content: bytes) -> bytes:
    return b"\x00\x53\x75\xb0" + len(content).to_bytes(4) + content


def test_session_time_to_live_and_schedule_are_read() -> None:
    data = encoded(
        b"x",
        group_id="N101",
        ttl=2.5,
        annotations={symbol("x-opt-scheduled-enqueue-time"): timestamp(5000)},
    )

    assert read_transfer(data, is_batch=False) == [BrokeredMessage(data, "N101", 2.5, 5.0, "m")]


def test_a_batch_is_read_as_its_messages() -> None:
    parts = [encoded(b"a", group_id="s1"), encoded(b"b", group_id="s2")]
    batch = b"".join(data_section(part) for part in parts)

    assert read_transfer(batch, is_batch=True) == [
        BrokeredMessage(parts[0], "s1", message_id="m"),
        BrokeredMessage(parts[1], "s2", message_id="m"),
    ]


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00Ss", b"\x00SuX and more", b'{"a": 1}'])
def test_a_single_message_is_never_taken_for_a_batch(body: bytes) -> None:
    data = encoded(body, group_id="s")

    assert read_transfer(data, is_batch=False) == [BrokeredMessage(data, "s", message_id="m")]


@pytest.mark.parametrize("data", [b"", b"\x00", b"hello", b"\x00\x53\x75\xb0\xff\xff\xff\xff"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(Undecodable):
        read_transfer(data, is_batch=False)


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(b"\x00\x53\x74\xc1\x04\x01\xa1\x01k", id="a key without a value"),
        pytest.param(b"\x00\x53\x73\xc0\x02\x05\x40", id="fewer fields than it says"),
        pytest.param(b"\x00\x53\x73\xc0\x03\x01\x40\x40", id="more fields than it says"),
        pytest.param(b"\x00\x53\x71\xc1\x04\x01\xa1\x01k", id="delivery annotations of half"),
        pytest.param(b"\x00\x53\x73\xc0\x03\x01\xa1\xff", id="a field that is cut off"),
        pytest.param(b"\x00\x53\x73\xc0\x02\x01\x3f", id="a field of no type"),
    ],
)
def test_a_section_that_is_no_list_or_map_is_refused(section: bytes) -> None:
    with pytest.raises(Undecodable):
        read_transfer(section, is_batch=False)


def test_a_described_key_of_an_annotation_is_not_the_schedule() -> None:
    key = b"\x00\xa3\x01k\xa3\x01v"
    annotations = b"\x00\x53\x72\xc1" + bytes((len(key) + 2, 2)) + key + b"\x40"
    data = annotations + encoded(b"a")[4:]

    [message] = read_transfer(data, is_batch=False)

    assert message.scheduled_for is None


def test_a_delivery_carries_the_service_s_annotations_around_untouched_bytes() -> None:
    data = encoded(
        b"\xff\x00",
        id="m1",
        durable=True,
        properties={"k": "v"},
        annotations={
            symbol("x-opt-partition-key"): "p",
            symbol("x-opt-sequence-number"): 99,
            symbol("x-opt-enqueue-sequence-number"): 99,
        },
    )
    stored = StoredMessage(
        7,
        BrokeredMessage(data),
        1.5,
        MessageState.LOCKED,
        delivery_count=2,
        lock=DeliveryLock(UUID(int=1), 31.5),
    )

    message = decoded(write_delivery(stored))

    assert message.body == b"\xff\x00"
    assert message.id == "m1"
    assert message.properties == {symbol("k"): "v"}
    assert (message.durable, message.delivery_count) == (True, 2)
    assert message.annotations == {
        "x-opt-partition-key": "p",
        "x-opt-sequence-number": 7,
        "x-opt-enqueued-time": 1500,
        "x-opt-locked-until": 31_500,
    }
    assert message.instructions == {"x-opt-lock-token": UUID(int=1)}


@pytest.mark.parametrize("properties", [{"k": "v"}, None])
def test_a_dead_letter_says_why_beside_its_own_properties(
    properties: dict[str, str] | None,
) -> None:
    data = encoded(b"x", id="m1", properties=properties)
    stored = StoredMessage(
        1, BrokeredMessage(data), 0.0, dead_letter=DeadLetterReason("broken", None)
    )

    message = decoded(write_delivery(stored))

    assert message.body == b"x"
    assert message.id == "m1"
    assert message.properties == {**(properties or {}), "DeadLetterReason": "broken"}
