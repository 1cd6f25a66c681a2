"""Messages, what an entry covers of them, and outboxes as JSON and back."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from shared.domain.journal import Covered
from shared.domain.message import Message, Number
from shared.domain.outbox import NOTHING_OWED, Elsewhere, Outbox, Parcel, Rerun, Staged

type Document = dict[str, Any]


def outbox_fields(outbox: Outbox) -> Document:
    """The fields an outbox adds to a document: none when it never held anything."""
    if outbox.is_empty:
        return {}
    stored: Document = {"regions": list(outbox.regions)}
    if outbox.elsewhere is None:
        stored["parcels"] = [parcel_json(parcel) for parcel in outbox.parcels]
    else:
        stored |= elsewhere_json(outbox.elsewhere)
    if outbox.refused:
        stored["refused"] = dict(outbox.refused)
    return {"outbox": stored} | ({"owing": list(outbox.regions)} if outbox.owing else {})


def elsewhere_json(elsewhere: Elsewhere) -> Document:
    """Where an outbox's messages are, as stored."""
    match elsewhere:
        case Staged():
            return {"staged": asdict(elsewhere)}
        case Rerun():
            return {"rerun": elsewhere.digest}


def outbox_from(document: Mapping[str, Any]) -> Outbox:
    """Read an outbox back."""
    stored = document.get("outbox")
    if stored is None:
        return NOTHING_OWED
    elsewhere: Elsewhere | None = None
    if "staged" in stored:
        elsewhere = Staged(**stored["staged"])
    elif "rerun" in stored:
        elsewhere = Rerun(stored["rerun"])
    parcels = tuple(parcel_from(parcel) for parcel in stored.get("parcels", ()))
    return Outbox(parcels, tuple(stored["regions"]), elsewhere, stored.get("refused", {}))


def parcel_json(parcel: Parcel) -> Document:
    """Messages for one destination, as stored."""
    return {
        "queue": parcel.queue,
        "messages": [message_json(message) for message in parcel.messages],
    }


def parcel_from(document: Mapping[str, Any]) -> Parcel:
    """Read the messages for one destination back."""
    messages = tuple(message_from(message) for message in document["messages"])
    return Parcel(document["queue"], messages)


def parcels_digest(parcels: Iterable[Parcel]) -> str:
    """What messages say and where they go, ids and numbers included, as a hex SHA-256."""
    stored = json.dumps([parcel_json(parcel) for parcel in parcels], sort_keys=True)
    return hashlib.sha256(stored.encode()).hexdigest()


def message_json(message: Message) -> Document:
    """A message as stored; its body is UTF-8 JSON and is kept as the very text that is sent."""
    document = {
        "id": message.id,
        "session": message.session,
        "type": message.type,
        "body": message.body.decode(),
    }
    optional = {
        "number": number_json(message.number) if message.number else None,
        "time": message.time,
        "reply_to": message.reply_to,
        "reply_session": message.reply_session,
        "correlation": message.correlation,
    }
    return document | {name: value for name, value in optional.items() if value is not None}


def message_from(document: Mapping[str, Any]) -> Message:
    """Read a message back."""
    number = document.get("number")
    return Message(
        id=document["id"],
        session=document["session"],
        type=document["type"],
        body=document["body"].encode(),
        number=number_from(number) if number else None,
        time=document.get("time"),
        reply_to=document.get("reply_to"),
        reply_session=document.get("reply_session"),
        correlation=document.get("correlation"),
    )


def covered_json(covered: Covered) -> Document:
    """What an entry covers, as stored."""
    identity = {"id": covered.id, "type": covered.type, "digest": covered.digest}
    return identity | number_json(covered.number)


def covered_from(document: Mapping[str, Any]) -> Covered:
    """Read back what an entry covers."""
    return Covered(document["id"], document["type"], document["digest"], number_from(document))


def number_json(number: Number) -> Document:
    """A producer's number, as stored."""
    return {"group": number.group, "level": number.level, "sequence": number.sequence}


def number_from(document: Mapping[str, Any]) -> Number:
    """Read a producer's number back."""
    return Number(document["group"], document["level"], document["sequence"])
