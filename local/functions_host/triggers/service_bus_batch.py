"""Received messages as the real host hands them to the worker, cardinality many.

For each entry of a single message there is one named `...Array`. Its trap is kept: an array of
strings leaves out the messages that lack the value, so what follows moves up and belongs to the
wrong message; so do the bodies, when one is empty. Numbers, dates and maps stay in their places.
"""

from collections.abc import Sequence
from types import SimpleNamespace

import proton

from local.functions_host.amqp.receiver import ReceivedMessage
from local.functions_host.protos import TypedData
from local.functions_host.triggers.service_bus_payload import (
    JSONS,
    OBJECTS,
    TEXTS,
    Payload,
    body_bytes,
    message_metadata,
    system_entry,
)

SHIFTED_KEY = "TransactionPartitionKey"


def batch_payload(
    messages: Sequence[ReceivedMessage], session_id: str | None, function: str, binary: bool
) -> Payload:
    """Decode the messages and build both; `binary` hands the bodies over as bytes."""
    decoded = [decode(message) for message in messages]
    bodies = [body for one in decoded if (body := body_bytes(one.body))]
    entries = [
        message_metadata(one, session_id or one.group_id, message.tag)
        for one, message in zip(decoded, messages, strict=True)
    ]
    metadata = OBJECTS | arrays(entries)
    metadata["sys"] = system_entry(function)
    if binary:
        return Payload(TypedData(collection_bytes=SimpleNamespace(bytes=bodies)), metadata)
    texts = [body.decode("utf-8", "replace") for body in bodies]
    return Payload(TypedData(collection_string=SimpleNamespace(string=texts)), metadata)


def decode(message: ReceivedMessage) -> proton.Message:
    """Read the sections of a message."""
    decoded = proton.Message()
    decoded.decode(message.content)
    return decoded


def arrays(entries: Sequence[dict[str, TypedData]]) -> dict[str, TypedData]:
    """Turn the entries of single messages into arrays."""
    found = {f"{name}Array": texts_of(entries, name) for name in TEXTS}
    # The extension fills this array with the other key's values.
    found[f"{SHIFTED_KEY}Array"] = texts_of(entries, "PartitionKey")
    for name in (*JSONS, "ApplicationProperties", "UserProperties"):
        values = ",".join(entry[name].json for entry in entries)
        found[f"{name}Array"] = TypedData(json=f"[{values}]")
    numbers = [int(entry["SequenceNumber"].json) for entry in entries]
    found["SequenceNumberArray"] = TypedData(collection_sint64=SimpleNamespace(sint64=numbers))
    return found


def texts_of(entries: Sequence[dict[str, TypedData]], name: str) -> TypedData:
    """The values of one name, without the messages that have none."""
    values = [entry[name].string for entry in entries if name in entry]
    return TypedData(collection_string=SimpleNamespace(string=values))
