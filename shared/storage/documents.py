"""The stored format: every record of a session as a JSON document, and back.

Every document of a session lives in its logical partition (`session`). Entry ids are zero-padded
positions, so the order of ids is the order of positions. Fields that say nothing are left out.
The index, the change feed and the sweep look at these fields, which are there only while true:
`pending` (the regions an outbox has to reach), `blocked` (the regions and their queues that take
nothing before a person changes something), `faulted` (a person has to look at the entry),
`claimed`, `waiting`, `milestone`. A session is listed by `listed` of its genesis, and the report of
a rejected delivery by `rejected`, until somebody has ended it.

A deployment has old code on new data for a while, and back again where it is withdrawn. So a new
field may stand at the top of a document, in its outbox, in its message and in its identities, where
every release passes over what it does not know; and what it says must be of use without it.

Nothing outside this package knows a document's fields, ids or paths.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from itertools import takewhile
from math import inf
from typing import Any

from shared.domain.errors import Misconfigured
from shared.domain.journal import Repetition
from shared.domain.message import SEQUENCE_MAX, Message, Number, derive_id
from shared.domain.outbox import (
    NO_OUTBOX,
    DestinationBatch,
    Outbox,
    OutputAction,
    OutputDecision,
    OutputLocation,
    Part,
    PendingOutbox,
    Rerun,
    Staged,
)
from shared.domain.standstill import Sign
from shared.ports import BrowsedMessage, Document

# What the store itself adds to every document: its version, and when it was written.
VERSION_FIELD = "_etag"
WRITTEN_FIELD = "_ts"
# How many seconds after its last write the store removes a document.
TTL_FIELD = "ttl"
WAITING_ID = "waiting"
# How long the store keeps the document of a session in which nothing is parked any more. It is not
# deleted, because deleting what is not there would refuse a whole batch.
WAITING_SECONDS = 60
# What is raised for documents of a release whose journals no later one can go on with.
OF_OLD_RELEASE = "an older release began this journal, and only it can read it: see docs/upgrade.md"
# How long staged outputs wait for their attempt to commit before the store removes them.
STAGED_SECONDS = 3600
# A report of more bytes lies whole in the error queue alone: a write costs by the size.
REPORT_BYTES_MAX = 32_768
# How long the store keeps a report that was ended: as long as the error queue keeps it at most.
ENDED_REPORT_SECONDS = 14 * 24 * 3600
# The fields of a message that it is stored with where it has them.
OPTIONAL = (
    *("time", "reply_to", "reply_session", "correlation", "traceparent", "reminder", "delay"),
    "saga",
)


def pending_id(outbox: Outbox) -> str:
    """The document id of a producer's pending copies: the same copies have the same id."""
    copies = (f"{message.id} {message.number}" for message in outbox.messages)
    return f"owed-{derive_id(*outbox.regions, *copies)}"


def parked_id(number: Number) -> str:
    """The document id of a parked message: one per number, so that it is parked once."""
    return parked_ids(number, 1)[0]


def parked_ids(number: Number, count: int) -> list[str]:
    """The document ids of what is parked under a number and under those after it, in order."""
    group = derive_id(number.group)
    return [f"parked-{group}-{number.sequence + n:010d}" for n in range(count)]


def parked_ends(group: str) -> tuple[str, str]:
    """The lowest and the highest document id that a parked message of a group can have."""
    lowest, highest = (parked_id(Number(group, 0, at)) for at in (0, SEQUENCE_MAX))
    return lowest, highest


def sequence_of(parked: str) -> int:
    """The sequence in the document id of a parked message."""
    return int(parked.rpartition("-")[2])


def staged_ids(staged: Staged) -> list[str]:
    """The ids of the documents that hold an attempt's staged outputs."""
    name = derive_id(staged.attempt)
    return [f"staged-{name}-{index:04d}" for index in range(staged.documents)]


def version_of(document: Mapping[str, Any]) -> str:
    """The version of a document as read, for a later replace or delete."""
    version: str = document[VERSION_FIELD]
    return version


def written_at(document: Mapping[str, Any]) -> float:
    """Return the time when a document was written, in seconds on the store's clock."""
    return float(document[WRITTEN_FIELD])


def encode_parked(message: Message, number: Number) -> Document:
    document = {"id": parked_id(number), "session": message.session, "kind": "parked"}
    return document | {"message": encode_kept(message)}


def encode_waiting(session: str, *, waits: bool) -> Document:
    """Return whether messages of a session are parked, as the document by which sweeps find it.

    Older workers put the flag on each parked message, where it is found as well.
    """
    document: Document = {"id": WAITING_ID, "session": session, "kind": "waiting"}
    return document | ({"waiting": True} if waits else {TTL_FIELD: WAITING_SECONDS})


def encode_staged(
    session: str, attempt: str, batches: Sequence[DestinationBatch]
) -> list[Document]:
    """Outputs as an attempt stages them: they vanish unless the attempt commits in time."""
    common = {"session": session, "kind": "staged", TTL_FIELD: STAGED_SECONDS}
    ids = staged_ids(Staged(attempt, len(batches)))
    return [
        {"id": document_id, "batches": [encode_batch(batch)], **common}
        for document_id, batch in zip(ids, batches, strict=True)
    ]


def decode_staged(document: Mapping[str, Any]) -> tuple[DestinationBatch, ...]:
    return tuple(decode_batch(batch) for batch in document["batches"])


def decode_sign(document: Mapping[str, Any], late: float) -> Sign:
    """Return the sign that a document is; what is younger than `late` may go on by itself."""
    is_late = written_at(document) <= late
    halt, is_of_entry = document.get("halt"), is_entry(document)
    position = int(document["id"]) if is_of_entry else None
    outbox = document.get("outbox", {})
    decided = outbox.get("decided", {})
    return Sign(
        session=session_in(document),
        key=document["id"],
        version=version_of(document),
        since=written_at(document),
        position=position,
        asks=bool(document.get("faulted")),
        halts=bool(document.get("faulted") and halt and halt["at"] == position),
        reason=document.get("reason"),
        raised_at=tuple(document.get("raised_at") or ()),
        unknown=tuple(document.get("unknown") or ()),
        alert=document.get("alert"),
        refused=outbox.get("refused", {}),
        blocked=outbox.get("blocked", {}),
        dropped=frozenset(q for q, one in decided.items() if one["action"] == OutputAction.DROP),
        regions=tuple(document.get("pending") or ()) if is_late else (),
        waits=bool(is_late and document.get("waiting")),
        late_seconds=late - written_at(document),
    )


def is_entry(document: Mapping[str, Any]) -> bool:
    """Say whether a document of the journal's container is an entry."""
    return bool(document.get("kind") == "entry")


def repetition_id(report: str) -> str:
    return f"repetition-{derive_id(report)}"


def encode_repetition(session: str, report: str, repetition: Repetition) -> Document:
    """Return the record of a repetition; it stays."""
    document = {"id": repetition_id(report), "session": session, "kind": "repetition"}
    return document | asdict(repetition)


def decode_repetition(document: Mapping[str, Any]) -> Repetition:
    return Repetition(**{field.name: document[field.name] for field in fields(Repetition)})


def report_id(report: str) -> str:
    return f"report-{derive_id(report)}"


def encode_report(report: Message) -> Document:
    """Return the document by which the report of a rejected delivery is listed.

    It has the report whole, unless that is large: then it says the reason alone.
    """
    body = report.body.decode()
    if len(body) > REPORT_BYTES_MAX:
        body = json.dumps({"reason": json.loads(body)["reason"]})
    document = {"id": report_id(report.id), "session": report.session, "kind": "report"}
    return document | {"rejected": True, "report": report.id, "type": report.type, "body": body}


def decode_report(document: Mapping[str, Any]) -> BrowsedMessage:
    """Return a listed report as a message of the error queue; its number there is not known."""
    written = datetime.fromtimestamp(written_at(document), UTC)
    said, body = document, str(document["body"]).encode()
    return BrowsedMessage(session_in(said), 0, written, said["report"], said["type"], body)


def session_in(document: Mapping[str, Any]) -> str:
    return str(document["session"])


def encode_pending(session: str, outbox: Outbox) -> Document:
    document = {"id": pending_id(outbox), "session": session, "kind": "pending"}
    return document | encode_outbox(outbox)


def decode_pending(document: Mapping[str, Any], now: float = inf) -> PendingOutbox | None:
    """The outbox of any stored document, or None where nothing of it waits or is blocked.

    `now` is the time on the store's clock, for its age.
    """
    if not document.get("pending") and not document.get("blocked"):
        return None
    session, outbox = document["session"], decode_outbox(document)
    age, version = now - written_at(document), version_of(document)
    of_entry = is_entry(document)
    return PendingOutbox(
        session,
        outbox,
        position=int(document["id"]) if of_entry else None,
        key="" if of_entry else document["id"],
        age_seconds=age,
        version=version,
        regions=outbox.regions,
        types=tuple(identity["type"] for identity in document.get("identities", ())),
    )


def with_outbox(document: Mapping[str, Any], outbox: Outbox) -> Document:
    """The document with its outbox as it is now; the outbox itself stays to be read.

    A person has to look at an output that no queue takes, also where an earlier one was closed.
    """
    changing = ("outbox", "pending", "blocked")
    kept = {name: value for name, value in document.items() if name not in changing}
    if outbox.refused.keys() - decode_outbox(document).refused.keys():
        kept.pop("closed", None)
        kept["faulted"] = True
    return kept | encode_outbox(outbox)


def encode_outbox(outbox: Outbox) -> Document:
    """The fields an outbox adds to a document."""
    stored: Document = {"regions": list(outbox.regions)}
    match outbox.location:
        case None:
            stored["batches"] = [encode_batch(batch) for batch in outbox.batches]
        case Staged() as staged:
            stored["staged"] = asdict(staged)
        case Rerun(digest):
            stored["rerun"] = digest
    exceptional: Document = {
        "refused": dict(outbox.refused),
        "delivered": {region: list(queues) for region, queues in outbox.delivered.items()},
        "blocked": {region: dict(reasons) for region, reasons in outbox.blocked.items()},
        "decided": {queue: asdict(decision) for queue, decision in outbox.decided.items()},
        "sent": {
            region: {queue: [part.count, part.total] for queue, part in parts.items()}
            for region, parts in outbox.sent.items()
        },
        "sending": list(outbox.sending),
    }
    stored |= {name: value for name, value in exceptional.items() if value}
    # A blocked outbox is found by its blocked regions, and by the queues of each.
    queues = [blocked_key(r, queue) for r, queues in outbox.blocked.items() for queue in queues]
    found_by = {"pending": list(outbox.regions), "blocked": [*outbox.blocked, *queues]}
    return {"outbox": stored} | {name: value for name, value in found_by.items() if value}


def blocked_key(region: str, queue: str) -> str:
    return f"{region}/{queue}"


def decode_outbox(document: Mapping[str, Any]) -> Outbox:
    stored = document.get("outbox")
    if stored is None:
        return NO_OUTBOX
    if stored.keys() & {"queue", "parcels"}:
        raise Misconfigured(OF_OLD_RELEASE)
    location: OutputLocation | None = None
    if "staged" in stored:
        location = Staged(**stored["staged"])
    elif "rerun" in stored:
        location = Rerun(stored["rerun"])
    batches = tuple(decode_batch(batch) for batch in stored.get("batches", ()))
    decided = {
        queue: OutputDecision(**{**one, "action": OutputAction(one["action"])})
        for queue, one in stored.get("decided", {}).items()
    }
    return Outbox(
        batches,
        tuple(stored["regions"]),
        location,
        refused=stored.get("refused", {}),
        delivered={r: tuple(queues) for r, queues in stored.get("delivered", {}).items()},
        blocked=stored.get("blocked", {}),
        decided=decided,
        sent={
            region: {queue: Part(*part) for queue, part in parts.items()}
            for region, parts in stored.get("sent", {}).items()
            # What a worker struck off without a read has everything.
            if region in stored["regions"] or region in stored.get("blocked", {})
        },
        sending=tuple(stored.get("sending", ())),
    )


def encode_batch(batch: DestinationBatch) -> Document:
    return {"queue": batch.queue, "messages": [encode_message(one) for one in batch.messages]}


def decode_batch(document: Mapping[str, Any]) -> DestinationBatch:
    messages = tuple(decode_message(message) for message in document["messages"])
    return DestinationBatch(document["queue"], messages)


def digest_batches(batches: Iterable[DestinationBatch]) -> str:
    """Return a hex SHA-256 of what messages say and where they go, ids and numbers included.

    Their traces are no part of it: a release that knows none makes the same messages.
    """
    stored = [encode_batch(batch) for batch in batches]
    for batch in stored:
        for message in batch["messages"]:
            message.pop("traceparent", None)
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def encode_message(message: Message) -> Document:
    """A message; its body is UTF-8 JSON and is kept as the very text that is sent."""
    document: Document = {
        "id": message.id,
        "session": message.session,
        "type": message.type,
        "body": message.body.decode(),
    }
    if message.number is not None:
        document["number"] = asdict(message.number)
    optional = ((name, getattr(message, name)) for name in OPTIONAL)
    return document | {name: value for name, value in optional if value is not None}


def encode_kept(message: Message) -> Document:
    """A message that may be processed later, or again. An output needs no source: it has ours."""
    return encode_message(message) | ({"source": message.source} if message.source else {})


def decode_kept(document: Mapping[str, Any]) -> Message:
    """A message that is processed later, or again; an older release stored it without a source."""
    return replace(decode_message(document), source=document.get("source", ""))


def decode_message(document: Mapping[str, Any]) -> Message:
    number = document.get("number")
    return Message(
        id=document["id"],
        session=document["session"],
        type=document["type"],
        body=document["body"].encode(),
        number=decode_number(number) if number else None,
        **{name: document[name] for name in OPTIONAL if name in document},
    )


def decode_parked(document: Mapping[str, Any]) -> Message:
    return decode_kept(document["message"])


def decode_parked_run(documents: Iterable[Mapping[str, Any]], ids: Sequence[str]) -> list[Message]:
    """Parked messages in the order of their ids, up to the first id that is missing."""
    run = takewhile(lambda pair: pair[0]["id"] == pair[1], zip(documents, ids, strict=False))
    return [decode_parked(document) for document, _ in run]


def decode_number(document: Mapping[str, Any]) -> Number:
    return Number(document["group"], document["level"], document["sequence"])
