"""Journal records as JSON documents and back: the stored format, in one place.

Every document of a session lives in its logical partition (`session`). Entry ids are zero-padded
positions, so the order of ids is the order of positions. `owing` is present, and true, only while
the outbox has regions to reach, and `faulted` only in a fault's entry: they are what the index, the
change feed and the sweep look at. Fields that say nothing are left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from shared.domain.journal import (
    Attempt,
    Covered,
    Cursor,
    Entry,
    Halt,
    Owner,
    Resolution,
    Status,
    require_number,
)
from shared.domain.message import Message, Number, derived_id
from shared.domain.outbox import NOTHING_OWED, Outbox, Owing
from shared.domain.producer import Bound, Ledger

POSITION_DIGITS = 12
GENESIS_ID = "genesis"

type Document = dict[str, Any]


def position_id(position: int) -> str:
    """The document id of the entry at a position."""
    return f"{position:0{POSITION_DIGITS}d}"


def ledger_id(group: str) -> str:
    """The document id of a producer group's ledger; a group may hold characters ids may not."""
    return f"ledger-{derived_id(group)}"


def owed_id(outbox: Outbox) -> str:
    """The document id of a producer's owed copies: the same debt has the same id."""
    return f"owed-{derived_id(*outbox.regions, *(message.id for message in outbox.messages))}"


def genesis_document(session: str) -> Document:
    """The mark that the session was begun; it outlives every entry, so nobody begins it twice."""
    return {"id": GENESIS_ID, "session": session, "kind": "genesis"}


def parked_id(number: Number) -> str:
    """The document id of a parked message: one per number, so that it is parked once."""
    return f"parked-{derived_id(number.group)}-{number.sequence:010d}"


def parked_document(message: Message) -> Document:
    """A parked message as stored, beside the journal."""
    number = require_number(message)
    document = {"id": parked_id(number), "session": message.session, "kind": "parked"}
    return document | {"message": message_json(message)}


def entry_document(entry: Entry) -> Document:
    """An entry as stored. The message of a parked entry is stored in a document of its own."""
    document: Document = {
        "id": position_id(entry.position),
        "session": entry.session,
        "kind": "entry",
        "status": entry.status.value,
        "covers": [covered_json(covered) for covered in entry.covers],
        "cursors": {g: {"level": c.level, "next": c.next} for g, c in entry.cursors.items()},
        "attempt": entry.attempt.id,
        "owner": asdict(entry.attempt.owner),
    }
    return document | state_fields(entry) | exceptional_fields(entry) | outbox_fields(entry.outbox)


def state_fields(entry: Entry) -> Document:
    """The state, or where it is; nothing while there is none."""
    if entry.state is not None:
        return {"state": dict(entry.state)}
    return {} if entry.state_at is None else {"state_at": entry.state_at}


def exceptional_fields(entry: Entry) -> Document:
    """What most entries have nothing to say about."""
    is_fault = entry.status is Status.FAULTED
    halt = {"at": entry.halt.at} | number_json(entry.halt.number) if entry.halt else None
    fields = {
        "produced": dict(entry.produced),
        "behind": list(entry.behind),
        "parked": dict(entry.parked),
        "from_parked": entry.from_parked,
        "halt": halt,
        "faulted": is_fault,
        "message": message_json(entry.message) if entry.message and is_fault else None,
        "reason": entry.reason,
        "resolution": asdict(entry.resolution) if entry.resolution else None,
    }
    return {name: value for name, value in fields.items() if value}


def entry_from(document: Mapping[str, Any]) -> Entry:
    """Read an entry back."""
    halt, resolution = document.get("halt"), document.get("resolution")
    message = document.get("message")
    return Entry(
        session=document["session"],
        position=int(document["id"]),
        status=Status(document["status"]),
        covers=tuple(covered_from(covered) for covered in document["covers"]),
        state=document.get("state"),
        state_at=document.get("state_at"),
        attempt=Attempt(document["attempt"], Owner(**document["owner"])),
        cursors={g: Cursor(**cursor) for g, cursor in document["cursors"].items()},
        produced=document.get("produced", {}),
        outbox=outbox_from(document),
        behind=tuple(document.get("behind", ())),
        parked=document.get("parked", {}),
        from_parked=document.get("from_parked", False),
        halt=Halt(halt["at"], number_from(halt)) if halt else None,
        message=message_from(message) if message else None,
        reason=document.get("reason"),
        resolution=Resolution(**resolution) if resolution else None,
    )


def owed_document(session: str, outbox: Outbox) -> Document:
    """A producer's owed copies as stored."""
    return {"id": owed_id(outbox), "session": session, "kind": "owed"} | outbox_fields(outbox)


def owing_from(document: Mapping[str, Any]) -> Owing | None:
    """The unpaid outbox of any stored document, or None where nothing is owed."""
    if not document.get("owing"):
        return None
    return Owing(document["session"], document["id"], outbox_from(document))


def with_delivered(document: Mapping[str, Any], delivered: Iterable[str]) -> Document:
    """The document after these regions took its outbox; the outbox itself stays for re-sending."""
    kept = {name: value for name, value in document.items() if name not in ("outbox", "owing")}
    return kept | outbox_fields(outbox_from(document).delivered(delivered))


def ledger_document(session: str, ledger: Ledger) -> Document:
    """A ledger as stored."""
    return {
        "id": ledger_id(ledger.group),
        "session": session,
        "kind": "ledger",
        "group": ledger.group,
        "level": ledger.level,
        "next": ledger.next,
        "remembered": [[b.id, b.digest, b.sequence] for b in ledger.remembered],
    }


def ledger_from(document: Mapping[str, Any]) -> Ledger:
    """Read a ledger back."""
    remembered = tuple(Bound(*bound) for bound in document["remembered"])
    return Ledger(document["group"], document["level"], document["next"], remembered)


def outbox_fields(outbox: Outbox) -> Document:
    """The fields an outbox adds to a document: none when it never held anything."""
    if not outbox.messages:
        return {}
    fields: Document = {
        "outbox": {
            "queue": outbox.queue,
            "messages": [message_json(message) for message in outbox.messages],
            "regions": list(outbox.regions),
        }
    }
    return fields | ({"owing": True} if outbox.owing else {})


def outbox_from(document: Mapping[str, Any]) -> Outbox:
    """Read an outbox back."""
    stored = document.get("outbox")
    if stored is None:
        return NOTHING_OWED
    messages = tuple(message_from(message) for message in stored["messages"])
    return Outbox(stored["queue"], messages, tuple(stored["regions"]))


def message_json(message: Message) -> Document:
    """A message as stored; its body is UTF-8 JSON and is kept as the very text that is sent."""
    return {
        "id": message.id,
        "session": message.session,
        "type": message.type,
        "body": message.body.decode(),
        "number": number_json(message.number) if message.number else None,
        "time": message.time,
    }


def message_from(document: Mapping[str, Any]) -> Message:
    """Read a message back."""
    number = document["number"]
    return Message(
        id=document["id"],
        session=document["session"],
        type=document["type"],
        body=document["body"].encode(),
        number=number_from(number) if number else None,
        time=document["time"],
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
