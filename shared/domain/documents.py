"""Journal records as JSON documents and back: the stored format, in one place.

Every document of a session lives in its logical partition (`session`). Entry ids are zero-padded
positions, so the order of ids is the order of positions. Fields that say nothing are left out.
These are what the index, the change feed and the sweep look at, and are there only while true:
`owing` (the regions an outbox has to reach), `faulted`, `claimed`, `waiting`, `milestone`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from shared.domain.journal import (
    Attempt,
    Cursor,
    Entry,
    Halt,
    Lease,
    Mark,
    Owner,
    Resolution,
    Status,
)
from shared.domain.message import Message, Number, derived_id
from shared.domain.outbox import Outbox, Owing, Parcel
from shared.domain.producer import Bound, Ledger
from shared.domain.stored_messages import (
    Document,
    covered_from,
    covered_json,
    message_from,
    message_json,
    number_from,
    number_json,
    outbox_fields,
    outbox_from,
    parcel_from,
    parcel_json,
)

POSITION_DIGITS = 12
GENESIS_ID = "genesis"
# Every so many entries one is marked, so that compaction finds long journals without a scan.
MILESTONE_EVERY = 100
# How long staged outputs wait for their attempt to commit before the store removes them.
STAGED_SECONDS = 3600


def position_id(position: int) -> str:
    """The document id of the entry at a position."""
    return f"{position:0{POSITION_DIGITS}d}"


def ledger_id(group: str) -> str:
    """The document id of a producer group's ledger; a group may hold characters ids may not."""
    return f"ledger-{derived_id(group)}"


def owed_id(outbox: Outbox) -> str:
    """The document id of a producer's owed copies: the same debt has the same id."""
    owed = (f"{message.id} {message.number}" for message in outbox.messages)
    return f"owed-{derived_id(*outbox.regions, *owed)}"


def parked_id(number: Number) -> str:
    """The document id of a parked message: one per number, so that it is parked once."""
    return f"parked-{derived_id(number.group)}-{number.sequence:010d}"


def marker_id(message_id: str) -> str:
    """The document id of the proof that an un-numbered message was seen."""
    return f"marker-{derived_id(message_id)}"


def staged_id(attempt: str, index: int) -> str:
    """The document id of a part of an attempt's staged outputs."""
    return f"staged-{derived_id(attempt)}-{index:04d}"


def genesis_document(session: str) -> Document:
    """The mark that the session was begun; it outlives every entry, so nobody begins it twice."""
    return {"id": GENESIS_ID, "session": session, "kind": "genesis"}


def parked_document(message: Message, number: Number) -> Document:
    """A parked message as stored, beside the journal."""
    document = {"id": parked_id(number), "session": message.session, "kind": "parked"}
    return document | {"waiting": True, "message": message_json(message)}


def marker_document(session: str, mark: Mark, keep_seconds: int) -> Document:
    """The proof that an un-numbered message was seen; the store removes it after its time."""
    document = {"id": marker_id(mark.covered.id), "session": session, "kind": "marker"}
    kept = {"covered": covered_json(mark.covered), "position": mark.position}
    return document | kept | {"ttl": keep_seconds}


def mark_from(document: Mapping[str, Any]) -> Mark:
    """Read a marker back."""
    return Mark(covered_from(document["covered"]), document["position"])


def staged_documents(session: str, attempt: str, parcels: Sequence[Parcel]) -> list[Document]:
    """Outputs as an attempt stages them: they vanish unless the attempt commits in time."""
    return [
        {
            "id": staged_id(attempt, index),
            "session": session,
            "kind": "staged",
            "ttl": STAGED_SECONDS,
            "parcels": [parcel_json(parcel)],
        }
        for index, parcel in enumerate(parcels)
    ]


def parcels_from(document: Mapping[str, Any]) -> tuple[Parcel, ...]:
    """Read staged outputs back."""
    return tuple(parcel_from(parcel) for parcel in document["parcels"])


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
    keeps_message = entry.message is not None and entry.status is not Status.PARKED
    halt = {"at": entry.halt.at} | number_json(entry.halt.number) if entry.halt else None
    fields = {
        "produced": {to: dict(numbers) for to, numbers in entry.produced.items()},
        "behind": list(entry.behind),
        "parked": dict(entry.parked),
        "from_parked": entry.from_parked,
        "halt": halt,
        "faulted": entry.status is Status.FAULTED,
        "claimed": entry.status is Status.WORKING,
        "milestone": entry.position > 0 and entry.position % MILESTONE_EVERY == 0,
        "message": message_json(entry.message) if entry.message and keeps_message else None,
        "reason": entry.reason,
        "resolution": asdict(entry.resolution) if entry.resolution else None,
        "captured": dict(entry.captured),
        "lease": lease_json(entry.lease) if entry.lease else None,
        "answer": dict(entry.answer) if entry.answer is not None else None,
    }
    return {name: value for name, value in fields.items() if value}


def lease_json(lease: Lease) -> Document:
    """A lease as stored."""
    return {name: value for name, value in asdict(lease).items() if value is not None}


def entry_from(document: Mapping[str, Any]) -> Entry:
    """Read an entry back."""
    halt, resolution = document.get("halt"), document.get("resolution")
    message, lease = document.get("message"), document.get("lease")
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
        captured=document.get("captured", {}),
        lease=Lease(**lease) if lease else None,
        answer=document.get("answer"),
    )


def owed_document(session: str, outbox: Outbox) -> Document:
    """A producer's owed copies as stored."""
    return {"id": owed_id(outbox), "session": session, "kind": "owed"} | outbox_fields(outbox)


def owing_from(document: Mapping[str, Any]) -> Owing | None:
    """The unpaid outbox of any stored document, or None where nothing is owed."""
    if not document.get("owing"):
        return None
    return Owing(document["session"], document["id"], outbox_from(document))


def with_delivered(
    document: Mapping[str, Any],
    delivered: Iterable[str],
    refused: Mapping[str, str] | None = None,
) -> Document:
    """The document after these regions took its outbox; the outbox itself stays to be read.

    An output that no queue takes makes the document a fault that people see.
    """
    kept = {name: value for name, value in document.items() if name not in ("outbox", "owing")}
    before = outbox_from(document)
    after = Outbox(
        before.parcels,
        before.delivered(delivered).regions,
        before.elsewhere,
        {**before.refused, **(refused or {})},
    )
    return kept | outbox_fields(after) | ({"faulted": True} if after.refused else {})


def ledger_document(session: str, ledger: Ledger) -> Document:
    """A ledger as stored."""
    return {
        "id": ledger_id(ledger.group),
        "session": session,
        "kind": "ledger",
        "group": ledger.group,
        "level": ledger.level,
        "next": ledger.next,
        "began": ledger.began,
        "remembered": [[b.id, b.digest, b.sequence] for b in ledger.remembered],
    }


def ledger_from(document: Mapping[str, Any]) -> Ledger:
    """Read a ledger back."""
    remembered = tuple(Bound(*bound) for bound in document["remembered"])
    return Ledger(
        group=document["group"],
        level=document["level"],
        next=document["next"],
        began=document["began"],
        remembered=remembered,
    )
