"""An entry as it is stored: its own document, those beside it, and the batch that writes them.

Entry ids are zero-padded positions, so the order of ids is the order of positions. The order of a
batch decides what a refusal means, because the store names the first operation that failed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from shared.domain.errors import Misconfigured
from shared.domain.journal import (
    ARRIVALS,
    Attempt,
    Cursor,
    Entry,
    EvictedCursor,
    Halt,
    KeptInput,
    Lease,
    Marker,
    MessageIdentity,
    ModelVersion,
    Owner,
    RecentEntry,
    Resolution,
    StateChange,
    Status,
)
from shared.domain.message import (
    OWN_SOURCE,
    OWNER_LEVEL_MAX,
    SAGA_SESSION_PREFIX,
    Message,
    Number,
    derive_id,
)
from shared.domain.outbox import PendingOutbox, Staged
from shared.domain.producer import HTTP_GROUP, HTTP_SOURCE
from shared.domain.steps import Beside, StepRecord, StepStatus, unknown_steps
from shared.ports import (
    Carried,
    CreateDocument,
    DeleteDocument,
    Document,
    Operation,
    ParkedMessage,
    PatchDocument,
    ReadDocument,
    ReplaceDocument,
    UpsertDocument,
    WriteResult,
)
from shared.storage.documents import (
    OF_OLD_RELEASE,
    TTL_FIELD,
    WAITING_SECONDS,
    WRITTEN_FIELD,
    decode_kept,
    decode_number,
    decode_outbox,
    encode_kept,
    encode_outbox,
    encode_parked,
    encode_waiting,
    parked_id,
    pending_id,
    staged_ids,
    written_at,
)
from shared.storage.ledgers import decode_key, key_id
from shared.storage.sagas import list_saga

POSITION_DIGITS = 12
# Entry ids are digits and ':' follows '9', so this range holds entries and nothing else.
ENTRY_IDS = ("0", ":")
GENESIS_ID = "genesis"
# Every so many entries one is marked, so that compaction finds journals without a scan. Before the
# first of them some more are, at ever larger distances, so that it finds short journals as well.
MILESTONE_EVERY = 100
EARLY_MILESTONES = frozenset({1, 2, 4, 8, 16, 32, 64})


def position_id(position: int) -> str:
    return f"{position:0{POSITION_DIGITS}d}"


def outbox_id(pending: PendingOutbox) -> str:
    if pending.position is not None:
        return position_id(pending.position)
    return pending.key or pending_id(pending.outbox)


def marker_id(message_id: str, source: str) -> str:
    """The document id of the proof that an un-numbered message was seen."""
    if source == HTTP_SOURCE:
        # That of the key under which it might be published: whichever is first refuses the other.
        return key_id(HTTP_GROUP, message_id)
    # Older releases knew no sources; their markers count as those of our own source.
    named = (message_id,) if source in (OWN_SOURCE, "") else (source, message_id)
    return f"marker-{derive_id(*named)}"


def encode_genesis(session: str) -> Document:
    """The proof that the session exists; it outlives every entry, so its first entry is unique."""
    # The partition's own key is not indexed, and need not be for every entry.
    return {"id": GENESIS_ID, "session": session, "kind": "genesis", "listed": session}


def encode_marker(session: str, marker: Marker, keep_seconds: int) -> Document:
    """The proof that an un-numbered message was seen; the store removes it after its time."""
    return {
        "id": marker_id(marker.identity.id, marker.identity.source),
        "session": session,
        "kind": "marker",
        "covered": encode_identity(replace(marker.identity, answer=None, saga=None)),
        "position": marker.position,
        TTL_FIELD: keep_seconds,
    }


def decode_marker(document: Mapping[str, Any]) -> Marker:
    if "covered" in document:
        return Marker(decode_identity(document["covered"]), document["position"])
    bound = decode_key(document)
    number = Number(HTTP_GROUP, OWNER_LEVEL_MAX, bound.sequence or 0)
    return Marker(MessageIdentity(bound.id, "", bound.digest, number, HTTP_SOURCE), None)


def cursor_id(group: str) -> str:
    return f"cursor-{derive_id(group)}"


def encode_cursor(session: str, group: str, evicted: EvictedCursor) -> Document:
    document = {"id": cursor_id(group), "session": session, "kind": "cursor", "group": group}
    return document | asdict(evicted.cursor) | {"ends": [list(end) for end in evicted.ends]}


def decode_cursor(document: Mapping[str, Any]) -> EvictedCursor:
    ends = tuple((following, position) for following, position in document["ends"])
    return EvictedCursor(Cursor(document["level"], document["next"]), ends)


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
    if entry.change is not None:
        document["change"] = asdict(entry.change)
    if not entry.state_apart and entry.state_at is not None:
        document["state_at"] = entry.state_at
    else:
        if entry.model:
            document["model"] = [entry.model.name, entry.model.version]
        if entry.state_apart:
            # A release that knows no states beside entries looks here, finds none, and waits.
            document |= {"state_at": entry.position, "state_apart": True}
        elif entry.state is not None:
            document["state"] = dict(entry.state)
    halt, is_parked = entry.halt, entry.status is Status.PARKED
    # Most entries have nothing to say about any of these.
    exceptional = {
        "evicted": entry.has_evicted,
        "produced": {to: dict(numbers) for to, numbers in entry.produced.items()},
        "lagging": list(entry.lagging),
        "parked": dict(entry.parked),
        "from_parked": entry.from_parked,
        # A person has to decide: about the fault that this entry is, or what its handler asked for.
        "faulted": bool(entry.alert) or (halt and halt.at == entry.position),
        "claimed": entry.status is Status.WORKING,
        "milestone": entry.position in EARLY_MILESTONES
        or (entry.position > 0 and entry.position % MILESTONE_EVERY == 0)
        # A session that ended, or that may by itself, is found however short it was.
        or entry.is_ended
        or (entry.position == 0 and entry.silence is not None),
        "reason": entry.reason,
        "raised_at": list(entry.raised_at),
        "captured": dict(entry.captured),
        "reminders": dict(entry.reminders),
        "alert": entry.alert,
        "message": encode_kept(entry.message) if entry.message and not is_parked else None,
        "inputs": [one and encode_input(one) for one in entry.inputs],
        "halt": halt and {"at": halt.at, **asdict(halt.number)},
        "resolution": entry.resolution and asdict(entry.resolution),
        "answer": dict(entry.answer or {}),
        "ended": entry.is_ended,
        "silence": entry.silence,
        "steps": [encode_step(*named) for named in entry.steps.items()],
        # A person has to say of these whether they happened.
        "unknown": list(unknown_steps(entry.steps)) if entry.status is Status.FAULTED else [],
    }
    document |= {name: value for name, value in exceptional.items() if value}
    if entry.lease is not None:
        lease = asdict(entry.lease)
        document["lease"] = {name: value for name, value in lease.items() if value is not None}
    if entry.outbox.batches or entry.outbox.location:
        document |= encode_outbox(entry.outbox)
    return document


def state_id(position: int) -> str:
    return f"state-{position_id(position)}"


def encode_state(entry: Entry) -> Document:
    document = {"id": state_id(entry.position), "session": entry.session, "kind": "state"}
    if entry.change is None:
        return document | {"state": dict(entry.state or {})}
    # A release that knows no changes would take this for the state of every entry that names it. It
    # finds none here, and waits.
    return document | {"state": None, "whole": dict(entry.state or {})}


def lacks_state(document: Mapping[str, Any]) -> bool:
    """Say whether an entry's own state lies beside it, and was not read with it."""
    return bool(document.get("state_apart")) and "state" not in document


def with_state(document: Document, stored: Mapping[str, Any] | None) -> Document | None:
    """An entry with the state that lies beside it; None where compaction was faster."""
    return document | {"state": stored.get("whole", stored["state"])} if stored else None


def decode_entry(document: Mapping[str, Any]) -> Entry:
    """An entry. Where its own state lies beside it and was not read, `state_at` is its position."""
    halt, resolution = document.get("halt"), document.get("resolution")
    message, lease, closed = document.get("message"), document.get("lease"), document.get("closed")
    model, change = document.get("model"), document.get("change")
    return Entry(
        session=document["session"],
        position=int(document["id"]),
        status=Status(document["status"]),
        identities=decode_identities(document),
        state=document.get("state"),
        state_at=document.get("state_at") if "state" not in document else None,
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
        inputs=tuple(
            one and KeptInput(decode_kept(one), one.get("captured", {}))
            for one in document.get("inputs", ())
        ),
        reason=document.get("reason"),
        raised_at=tuple(document.get("raised_at", ())),
        resolution=Resolution(**resolution) if resolution else None,
        captured=document.get("captured", {}),
        reminders=document.get("reminders", {}),
        lease=Lease(**lease) if lease else None,
        answer=document.get("answer"),
        alert=document.get("alert"),
        closed=Resolution(**closed) if closed else None,
        model=ModelVersion(*model) if model else None,
        change=StateChange(change["at"], tuple(change["operations"])) if change else None,
        is_ended=document.get("ended", False),
        steps=dict(map(decode_step, document.get("steps", ()))),
        silence=document.get("silence"),
        quiet=document.get("quiet"),
        written_at=written_at(document) if WRITTEN_FIELD in document else None,
    )


def summarise_entry(document: Mapping[str, Any]) -> Document:
    """Return an entry with what recent_query computes of it."""
    return {**document, "messages": len(document["identities"])}


def decode_recent(document: Mapping[str, Any], now: float) -> RecentEntry:
    """An entry of which only a summary was read."""
    return RecentEntry(
        region=document["owner"]["region"],
        age_seconds=max(0.0, now - written_at(document)),
        messages=int(document["messages"]),
    )


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
    """Return the messages that stored entries processed, by position; claims have done nothing.

    What is left of a quiet session is passed over: who remembered it would still know its numbers
    when they are used again in a session of the same name.
    """
    return {
        int(d["id"]): decode_identities(d)
        for d in documents
        if not d.get("claimed") and d.get("quiet") is None
    }


def encode_identity(identity: MessageIdentity) -> Document:
    """Return an identity, with the fields of its number beside the others."""
    number = identity.number
    named: Document = {"id": identity.id, "type": identity.type, "digest": identity.digest}
    named |= asdict(number)
    # The source says nothing about a message that its sender numbered, and most have ours.
    if number.group == ARRIVALS and identity.source != OWN_SOURCE:
        named["source"] = identity.source
    if identity.answer:
        named["answer"] = dict(identity.answer)
    if identity.saga:
        named["saga"] = identity.saga
    return named


def encode_step(name: str, step: StepRecord) -> Document:
    said = {"result": step.result, "reason": step.reason, "beside": step.beside}
    named: Document = {"name": name, "key": step.key, "status": step.status.value}
    return named | {field: value for field, value in said.items() if value is not None}


def decode_step(document: Mapping[str, Any]) -> tuple[str, StepRecord]:
    status, result = StepStatus(document["status"]), document.get("result")
    beside = Beside(*document["beside"]) if "beside" in document else None
    record = StepRecord(document["key"], status, result, document.get("reason"), beside)
    return document["name"], record


def result_id(position: int, step: str) -> str:
    return f"result-{position_id(position)}-{derive_id(step)}"


def encode_result(entry: Entry, position: int, step: str, result: Any) -> Document:
    """Return the result of a step that lies beside a claim; None lets the store remove it."""
    document: Document = {"id": result_id(position, step), "session": entry.session}
    kept = {TTL_FIELD: WAITING_SECONDS} if result is None else {"result": result}
    return document | {"kind": "result"} | kept


def encode_input(kept: KeptInput) -> Document:
    document = encode_kept(kept.message)
    return document | ({"captured": dict(kept.captured)} if kept.captured else {})


def decode_identity(document: Mapping[str, Any]) -> MessageIdentity:
    return MessageIdentity(
        document["id"],
        document["type"],
        document["digest"],
        decode_number(document),
        document.get("source", OWN_SOURCE),
        answer=document.get("answer"),
        saga=document.get("saga"),
    )


def append_operations(  # noqa: C901 - flat: the parts of a batch, in their order
    entry: Entry, document: Document, carried: Carried
) -> list[Operation]:
    """The batch that appends an entry, of which the document is given.

    The first entry of a session creates its genesis, which is never removed, so nobody can begin a
    session twice; every later one proves that its predecessor is still there.
    """
    operations: list[Operation] = []
    # 1. The position is the next one. A worker that slept while compaction removed the entries it
    #    remembers could otherwise create a position that was taken before.
    if entry.position == 0:
        operations.append(CreateDocument(encode_genesis(entry.session), WriteResult.TAKEN))
    elif carried.left is not None:
        # This proves that the predecessor exists, too: a patch needs its document.
        before = position_id(entry.position - 1)
        operations.append(
            patch_pending(before, carried.left, WriteResult.ORPHANED, carried.version)
        )
    elif carried.version is not None:
        # Compaction removes ended sessions whole. Where another one has begun in the place of this
        # one, or is removed just now, its entry at this position is of another version.
        before, ended = position_id(entry.position - 1), {"/ended": True}
        operations.append(PatchDocument(before, ended, WriteResult.ORPHANED, carried.version))
    else:
        predecessor = position_id(entry.position - 1)
        operations.append(ReadDocument(predecessor, WriteResult.ORPHANED))
    # 2. Nobody else was first. This create is claim, commit, deduplication and fence at once.
    operations.append(CreateDocument(document, WriteResult.TAKEN))
    # 3. A message is parked, or taken from where it was parked.
    if entry.status is Status.PARKED and entry.message is not None:
        operations += park_operations(entry, entry.message)
    if entry.from_parked:
        operations += take_operations(entry)
    # 4. The fault that was decided about is no longer found. One that came of it is in this entry.
    if entry.resolution is not None and entry.resolution.at is not None:
        fault = position_id(entry.resolution.at)
        operations.append(PatchDocument(fault, {"/faulted": False}, WriteResult.ORPHANED))
    # 5. Un-numbered messages leave a proof that they were seen. One that was parked, or is
    #    resolved, has its marker already, unless it waited for too long.
    for identity in entry.identities:
        if identity.number.group != ARRIVALS:
            continue
        proof = Marker(identity, entry.position)
        marker = encode_marker(entry.session, proof, carried.marker_seconds)
        if entry.from_parked or entry.resolution is not None:
            operations.append(UpsertDocument(marker))
        else:
            operations.append(CreateDocument(marker, WriteResult.SEEN_BEFORE))
    # 6. What the entry no longer says of other producer groups is kept beside it. The entry is
    #    created in the same batch, so nobody reads one of the two without the other.
    evicted = carried.evicted.items()
    operations += [UpsertDocument(encode_cursor(entry.session, *named)) for named in evicted]
    # 7. What is too large for the entry lies beside it.
    if entry.state_apart or entry.steps or isinstance(entry.outbox.location, Staged):
        operations += keep_beside(entry)
    # 8. A saga is listed as this entry leaves it.
    is_of_saga = entry.session.startswith(SAGA_SESSION_PREFIX)
    return operations + list_saga(entry) if is_of_saga else operations


def park_operations(entry: Entry, message: Message) -> list[Operation]:
    """Return what keeps the message of a parked entry, and lets the sweep find the session."""
    number = entry.identities[0].number
    parked = encode_parked(message, number)
    operations: list[Operation] = [CreateDocument(parked, WriteResult.PARKED_BEFORE)]
    if entry.parked.get(number.group) == 1:
        # Where nobody waits, what lies there was left by an entry that was deleted by hand.
        operations = [UpsertDocument(parked)]
    if is_first_parked(entry):
        operations.append(UpsertDocument(encode_waiting(entry.session, waits=True)))
    return operations


def take_operations(entry: Entry) -> list[Operation]:
    """Return what takes an entry's parked messages, and says whether others still wait."""
    taken_ids = (parked_id(identity.number) for identity in entry.identities)
    waiting = encode_waiting(entry.session, waits=bool(entry.parked))
    deletions = [DeleteDocument(one, WriteResult.ORPHANED) for one in taken_ids]
    return [*deletions, UpsertDocument(waiting)]


def is_first_parked(entry: Entry) -> bool:
    """Say whether a message that is parked with this entry is the only one."""
    return sum(entry.parked.values()) == 1


def replace_operations(
    entry: Entry, version: str, carried: Carried, waiting: ParkedMessage | None
) -> list[Operation]:
    """The batch that replaces a claim by an entry, with a message to be parked beside it."""
    operations: list[Operation] = [ReplaceDocument(encode_entry(entry), version, WriteResult.TAKEN)]
    if waiting is not None:
        parked = encode_parked(waiting.message, waiting.identity.number)
        operations.append(CreateDocument(parked, WriteResult.PARKED_BEFORE))
        if waiting.identity.number.group == ARRIVALS:
            proof = Marker(waiting.identity, entry.position)
            marker = encode_marker(entry.session, proof, carried.marker_seconds)
            operations.append(CreateDocument(marker, WriteResult.SEEN_BEFORE))
        if is_first_parked(entry):
            operations.append(UpsertDocument(encode_waiting(entry.session, waits=True)))
    results = (encode_result(entry, entry.position, *one) for one in carried.results.items())
    operations += map(UpsertDocument, results)
    if entry.session.startswith(SAGA_SESSION_PREFIX):
        operations += list_saga(entry)
    return operations + keep_beside(entry)


def keep_beside(entry: Entry) -> list[Operation]:
    """Return what keeps a state beside its entry, and staged outputs from vanishing by themselves.

    An attempt that was too slow finds these gone, and cannot commit. The results of steps vanish
    with the end of their message. A fault that halts its session is none: they go on from there.
    """
    operations: list[Operation] = [UpsertDocument(encode_state(entry))] if entry.state_apart else []
    staged = staged_ids(entry.outbox.location) if isinstance(entry.outbox.location, Staged) else []
    operations += [PatchDocument(one, {"/ttl": -1}, WriteResult.ORPHANED) for one in staged]
    is_halted = entry.halt is not None and entry.halt.at == entry.position
    if entry.status is Status.WORKING or is_halted:
        return operations
    # They are not deleted: to delete what a person deleted by hand would refuse the batch for ever.
    ended = ((one.beside.position, name) for name, one in entry.steps.items() if one.beside)
    return operations + [UpsertDocument(encode_result(entry, *one, None)) for one in ended]


def patch_pending(
    document_id: str, regions: Sequence[str], refused: WriteResult, version: str | None = None
) -> PatchDocument:
    """Say which regions an outbox still waits for, without a read."""
    left: dict[str, Any] = {"/pending": list(regions), "/outbox/regions": list(regions)}
    return PatchDocument(document_id, left, refused, version)
