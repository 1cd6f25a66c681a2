"""The payload a function gets of a message, with the real host's traps."""

import json
import uuid
from typing import Any
from unittest.mock import sentinel

import proton
import pytest

from local.functions_host.clients.receivers import ReceivedMessage
from local.functions_host.triggers.service_bus_payload import (
    BodyNotBound,
    MessagePayload,
    message_payload,
)
from local.servicebus.amqp.message_format import Undecodable

TAG = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
ENQUEUED = 1_790_000_000_120


def payload_of(body: bytes, binary: bool = False, **fields: Any) -> MessagePayload:
    """Encode a message as a queue would and build its payload."""
    annotations = {
        proton.symbol("x-opt-sequence-number"): 41,
        proton.symbol("x-opt-enqueued-time"): proton.timestamp(ENQUEUED),
    }
    message = proton.Message(body=body, inferred=True, annotations=annotations, **fields)
    received = ReceivedMessage(message.encode(), TAG.bytes_le, sentinel.delivery)
    return message_payload(received, "N14228", "receive", binary)


def test_texts_are_strings_numbers_are_json_and_absent_values_are_left_out() -> None:
    payload = payload_of(b"{}", id="m-1", subject="departed", delivery_count=2, properties={"n": 1})

    seen = {name: (entry.kind, entry.value) for name, entry in payload.metadata.items()}
    assert seen["MessageId"] == ("string", "m-1")
    assert seen["SessionId"] == ("string", "N14228")
    assert seen["Subject"] == seen["Label"] == ("string", "departed")
    assert seen["LockToken"] == ("string", str(TAG))
    assert seen["DeliveryCount"] == ("json", "3")
    assert seen["SequenceNumber"] == ("json", "41")
    assert seen["UserProperties"] == seen["ApplicationProperties"] == ("json", '{"n": 1}')
    absent = {"CorrelationId", "ContentType", "To", "ReplyTo", "PartitionKey", "DeadLetterSource"}
    assert not absent & seen.keys()


TICKS_OF_2026 = 639_028_224_000_000_000


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (proton.timestamp(1_790_000_000_120), "2026-09-21T14:13:20.12Z"),
        (proton.timestamp(0), "1970-01-01T00:00:00Z"),
        (proton.timestamp(2**60), "9999-12-31T23:59:59.9999999Z"),
        (
            proton.Described(proton.symbol("com.microsoft:datetime-offset"), TICKS_OF_2026),
            "2026-01-01T00:00:00+00:00",
        ),
        (proton.Described(proton.symbol("com.microsoft:uri"), "urn:theirs"), "urn:theirs"),
        (uuid.UUID("0f6d1c3a-8f1e-4b7e-9c55-0d7b8f7f4e21"), "0f6d1c3a-8f1e-4b7e-9c55-0d7b8f7f4e21"),
        (b"\x00\xff", "AP8="),
        (proton.int32(5), 5),
    ],
)
def test_native_values_of_application_properties_are_written_as_by_dotnet(
    value: Any, written: object
) -> None:
    payload = payload_of(b"{}", properties={"value": value})

    assert json.loads(payload.metadata["ApplicationProperties"].value) == {"value": written}


def test_the_metadata_of_a_message_has_the_names_of_the_extension() -> None:
    """Those of ServiceBusTriggerBindingStrategy, and what the host adds for itself."""
    texts: dict[str, Any] = {
        "correlation_id": "c",
        "subject": "s",
        "address": "to",
        "reply_to": "r",
    }
    payload = payload_of(b"[]", id="m", content_type="t", reply_to_group_id="g", **texts)

    assert payload.metadata.keys() == {
        *("MessageReceiver", "MessageSession", "MessageActions", "SessionActions"),
        *("ReceiveActions", "Client", "DeliveryCount", "LockToken", "ExpiresAtUtc", "ExpiresAt"),
        *("EnqueuedTimeUtc", "EnqueuedTime", "MessageId", "ContentType", "ReplyTo", "To", "sys"),
        *("SequenceNumber", "Subject", "Label", "CorrelationId", "ApplicationProperties"),
        *("UserProperties", "SessionId", "ReplyToSessionId"),
    }


def test_utc_dates_carry_no_zone_and_the_others_do() -> None:
    payload = payload_of(b"{}", ttl=60)

    assert payload.metadata["EnqueuedTimeUtc"].value == '"2026-09-21T14:13:20.12"'
    assert payload.metadata["EnqueuedTime"].value == '"2026-09-21T14:13:20.12+00:00"'
    assert payload.metadata["ExpiresAtUtc"].value == '"2026-09-21T14:14:20.12"'


def test_a_message_without_time_to_live_expires_at_the_end_of_time() -> None:
    assert payload_of(b"{}").metadata["ExpiresAtUtc"].value == '"9999-12-31T23:59:59.9999999"'


def test_fields_of_the_body_overwrite_metadata_whatever_their_case() -> None:
    body = {"messageID": "forged", "sessionid": 7, "DeliveryCount": True, "status": {"a": [1]}}

    payload = payload_of(json.dumps(body).encode(), id="m-1")

    assert payload.metadata["MessageId"].value == "forged"
    assert payload.metadata["SessionId"].value == "7"
    assert (payload.metadata["DeliveryCount"].kind, payload.metadata["DeliveryCount"].value) == (
        "string",
        "True",
    )
    assert payload.metadata["status"].value == '{"a":[1]}'
    assert "messageID" not in payload.metadata


def test_lists_and_nulls_of_the_body_overwrite_nothing() -> None:
    payload = payload_of(b'{"MessageId": null, "SessionId": ["x"]}', id="m-1")

    assert payload.metadata["MessageId"].value == "m-1"
    assert payload.metadata["SessionId"].value == "N14228"


def test_a_date_in_the_body_changes_its_form_on_the_way() -> None:
    payload = payload_of(b'{"EnqueuedTimeUtc": "2013-01-01T15:17:00+10:00", "day": "2013-01-01"}')

    assert payload.metadata["EnqueuedTimeUtc"].value == "01/01/2013 05:17:00"
    assert payload.metadata["day"].value == "2013-01-01"


@pytest.mark.parametrize("body", [b"[1]", b"plain", b'{"broken": ', b"", b'"MessageId"'])
def test_a_body_that_is_no_json_object_overwrites_nothing(body: bytes) -> None:
    payload = payload_of(body, id="m-1")

    assert payload.data.value == body.decode()
    assert payload.metadata["MessageId"].value == "m-1"


def test_a_binary_binding_gets_bytes_and_cannot_be_overwritten() -> None:
    payload = payload_of(b'{"MessageId": "forged"}', binary=True, id="m-1")

    assert (payload.data.kind, payload.data.value) == ("bytes", b'{"MessageId": "forged"}')
    assert payload.metadata["MessageId"].value == "m-1"


@pytest.mark.parametrize("body", ["text", {"a": 1}, b"bytes", 7, [1, 2]])
def test_a_body_that_is_no_data_cannot_be_bound(body: Any) -> None:
    message = proton.Message(body=body, inferred=isinstance(body, list))
    received = ReceivedMessage(message.encode(), TAG.bytes_le, sentinel.delivery)

    with pytest.raises(BodyNotBound):
        message_payload(received, "N14228", "receive", True)


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(b"\x00St\xc1\x07\x02\xa1\x01k\xa1\x01\xff", id="a text that is not UTF-8"),
        pytest.param(b"\x00Sr\xc1\x05\x02\xa3\x01\xff\x40", id="a symbol that is not ASCII"),
        pytest.param(b"\x00St\xc1\x04\x02\xc0\x01\x00\x40", id="a list as a key"),
    ],
)
def test_what_python_cannot_hold_is_refused_by_one_error(section: bytes) -> None:
    received = ReceivedMessage(section, TAG.bytes_le, sentinel.delivery)

    with pytest.raises(Undecodable):
        message_payload(received, "N14228", "receive", True)
