"""Received messages as the real host hands them to the worker, alone or in batches.

The names and forms follow the Service Bus extension's binding data: texts as strings, numbers,
dates and maps as JSON, absent values left out. Its traps are kept:

* `EnqueuedTimeUtc` and `ExpiresAtUtc` carry no zone, so Python reads them as naive datetimes.
* Cardinality one: each top-level field of a JSON object body that is not a list overwrites the
  entry of the same name, in any case: a body can forge `MessageId`, or break the run with a bad
  `DeliveryCount`.
* Cardinality many: for each entry of a single message there is one named `...Array`. An array of
  strings leaves out the messages that lack the value, so what follows moves up and belongs to the
  wrong message; so do the bodies, when one is empty. Numbers, dates and maps stay in their places.
"""

import base64
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import proton

from local.functions_host.clients.receivers import ReceivedMessage
from local.functions_host.protos import TypedData
from local.servicebus.amqp.message_format import DATA, content_of, read_sections

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
ISO_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,7})?(?:Z|[+-]\d\d:\d\d)?")
OBJECTS = dict.fromkeys((*ACTIONS, "Client"), TypedData(json="{}"))


class BodyNotBound(ValueError):
    """The body is an AMQP value or sequence, which the real host's binding cannot read."""


@dataclass(frozen=True, slots=True)
class MessagePayload:
    data: TypedData
    metadata: Mapping[str, TypedData]


def message_payload(
    message: ReceivedMessage, session_id: str | None, function: str, binary: bool
) -> MessagePayload:
    """Build the payload of cardinality one; `binary` hands the body over as bytes.

    Raises BodyNotBound.
    """
    decoded = message.decode()
    if decoded.body is not None and not is_data(decoded):
        raise BodyNotBound("Value cannot be retrieved using the Body property")
    body = body_bytes(message.content, decoded)
    metadata = message_metadata(decoded, session_id or decoded.group_id, message.tag)
    metadata["sys"] = system_entry(function)
    if binary:
        return MessagePayload(TypedData(bytes=body), metadata)
    text = body.decode("utf-8", "replace")
    overwrite_with_body(text, metadata)
    return MessagePayload(TypedData(string=text), metadata)


def batch_payload(
    messages: Sequence[ReceivedMessage], session_id: str | None, function: str, binary: bool
) -> MessagePayload:
    """Build the payload of cardinality many; `binary` hands the bodies over as bytes."""
    decoded = [message.decode() for message in messages]
    bodies = [
        body
        for one, message in zip(decoded, messages, strict=True)
        if (body := body_bytes(message.content, one))
    ]
    entries = [
        message_metadata(one, session_id or one.group_id, message.tag)
        for one, message in zip(decoded, messages, strict=True)
    ]
    metadata = OBJECTS | arrays_of(entries)
    metadata["sys"] = system_entry(function)
    if binary:
        return MessagePayload(TypedData(collection_bytes=SimpleNamespace(bytes=bodies)), metadata)
    texts = [body.decode("utf-8", "replace") for body in bodies]
    return MessagePayload(TypedData(collection_string=SimpleNamespace(string=texts)), metadata)


def is_data(decoded: proton.Message) -> bool:
    """Return whether the body is a data section: Proton calls it inferred; a list is a sequence."""
    return bool(decoded.inferred) and isinstance(decoded.body, bytes | bytearray | memoryview)


def body_bytes(content: bytes, decoded: proton.Message) -> bytes:
    """The bytes of all data sections, joined; any other kind of body is empty here.

    Of several data sections Proton keeps the last one only, so they are read from the encoded
    message.
    """
    if isinstance(decoded.body, str):
        return decoded.body.encode()
    if not isinstance(decoded.body, bytes | bytearray | memoryview):
        return b""
    places = [
        content_of(content, section.value)
        for section in read_sections(content)
        if section.code == DATA
    ]
    if len(places) < 2:
        return bytes(decoded.body)
    return b"".join(content[start : start + size] for start, size in places)


def message_metadata(
    message: proton.Message, session_id: str | None, tag: bytes
) -> dict[str, TypedData]:
    """Build the entries a message gives; None and what the message lacks is left out."""
    annotations: Mapping[str, Any] = message.annotations or {}  # symbols equal their texts
    own_properties: Mapping[Any, Any] = message.properties or {}
    named = {as_text(name): as_dotnet(value) for name, value in own_properties.items()}
    properties = TypedData(json=json.dumps(named, default=as_text, ensure_ascii=False))
    enqueued = moment(annotations.get("x-opt-enqueued-time"))
    expires = expiry(message, annotations)
    content_type = str(message.content_type)  # Proton writes an absent one as the symbol `None`
    texts = {
        "MessageId": message.id,
        "SessionId": session_id,
        "CorrelationId": message.correlation_id,
        "Subject": message.subject,
        "Label": message.subject,
        "To": message.address,
        "ReplyTo": message.reply_to,
        "ReplyToSessionId": message.reply_to_group_id,
        "ContentType": None if content_type == "None" else content_type,
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


def moment(milliseconds: Any) -> str:
    """A point in time in .NET's form without zone; an absent one is the beginning of time."""
    if milliseconds is None:
        return "0001-01-01T00:00:00"
    try:
        return date_json(
            datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(milliseconds))
        )
    except OverflowError:  # .NET's dates go no further either
        return END_OF_TIME if milliseconds > 0 else "0001-01-01T00:00:00"


def expiry(message: proton.Message, annotations: Mapping[str, Any]) -> str:
    """Return when the message expires: enqueued plus time to live, or never."""
    enqueued = annotations.get("x-opt-enqueued-time")
    if not message.ttl or enqueued is None:
        return END_OF_TIME
    return moment(int(enqueued) + int(message.ttl * 1000))


def overwrite_with_body(text: str, metadata: dict[str, TypedData]) -> None:
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


def arrays_of(entries: Sequence[dict[str, TypedData]]) -> dict[str, TypedData]:
    arrays = {f"{name}Array": present_texts(entries, name) for name in TEXTS}
    # The extension fills this array with the other key's values.
    arrays["TransactionPartitionKeyArray"] = present_texts(entries, "PartitionKey")
    for name in (*JSONS, "ApplicationProperties", "UserProperties"):
        values = ",".join(entry[name].json for entry in entries)
        arrays[f"{name}Array"] = TypedData(json=f"[{values}]")
    numbers = [int(entry["SequenceNumber"].json) for entry in entries]
    arrays["SequenceNumberArray"] = TypedData(collection_sint64=SimpleNamespace(sint64=numbers))
    return arrays


def present_texts(entries: Sequence[dict[str, TypedData]], name: str) -> TypedData:
    """The values of one name, without the messages that have none."""
    values = [entry[name].string for entry in entries if name in entry]
    return TypedData(collection_string=SimpleNamespace(string=values))


def system_entry(function: str) -> TypedData:
    now = date_json(datetime.now(UTC))
    document = f'{{"MethodName":"{function}","UtcNow":"{now}Z","RandGuid":"{uuid.uuid4()}"}}'
    return TypedData(json=document)


def date_json(moment: datetime) -> str:
    """A date as Newtonsoft writes one of unspecified kind: no zone, no trailing zeros."""
    text = moment.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if moment.microsecond else text


def invariant_text(value: Any) -> str:
    """A JSON scalar turned into text by .NET's invariant culture.

    Newtonsoft takes strings that look like ISO dates for dates, so they change their form to
    `MM/dd/yyyy HH:mm:ss`, in UTC as on the platform's machines, and Python's worker cannot read
    them back.
    """
    match value:
        case bool():
            return "True" if value else "False"
        case str() if ISO_DATE.fullmatch(value):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                return value
            if moment.tzinfo is not None:
                moment = moment.astimezone(UTC)
            return moment.strftime("%m/%d/%Y %H:%M:%S")
        case _:
            return str(value)


def as_dotnet(value: Any) -> Any:
    """A value of an application property as .NET's SDK reads it, for Newtonsoft to write.

    A time is one in UTC, and .NET's own types are described ones: a `DateTimeOffset` by its ticks
    of 100 ns since the year 1, a `Uri` by its text.
    """
    match value:
        case proton.timestamp():
            return f"{moment(value)}Z"
        case proton.Described(descriptor="com.microsoft:datetime-offset", value=int(ticks)):
            since = timedelta(microseconds=ticks // 10)
            return f"{date_json(datetime(1, 1, 1, tzinfo=UTC) + since)}+00:00"
        case proton.Described(descriptor="com.microsoft:uri", value=str(text)):
            return text
    return value


def as_text(value: Any) -> str:
    """Write a value that JSON has no form for: bytes in base64, the rest as Python prints it."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return str(value)
