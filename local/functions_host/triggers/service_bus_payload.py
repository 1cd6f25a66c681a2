"""A received message as the real host hands it to the worker, cardinality one.

The names and forms follow the Service Bus extension's binding data: texts as strings, numbers,
dates and maps as JSON, absent values left out. Its traps are kept:

* `EnqueuedTimeUtc` and `ExpiresAtUtc` carry no zone, so Python reads them as naive datetimes.
* Each top-level field of a JSON object body that is not a list overwrites the entry of the same
  name, in any case: a body can forge `MessageId`, or break the run with a bad `DeliveryCount`.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import proton

from local.functions_host.amqp.receiver import ReceivedMessage
from local.functions_host.protos import TypedData
from local.functions_host.triggers.dotnet import date_json, invariant_text, plain_json

END_OF_TIME = "9999-12-31T23:59:59.9999999"
ACTIONS = (
    "MessageReceiver",
    "MessageSession",
    "MessageActions",
    "SessionActions",
    "ReceiveActions",
)
TEXTS = (
    "MessageId",
    "SessionId",
    "CorrelationId",
    "Subject",
    "Label",
    "To",
    "ReplyTo",
    "ReplyToSessionId",
    "ContentType",
    "PartitionKey",
    "LockToken",
    "DeadLetterSource",
)
JSONS = ("DeliveryCount", "EnqueuedTimeUtc", "EnqueuedTime", "ExpiresAtUtc", "ExpiresAt")
OBJECTS = dict.fromkeys((*ACTIONS, "Client"), TypedData(json="{}"))


@dataclass(frozen=True, slots=True)
class Payload:
    """What goes to the worker: the input itself and its trigger metadata."""

    data: TypedData
    metadata: Mapping[str, TypedData]


def payload(
    message: ReceivedMessage, session_id: str | None, function: str, binary: bool
) -> Payload:
    """Decode a message and build both; `binary` hands the body over as bytes."""
    decoded = proton.Message()
    decoded.decode(message.content)
    body = body_bytes(decoded.body)
    metadata = message_metadata(decoded, session_id or decoded.group_id, message.tag)
    metadata["sys"] = system_entry(function)
    if binary:
        return Payload(TypedData(bytes=body), metadata)
    text = body.decode("utf-8", "replace")
    apply_body(text, metadata)
    return Payload(TypedData(string=text), metadata)


def body_bytes(body: Any) -> bytes:
    """The bytes of a data section; any other kind of body is empty here."""
    match body:
        case bytes() | bytearray() | memoryview():
            return bytes(body)
        case str():
            return body.encode()
        case _:
            return b""


def message_metadata(
    message: proton.Message, session_id: str | None, tag: bytes
) -> dict[str, TypedData]:
    """Build the entries a message gives; None and what the message lacks is left out."""
    annotations: Mapping[str, Any] = message.annotations or {}  # symbols equal their texts
    properties = TypedData(json=plain_json(message.properties or {}))
    enqueued = moment(annotations.get("x-opt-enqueued-time"))
    expires = expiry(message, annotations)
    texts = {
        "MessageId": message.id,
        "SessionId": session_id,
        "CorrelationId": message.correlation_id,
        "Subject": message.subject,
        "Label": message.subject,
        "To": message.address,
        "ReplyTo": message.reply_to,
        "ReplyToSessionId": message.reply_to_group_id,
        "ContentType": content_type_of(message),
        "PartitionKey": annotations.get("x-opt-partition-key"),
        "TransactionPartitionKey": annotations.get("x-opt-via-partition-key"),
        "LockToken": str(uuid.UUID(bytes_le=tag)) if len(tag) == 16 else None,
        "DeadLetterSource": annotations.get("x-opt-deadletter-source"),
    }
    jsons = {
        "DeliveryCount": str(message.delivery_count + 1),
        "SequenceNumber": str(int(annotations.get("x-opt-sequence-number", -1))),
        "EnqueuedTimeUtc": f'"{enqueued}"',
        "EnqueuedTime": f'"{enqueued}+00:00"',
        "ExpiresAtUtc": f'"{expires}"',
        "ExpiresAt": f'"{expires}+00:00"',
    }
    metadata = OBJECTS.copy()
    metadata |= {name: TypedData(string=str(value)) for name, value in texts.items() if value}
    metadata |= {name: TypedData(json=value) for name, value in jsons.items()}
    metadata["ApplicationProperties"] = metadata["UserProperties"] = properties
    return metadata


def content_type_of(message: proton.Message) -> str | None:
    """The content type; Proton writes an absent one as the symbol `None`."""
    content_type = str(message.content_type)
    return None if content_type in ("", "None") else content_type


def moment(milliseconds: Any) -> str:
    """A point in time in .NET's form without zone; an absent one is the beginning of time."""
    if milliseconds is None:
        return "0001-01-01T00:00:00"
    return date_json(datetime.fromtimestamp(int(milliseconds) / 1000, UTC))


def expiry(message: proton.Message, annotations: Mapping[str, Any]) -> str:
    """When the message expires: enqueued plus time to live, or never."""
    enqueued = annotations.get("x-opt-enqueued-time")
    if not message.ttl or enqueued is None:
        return END_OF_TIME
    return moment(int(enqueued) + int(message.ttl * 1000))


def apply_body(text: str, metadata: dict[str, TypedData]) -> None:
    """Let the fields of a JSON object overwrite entries, as the real host does."""
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return
    try:
        fields = json.loads(text)
    except ValueError:
        return
    names = {name.lower(): name for name in metadata}
    for field, value in fields.items():
        name = names.setdefault(field.lower(), field)
        match value:
            case None | list():
                continue
            case dict():
                metadata[name] = TypedData(json=json.dumps(value, separators=(",", ":")))
            case _:
                metadata[name] = TypedData(string=invariant_text(value))


def system_entry(function: str) -> TypedData:
    """The `sys` entry every invocation has."""
    now = date_json(datetime.now(UTC))
    return TypedData(
        json=f'{{"MethodName":"{function}","UtcNow":"{now}Z","RandGuid":"{uuid.uuid4()}"}}'
    )
