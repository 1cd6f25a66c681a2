"""The stored format: every record of a session as a JSON document, and back.

Every document of a session lives in its logical partition (`session`). Entry ids are zero-padded
positions, so the order of ids is the order of positions. Fields that say nothing are left out.
The index, the change feed and the sweep look at these fields, which are there only while true:
`owing` (the regions an outbox has to reach), `faulted`, `claimed`, `waiting`, `milestone`.

Nothing outside this package knows a document's fields, ids or paths.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from shared.domain.journal import (
    Attempt,
    Cursor,
    Entry,
    Halt,
    Lease,
    Marker,
    MessageIdentity,
    Owner,
    Resolution,
    Status,
)
from shared.domain.message import Message, Number, derive_id
from shared.domain.outbox import (
    NO_OUTBOX,
    DestinationBatch,
    Outbox,
    OutputLocation,
    PendingOutbox,
    Rerun,
    Staged,
)
from shared.domain.producer import BoundNumber, Ledger

type Document = dict[str, Any]

# What the store itself adds to every document: its version, and when it was written.
VERSION_FIELD = "_etag"
WRITTEN_FIELD = "_ts"
# How many seconds after its last write the store removes a document.
TTL_FIELD = "ttl"
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
    return f"ledger-{derive_id(group)}"


def pending_id(outbox: Outbox) -> str:
    """The document id of a producer's pending copies: the same copies have the same id."""
    copies = (f"{message.id} {message.number}" for message in outbox.messages)
    return f"owed-{derive_id(*outbox.regions, *copies)}"


def outbox_id(pending: PendingOutbox) -> str:
    """The id of the document that holds an outbox."""
    if pending.position is not None:
        return position_id(pending.position)
    return pending.key or pending_id(pending.outbox)


def parked_id(number: Number) -> str:
    """The document id of a parked message: one per number, so that it is parked once."""
    return f"parked-{derive_id(number.group)}-{number.sequence:010d}"


def marker_id(message_id: str) -> str:
    """The document id of the proof that an un-numbered message was seen."""
    return f"marker-{derive_id(message_id)}"


def staged_ids(staged: Staged) -> list[str]:
    """The ids of the documents that hold an attempt's staged outputs."""
    name = derive_id(staged.attempt)
    return [f"staged-{name}-{index:04d}" for index in range(staged.documents)]


def version_of(document: Mapping[str, Any]) -> str:
    """The version of a document as read, for a later replace or delete."""
    version: str = document[VERSION_FIELD]
    return version


def written_at(document: Mapping[str, Any]) -> float:
    """When a document as read was written, in seconds on the store's clock."""
    return float(document[WRITTEN_FIELD])


def encode_genesis(session: str) -> Document:
    """The proof that the session exists; it outlives every entry, so its first entry is unique."""
    return {"id": GENESIS_ID, "session": session, "kind": "genesis"}


def encode_parked(message: Message, number: Number) -> Document:
    """A parked message, which is kept beside the journal."""
    document = {"id": parked_id(number), "session": message.session, "kind": "parked"}
    return document | {"waiting": True, "message": encode_message(message)}


def encode_marker(session: str, marker: Marker, keep_seconds: int) -> Document:
    """The proof that an un-numbered message was seen; the store removes it after its time."""
    return {
        "id": marker_id(marker.identity.id),
        "session": session,
        "kind": "marker",
        "covered": encode_identity(marker.identity),
        "position": marker.position,
        TTL_FIELD: keep_seconds,
    }


def decode_marker(document: Mapping[str, Any]) -> Marker:
    return Marker(decode_identity(document["covered"]), document["position"])


def encode_staged(
    session: str, attempt: str, batches: Sequence[DestinationBatch]
) -> list[Document]:
    """Outputs as an attempt stages them: they vanish unless the attempt commits in time."""
    ids = staged_ids(Staged(attempt, len(batches)))
    return [
        {
            "id": document_id,
            "session": session,
            "kind": "staged",
            TTL_FIELD: STAGED_SECONDS,
            "parcels": [encode_batch(batch)],
        }
        for document_id, batch in zip(ids, batches, strict=True)
    ]


def decode_staged(document: Mapping[str, Any]) -> tuple[DestinationBatch, ...]:
    return tuple(decode_batch(batch) for batch in document["parcels"])


def encode_entry(entry: Entry) -> Document:
    """An entry. The message of a parked entry is stored in a document of its own."""
    document: Document = {
        "id": position_id(entry.position),
        "session": entry.session,
        "kind": "entry",
        "status": entry.status.value,
        "covers": [encode_identity(identity) for identity in entry.identities],
        "cursors": {g: {"level": c.level, "next": c.next} for g, c in entry.cursors.items()},
        "attempt": entry.attempt.id,
        "owner": {"region": entry.attempt.owner.region, "instance": entry.attempt.owner.instance},
    }
    # The state, or where it is; nothing while there is none.
    if entry.state is not None:
        document["state"] = dict(entry.state)
    elif entry.state_at is not None:
        document["state_at"] = entry.state_at
    # Most entries have nothing to say about any of these.
    exceptional = {
        "produced": {to: dict(numbers) for to, numbers in entry.produced.items()},
        "behind": list(entry.lagging),
        "parked": dict(entry.parked),
        "from_parked": entry.from_parked,
        "faulted": entry.status is Status.FAULTED,
        "claimed": entry.status is Status.WORKING,
        "milestone": entry.position > 0 and entry.position % MILESTONE_EVERY == 0,
        "reason": entry.reason,
        "captured": dict(entry.captured),
    }
    document |= {name: value for name, value in exceptional.items() if value}
    if entry.message is not None and entry.status is not Status.PARKED:
        document["message"] = encode_message(entry.message)
    if entry.halt is not None:
        document["halt"] = {"at": entry.halt.at, **encode_number(entry.halt.number)}
    if entry.resolution is not None:
        document["resolution"] = asdict(entry.resolution)
    if entry.lease is not None:
        lease = asdict(entry.lease)
        document["lease"] = {name: value for name, value in lease.items() if value is not None}
    if entry.answer:
        document["answer"] = dict(entry.answer)
    if entry.outbox.batches or entry.outbox.location:
        document |= encode_outbox(entry.outbox)
    return document


def decode_entry(document: Mapping[str, Any]) -> Entry:
    halt, resolution = document.get("halt"), document.get("resolution")
    message, lease = document.get("message"), document.get("lease")
    return Entry(
        session=document["session"],
        position=int(document["id"]),
        status=Status(document["status"]),
        identities=decode_identities(document),
        state=document.get("state"),
        state_at=document.get("state_at"),
        attempt=Attempt(document["attempt"], Owner(**document["owner"])),
        cursors={g: Cursor(**cursor) for g, cursor in document["cursors"].items()},
        produced=document.get("produced", {}),
        outbox=decode_outbox(document),
        lagging=tuple(document.get("behind", ())),
        parked=document.get("parked", {}),
        from_parked=document.get("from_parked", False),
        halt=Halt(halt["at"], decode_number(halt)) if halt else None,
        message=decode_message(message) if message else None,
        reason=document.get("reason"),
        resolution=Resolution(**resolution) if resolution else None,
        captured=document.get("captured", {}),
        lease=Lease(**lease) if lease else None,
        answer=document.get("answer"),
    )


def is_entry(document: Mapping[str, Any]) -> bool:
    """Whether a document of the journal's container is an entry."""
    return bool(document.get("kind") == "entry")


def newest_milestone(documents: Iterable[Mapping[str, Any]], before: float) -> int | None:
    """The highest marked position that was written at or before a time of the store's clock."""
    marked = (d for d in documents if d.get("milestone", True) and written_at(d) <= before)
    return max((int(d["id"]) for d in marked), default=None)


def session_in(document: Mapping[str, Any]) -> str:
    """The session that a document of the journal's container belongs to."""
    return str(document["session"])


def decode_identities(document: Mapping[str, Any]) -> tuple[MessageIdentity, ...]:
    """Which messages a stored entry is about."""
    return tuple(decode_identity(identity) for identity in document["covers"])


def processed_by_position(
    documents: Iterable[Mapping[str, Any]],
) -> dict[int, tuple[MessageIdentity, ...]]:
    """Which messages stored entries processed, by position; what is claimed is not done yet."""
    return {int(d["id"]): decode_identities(d) for d in documents if not d.get("claimed")}


def encode_pending(session: str, outbox: Outbox) -> Document:
    """A producer's pending copies."""
    document = {"id": pending_id(outbox), "session": session, "kind": "owed"}
    return document | encode_outbox(outbox)


def is_producers_outbox(document: Mapping[str, Any]) -> bool:
    """Whether a document holds a producer's pending copies, and is of no use without them."""
    return bool(document["kind"] == "owed")


def decode_pending(document: Mapping[str, Any]) -> PendingOutbox | None:
    """The outbox of any stored document, or None where no region waits for it."""
    if not document.get("owing"):
        return None
    session, outbox = document["session"], decode_outbox(document)
    if is_entry(document):
        return PendingOutbox(session, outbox, position=int(document["id"]))
    return PendingOutbox(session, outbox, key=document["id"])


def with_outbox(document: Mapping[str, Any], outbox: Outbox) -> Document:
    """The document with its outbox as it is now; the outbox itself stays to be read.

    An output that no queue takes makes the document a fault that people see.
    """
    kept = {name: value for name, value in document.items() if name not in ("outbox", "owing")}
    return kept | encode_outbox(outbox) | ({"faulted": True} if outbox.refused else {})


def encode_outbox(outbox: Outbox) -> Document:
    """The fields an outbox adds to a document."""
    stored: Document = {"regions": list(outbox.regions)}
    match outbox.location:
        case None:
            stored["parcels"] = [encode_batch(batch) for batch in outbox.batches]
        case Staged() as staged:
            stored["staged"] = asdict(staged)
        case Rerun(digest):
            stored["rerun"] = digest
    if outbox.refused:
        stored["refused"] = dict(outbox.refused)
    return {"outbox": stored} | ({"owing": list(outbox.regions)} if outbox.regions else {})


def decode_outbox(document: Mapping[str, Any]) -> Outbox:
    stored = document.get("outbox")
    if stored is None:
        return NO_OUTBOX
    location: OutputLocation | None = None
    if "staged" in stored:
        location = Staged(**stored["staged"])
    elif "rerun" in stored:
        location = Rerun(stored["rerun"])
    batches = tuple(decode_batch(batch) for batch in stored.get("parcels", ()))
    return Outbox(batches, tuple(stored["regions"]), location, stored.get("refused", {}))


def encode_batch(batch: DestinationBatch) -> Document:
    return {
        "queue": batch.queue,
        "messages": [encode_message(message) for message in batch.messages],
    }


def decode_batch(document: Mapping[str, Any]) -> DestinationBatch:
    messages = tuple(decode_message(message) for message in document["messages"])
    return DestinationBatch(document["queue"], messages)


def digest_batches(batches: Iterable[DestinationBatch]) -> str:
    """What messages say and where they go, ids and numbers included, as a hex SHA-256."""
    stored = json.dumps([encode_batch(batch) for batch in batches], sort_keys=True)
    return hashlib.sha256(stored.encode()).hexdigest()


def encode_message(message: Message) -> Document:
    """A message; its body is UTF-8 JSON and is kept as the very text that is sent."""
    document = {
        "id": message.id,
        "session": message.session,
        "type": message.type,
        "body": message.body.decode(),
    }
    optional = {
        "number": encode_number(message.number) if message.number else None,
        "time": message.time,
        "reply_to": message.reply_to,
        "reply_session": message.reply_session,
        "correlation": message.correlation,
    }
    return document | {name: value for name, value in optional.items() if value is not None}


def decode_message(document: Mapping[str, Any]) -> Message:
    number = document.get("number")
    return Message(
        id=document["id"],
        session=document["session"],
        type=document["type"],
        body=document["body"].encode(),
        number=decode_number(number) if number else None,
        time=document.get("time"),
        reply_to=document.get("reply_to"),
        reply_session=document.get("reply_session"),
        correlation=document.get("correlation"),
    )


def decode_parked(document: Mapping[str, Any]) -> Message:
    return decode_message(document["message"])


def encode_identity(identity: MessageIdentity) -> Document:
    """Which message it is, with the fields of its number beside the others."""
    number = identity.number
    return {
        "id": identity.id,
        "type": identity.type,
        "digest": identity.digest,
        "group": number.group,
        "level": number.level,
        "sequence": number.sequence,
    }


def decode_identity(document: Mapping[str, Any]) -> MessageIdentity:
    return MessageIdentity(
        document["id"], document["type"], document["digest"], decode_number(document)
    )


def encode_number(number: Number) -> Document:
    return {"group": number.group, "level": number.level, "sequence": number.sequence}


def decode_number(document: Mapping[str, Any]) -> Number:
    return Number(document["group"], document["level"], document["sequence"])


def encode_ledger(session: str, ledger: Ledger) -> Document:
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


def decode_ledger(document: Mapping[str, Any]) -> Ledger:
    return Ledger(
        group=document["group"],
        level=document["level"],
        next=document["next"],
        began=document["began"],
        remembered=tuple(BoundNumber(*bound) for bound in document["remembered"]),
    )
