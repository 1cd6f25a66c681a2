"""The stored format: every record of a session as a JSON document, and back.

Every document of a session lives in its logical partition (`session`). Entry ids are zero-padded
positions, so the order of ids is the order of positions. Fields that say nothing are left out.
The index, the change feed and the sweep look at these fields, which are there only while true:
`pending` (the regions an outbox has to reach), `blocked` (the regions and their queues that take
nothing before a person changes something), `faulted` (a person has to look at the entry),
`claimed`, `waiting`, `milestone`. A session is listed by `listed` of its genesis.

A deployment has old code on new data for a while, and back again where it is withdrawn. So a new
field may stand at the top of a document, in its outbox, in its message and in its identities, where
every release passes over what it does not know; and what it says must be of use without it.

Nothing outside this package knows a document's fields, ids or paths.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import takewhile
from typing import Any

from shared.domain.errors import Misconfigured
from shared.domain.journal import (
    ARRIVALS,
    Attempt,
    Cursor,
    Entry,
    EvictedCursor,
    Halt,
    Lease,
    Marker,
    MessageIdentity,
    ModelVersion,
    Owner,
    RecentEntry,
    Repetition,
    Resolution,
    Status,
)
from shared.domain.message import OWN_SOURCE, SEQUENCE_MAX, Message, Number, derive_id
from shared.domain.outbox import (
    NO_OUTBOX,
    DestinationBatch,
    Outbox,
    OutputAction,
    OutputDecision,
    OutputLocation,
    PendingOutbox,
    Rerun,
    Staged,
)
from shared.domain.standstill import Sign
from shared.ports import Document

# What the store itself adds to every document: its version, and when it was written.
VERSION_FIELD = "_etag"
WRITTEN_FIELD = "_ts"
# How many seconds after its last write the store removes a document.
TTL_FIELD = "ttl"
POSITION_DIGITS = 12
# Entry ids are digits and ':' follows '9', so this range holds entries and nothing else.
ENTRY_IDS = ("0", ":")
GENESIS_ID = "genesis"
# Every so many entries one is marked, so that compaction finds journals without a scan. Before the
# first of them some more are, at ever larger distances, so that it finds short journals as well.
MILESTONE_EVERY = 100
EARLY_MILESTONES = frozenset({1, 2, 4, 8, 16, 32, 64})
WAITING_ID = "waiting"
# How long the store keeps the document of a session in which nothing is parked any more. It is not
# deleted, because deleting what is not there would refuse a whole batch.
WAITING_SECONDS = 60
# What is raised for documents of a release whose journals no later one can go on with.
OF_OLD_RELEASE = "an older release began this journal, and only it can read it: see docs/upgrade.md"
# How long staged outputs wait for their attempt to commit before the store removes them.
STAGED_SECONDS = 3600


def position_id(position: int) -> str:
    """The document id of the entry at a position."""
    return f"{position:0{POSITION_DIGITS}d}"


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


def marker_id(message_id: str, source: str) -> str:
    """The document id of the proof that an un-numbered message was seen."""
    # Older releases knew no sources; their markers count as those of our own source.
    named = (message_id,) if source in (OWN_SOURCE, "") else (source, message_id)
    return f"marker-{derive_id(*named)}"


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


def encode_genesis(session: str) -> Document:
    """The proof that the session exists; it outlives every entry, so its first entry is unique."""
    # The partition's own key is not indexed, and need not be for every entry.
    return {"id": GENESIS_ID, "session": session, "kind": "genesis", "listed": session}


def encode_parked(message: Message, number: Number) -> Document:
    """A parked message, which is kept beside the journal."""
    document = {"id": parked_id(number), "session": message.session, "kind": "parked"}
    return document | {"message": encode_kept(message)}


def encode_waiting(session: str, *, waits: bool) -> Document:
    """Return whether messages of a session are parked, as the document by which sweeps find it.

    Older workers put the flag on each parked message, where it is found as well.
    """
    document: Document = {"id": WAITING_ID, "session": session, "kind": "waiting"}
    return document | ({"waiting": True} if waits else {TTL_FIELD: WAITING_SECONDS})


def encode_marker(session: str, marker: Marker, keep_seconds: int) -> Document:
    """The proof that an un-numbered message was seen; the store removes it after its time."""
    return {
        "id": marker_id(marker.identity.id, marker.identity.source),
        "session": session,
        "kind": "marker",
        "covered": encode_identity(marker.identity),
        "position": marker.position,
        TTL_FIELD: keep_seconds,
    }


def decode_marker(document: Mapping[str, Any]) -> Marker:
    return Marker(decode_identity(document["covered"]), document["position"])


def cursor_id(group: str) -> str:
    """The document id of an evicted cursor."""
    return f"cursor-{derive_id(group)}"


def encode_cursor(session: str, group: str, evicted: EvictedCursor) -> Document:
    """A producer group's cursor as it was when it was evicted."""
    document = {"id": cursor_id(group), "session": session, "kind": "cursor", "group": group}
    return document | asdict(evicted.cursor) | {"ends": [list(end) for end in evicted.ends]}


def decode_cursor(document: Mapping[str, Any]) -> EvictedCursor:
    ends = tuple((following, position) for following, position in document["ends"])
    return EvictedCursor(Cursor(document["level"], document["next"]), ends)


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
            "batches": [encode_batch(batch)],
        }
        for document_id, batch in zip(ids, batches, strict=True)
    ]


def decode_staged(document: Mapping[str, Any]) -> tuple[DestinationBatch, ...]:
    return tuple(decode_batch(batch) for batch in document["batches"])


def encode_entry(entry: Entry) -> Document:
    """An entry. The message of a parked entry is stored in a document of its own."""
    document: Document = {
        "id": position_id(entry.position),
        "session": entry.session,
        "kind": "entry",
        "status": entry.status.value,
        "identities": [encode_identity(identity) for identity in entry.identities],
        "cursors": {group: asdict(cursor) for group, cursor in entry.cursors.items()},
        "attempt": entry.attempt.id,
        "owner": {"region": entry.attempt.owner.region, "instance": entry.attempt.owner.instance},
    }
    document |= encode_own_state(entry)
    # Most entries have nothing to say about any of these.
    exceptional = {
        "evicted": entry.has_evicted,
        "produced": {to: dict(numbers) for to, numbers in entry.produced.items()},
        "lagging": list(entry.lagging),
        "parked": dict(entry.parked),
        "from_parked": entry.from_parked,
        # A person has to decide: about the fault that this entry is, or what its handler asked for.
        "faulted": bool(entry.alert) or (entry.halt and entry.halt.at == entry.position),
        "claimed": entry.status is Status.WORKING,
        "milestone": entry.position in EARLY_MILESTONES
        or (entry.position > 0 and entry.position % MILESTONE_EVERY == 0),
        "reason": entry.reason,
        "captured": dict(entry.captured),
        "reminders": dict(entry.reminders),
        "alert": entry.alert,
    }
    document |= {name: value for name, value in exceptional.items() if value}
    if entry.message is not None and entry.status is not Status.PARKED:
        document["message"] = encode_kept(entry.message)
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


def encode_own_state(entry: Entry) -> Document:
    """The fields that say what an entry's state is, or where; none while there is none."""
    if not entry.state_apart and entry.state_at is not None:
        return {"state_at": entry.state_at}
    own: Document = {"model": [entry.model.name, entry.model.version]} if entry.model else {}
    if entry.state_apart:
        # A release that knows no states beside entries looks for it here, finds none, and waits.
        return own | {"state_at": entry.position, "state_apart": True}
    return own | {"state": dict(entry.state)} if entry.state is not None else {}


def state_id(position: int) -> str:
    """The document id of the state that lies beside the entry at a position."""
    return f"state-{position_id(position)}"


def encode_state(entry: Entry) -> Document:
    """The state of an entry that is kept beside it."""
    document = {"id": state_id(entry.position), "session": entry.session, "kind": "state"}
    return document | {"state": dict(entry.state or {})}


def lacks_state(document: Mapping[str, Any]) -> bool:
    """Say whether an entry's own state lies beside it, and was not read with it."""
    return bool(document.get("state_apart")) and "state" not in document


def with_state(document: Document, stored: Mapping[str, Any] | None) -> Document | None:
    """An entry with the state that lies beside it; None where compaction was faster."""
    return document | {"state": stored["state"]} if stored else None


def decode_entry(document: Mapping[str, Any]) -> Entry:
    """An entry. Where its own state lies beside it and was not read, `state_at` is its position."""
    state_at = document.get("state_at") if "state" not in document else None
    halt, resolution = document.get("halt"), document.get("resolution")
    message, lease, closed = document.get("message"), document.get("lease"), document.get("closed")
    model = document.get("model")
    return Entry(
        session=document["session"],
        position=int(document["id"]),
        status=Status(document["status"]),
        identities=decode_identities(document),
        state=document.get("state"),
        state_at=state_at,
        state_apart=document.get("state_apart", False),
        attempt=Attempt(document["attempt"], Owner(**document["owner"])),
        cursors={g: Cursor(**cursor) for g, cursor in document["cursors"].items()},
        has_evicted=document.get("evicted", False),
        produced=document.get("produced", {}),
        outbox=decode_outbox(document),
        lagging=tuple(document.get("lagging", ())),
        parked=document.get("parked", {}),
        from_parked=document.get("from_parked", False),
        halt=Halt(halt["at"], decode_number(halt)) if halt else None,
        message=decode_kept(message) if message else None,
        reason=document.get("reason"),
        resolution=Resolution(**resolution) if resolution else None,
        captured=document.get("captured", {}),
        reminders=document.get("reminders", {}),
        lease=Lease(**lease) if lease else None,
        answer=document.get("answer"),
        alert=document.get("alert"),
        closed=Resolution(**closed) if closed else None,
        model=ModelVersion(*model) if model else None,
    )


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
        alert=document.get("alert"),
        refused=outbox.get("refused", {}),
        blocked=outbox.get("blocked", {}),
        dropped=frozenset(q for q, one in decided.items() if one["action"] == OutputAction.DROP),
        regions=tuple(document.get("pending") or ()) if is_late else (),
        waits=bool(is_late and document.get("waiting")),
        late_seconds=late - written_at(document),
    )


def blocked_queues_in(keys: Iterable[str], region: str) -> list[str]:
    """The blocked queues of a region among what stored outboxes are found by."""
    prefix = blocked_key(region, "")
    return [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]


def is_entry(document: Mapping[str, Any]) -> bool:
    """Say whether a document of the journal's container is an entry."""
    return bool(document.get("kind") == "entry")


def newest_milestone(documents: Iterable[Mapping[str, Any]], before: float) -> int | None:
    """The highest marked position that was written at or before a time of the store's clock."""
    marked = (d for d in documents if d.get("milestone", True) and written_at(d) <= before)
    return max((int(d["id"]) for d in marked), default=None)


def repetition_id(report: str) -> str:
    """The document id of what is recorded of a report."""
    return f"repetition-{derive_id(report)}"


def encode_repetition(session: str, report: str, repetition: Repetition) -> Document:
    """Return the record of a repetition; it stays."""
    said = asdict(repetition)
    return {"id": repetition_id(report), "session": session, "kind": "repetition", **said}


def decode_repetition(document: Mapping[str, Any]) -> Repetition:
    fields = ("who", "why", "since", "digest", "is_done")
    return Repetition(**{name: document[name] for name in fields})


def summarise_entry(document: Mapping[str, Any]) -> Document:
    """Return an entry with what RECENT_QUERY computes of it."""
    return {**document, "messages": len(document["identities"])}


def decode_recent(document: Mapping[str, Any], now: float) -> RecentEntry:
    """An entry of which only a summary was read."""
    return RecentEntry(
        region=document["owner"]["region"],
        age_seconds=max(0.0, now - written_at(document)),
        messages=int(document["messages"]),
    )


def session_in(document: Mapping[str, Any]) -> str:
    """The session that a document of the journal's container belongs to."""
    return str(document["session"])


def decode_identities(document: Mapping[str, Any]) -> tuple[MessageIdentity, ...]:
    """Return the identities of the messages that a stored entry is about.

    Raises Misconfigured for an entry of a release whose journals cannot be read any more.
    """
    if "identities" not in document:
        raise Misconfigured(OF_OLD_RELEASE)
    return tuple(decode_identity(identity) for identity in document["identities"])


def processed_by_position(
    documents: Iterable[Mapping[str, Any]],
) -> dict[int, tuple[MessageIdentity, ...]]:
    """Return the messages that stored entries processed, by position; claims have done nothing."""
    return {int(d["id"]): decode_identities(d) for d in documents if not d.get("claimed")}


def encode_pending(session: str, outbox: Outbox) -> Document:
    """A producer's pending copies."""
    document = {"id": pending_id(outbox), "session": session, "kind": "pending"}
    return document | encode_outbox(outbox)


def is_producers_outbox(document: Mapping[str, Any]) -> bool:
    """Say whether a document holds a producer's pending copies, and is of no use without them."""
    return bool(document["kind"] == "pending")


def decode_pending(document: Mapping[str, Any]) -> PendingOutbox | None:
    """The outbox of any stored document, or None where nothing of it waits or is blocked."""
    if not document.get("pending") and not document.get("blocked"):
        return None
    session, outbox = document["session"], decode_outbox(document)
    if is_entry(document):
        return PendingOutbox(session, outbox, position=int(document["id"]))
    return PendingOutbox(session, outbox, key=document["id"])


def with_outbox(document: Mapping[str, Any], outbox: Outbox) -> Document:
    """The document with its outbox as it is now; the outbox itself stays to be read.

    A person has to look at an output that no queue takes, also where an earlier one was closed.
    """
    changing = ("outbox", "pending", "blocked")
    kept = {name: value for name, value in document.items() if name not in changing}
    if outbox.refused.keys() - decode_outbox(document).refused.keys():
        kept = {name: value for name, value in kept.items() if name != "closed"} | {"faulted": True}
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
    }
    stored |= {name: value for name, value in exceptional.items() if value}
    found_by = {"pending": list(outbox.regions), "blocked": blocked_keys(outbox)}
    return {"outbox": stored} | {name: value for name, value in found_by.items() if value}


def blocked_keys(outbox: Outbox) -> list[str]:
    """Return the keys of a blocked outbox: its blocked regions, and the queues of each."""
    queues = [blocked_key(r, queue) for r, queues in outbox.blocked.items() for queue in queues]
    return [*outbox.blocked, *queues]


def blocked_key(region: str, queue: str) -> str:
    """Return the key of outboxes that are blocked at a queue of a region."""
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
    )


def encode_batch(batch: DestinationBatch) -> Document:
    return {
        "queue": batch.queue,
        "messages": [encode_message(message) for message in batch.messages],
    }


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
        "traceparent": message.traceparent,
        "reminder": message.reminder,
    }
    return document | {name: value for name, value in optional.items() if value is not None}


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
        time=document.get("time"),
        reply_to=document.get("reply_to"),
        reply_session=document.get("reply_session"),
        correlation=document.get("correlation"),
        traceparent=document.get("traceparent"),
        reminder=document.get("reminder"),
    )


def decode_parked(document: Mapping[str, Any]) -> Message:
    return decode_kept(document["message"])


def decode_parked_run(documents: Iterable[Mapping[str, Any]], ids: Sequence[str]) -> list[Message]:
    """Parked messages in the order of their ids, up to the first id that is missing."""
    pairs = zip(documents, ids, strict=False)
    return [
        decode_parked(d) for d, wanted in takewhile(lambda pair: pair[0]["id"] == pair[1], pairs)
    ]


def encode_identity(identity: MessageIdentity) -> Document:
    """Return an identity, with the fields of its number beside the others."""
    number = identity.number
    named: Document = {
        "id": identity.id,
        "type": identity.type,
        "digest": identity.digest,
        "group": number.group,
        "level": number.level,
        "sequence": number.sequence,
    }
    # The source says nothing about a message that its sender numbered, and most have ours.
    if number.group == ARRIVALS and identity.source != OWN_SOURCE:
        named["source"] = identity.source
    return named


def decode_identity(document: Mapping[str, Any]) -> MessageIdentity:
    return MessageIdentity(
        document["id"],
        document["type"],
        document["digest"],
        decode_number(document),
        document.get("source", OWN_SOURCE),
    )


def encode_number(number: Number) -> Document:
    return {"group": number.group, "level": number.level, "sequence": number.sequence}


def decode_number(document: Mapping[str, Any]) -> Number:
    return Number(document["group"], document["level"], document["sequence"])
