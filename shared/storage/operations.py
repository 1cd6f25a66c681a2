"""The batches of the journal: operations that a container applies in order, all or none.

The order decides what a refusal means, because the store names the first operation that failed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from shared.domain.journal import ARRIVALS, Entry, Marker, Repetition, Resolution, Status
from shared.domain.message import Message
from shared.domain.outbox import Delivered, Outbox, OutputDecision, PendingOutbox, Staged
from shared.domain.producer import NO_KEYS, KeptKeys, Ledger
from shared.ports import (
    NOTHING_CARRIED,
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
    decode_outbox,
    encode_cursor,
    encode_genesis,
    encode_marker,
    encode_parked,
    encode_pending,
    encode_repetition,
    encode_state,
    encode_waiting,
    is_producers_outbox,
    outbox_id,
    parked_id,
    position_id,
    repetition_id,
    staged_ids,
    state_id,
    version_of,
    with_outbox,
)
from shared.storage.ledgers import encode_key, encode_ledger, key_id
from shared.storage.regions import encode_regions

# How long staged outputs are kept of which one was refused.
REFUSED_SECONDS = 30 * 24 * 3600


def append_operations(
    entry: Entry, document: Document, carried: Carried = NOTHING_CARRIED
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
        operations += leave_pending_operations(entry.position - 1, carried.left)
    else:
        predecessor = position_id(entry.position - 1)
        operations.append(ReadDocument(predecessor, WriteResult.ORPHANED))
    # 2. Nobody else was first. This create is claim, commit, deduplication and fence at once.
    operations.append(CreateDocument(document, WriteResult.TAKEN))
    operations += [UpsertDocument(encode_state(entry))] if entry.state_apart else []
    # 3. A message is parked, or taken from where it was parked.
    if entry.status is Status.PARKED and entry.message is not None:
        operations += park_operations(entry, entry.message)
    if entry.from_parked:
        operations += take_operations(entry)
    # 4. The fault that a person decided about is no longer found. A fault that came of the decision
    #    is in this entry itself.
    if entry.resolution is not None and entry.resolution.at is not None:
        fault = position_id(entry.resolution.at)
        operations.append(PatchDocument(fault, {"/faulted": False}, WriteResult.ORPHANED))
    # 5. Un-numbered messages leave a proof that they were seen. One that was parked, or is
    #    resolved, has its marker already, unless it waited for too long.
    for identity in entry.identities:
        if identity.number.group != ARRIVALS:
            continue
        marker = encode_marker(
            entry.session, Marker(identity, entry.position), carried.marker_seconds
        )
        if entry.from_parked or entry.resolution is not None:
            operations.append(UpsertDocument(marker))
        else:
            operations.append(CreateDocument(marker, WriteResult.SEEN_BEFORE))
    # 6. What the entry no longer says of other producer groups is kept beside it. The entry is
    #    created in the same batch, so nobody reads one of the two without the other.
    for group, cursor in carried.evicted.items():
        operations.append(UpsertDocument(encode_cursor(entry.session, group, cursor)))
    return operations + adopt_staged(entry)


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
    entry: Entry,
    document: Document,
    version: str,
    carried: Carried = NOTHING_CARRIED,
    waiting: ParkedMessage | None = None,
) -> list[Operation]:
    """The batch that replaces a claim by a document, with a message to be parked beside it."""
    operations: list[Operation] = [ReplaceDocument(document, version, WriteResult.TAKEN)]
    operations += [UpsertDocument(encode_state(entry))] if entry.state_apart else []
    if waiting is not None:
        parked = encode_parked(waiting.message, waiting.identity.number)
        operations.append(CreateDocument(parked, WriteResult.PARKED_BEFORE))
        if waiting.identity.number.group == ARRIVALS:
            proof = Marker(waiting.identity, entry.position)
            marker = encode_marker(entry.session, proof, carried.marker_seconds)
            operations.append(CreateDocument(marker, WriteResult.SEEN_BEFORE))
        if is_first_parked(entry):
            operations.append(UpsertDocument(encode_waiting(entry.session, waits=True)))
    return operations + adopt_staged(entry)


def adopt_staged(entry: Entry) -> list[Operation]:
    """Staged outputs become the entry's: they no longer vanish by themselves.

    An attempt that was too slow finds them gone, and cannot commit.
    """
    staged = entry.outbox.location
    if not isinstance(staged, Staged):
        return []
    return [PatchDocument(part, {"/ttl": -1}, WriteResult.ORPHANED) for part in staged_ids(staged)]


def leave_pending_operations(position: int, regions: Sequence[str]) -> list[Operation]:
    """The batch that says which regions an entry's outbox still waits for, without a read."""
    left: dict[str, Any] = {"/pending": list(regions), "/outbox/regions": list(regions)}
    return [PatchDocument(position_id(position), left, WriteResult.ORPHANED)]


def delete_delivered(pending: PendingOutbox, done: Delivered) -> list[Operation]:
    """The batch that deletes a producer's outbox as it was stored; none where more is to be said.

    Every region took all of it. So whatever others wrote into it meanwhile is over as well, and
    nothing has to be read.
    """
    left = pending.outbox.after(done)
    is_over = not (left.regions or left.blocked or left.refused)
    if pending.position is not None or pending.key or not is_over:
        return []
    return [DeleteDocument(outbox_id(pending), WriteResult.ORPHANED)]


def acknowledge_operations(document: Document, done: Delivered) -> list[Operation]:
    """The batch that says what a delivery came to, and deletes what nobody needs then."""
    outbox = decode_outbox(document).after(done)
    version = version_of(document)
    is_over = not outbox.regions and not outbox.blocked
    if is_producers_outbox(document) and is_over and not outbox.refused:
        return [DeleteDocument(document["id"], WriteResult.TAKEN, version)]
    operations: list[Operation] = [
        ReplaceDocument(with_outbox(document, outbox), version, WriteResult.TAKEN)
    ]
    if isinstance(outbox.location, Staged) and is_over:
        for part in staged_ids(outbox.location):
            if outbox.refused:
                # People may still want to see an output that was refused.
                kept = {"/ttl": REFUSED_SECONDS}
                operations.append(PatchDocument(part, kept, WriteResult.ORPHANED))
            else:
                operations.append(DeleteDocument(part, WriteResult.ORPHANED))
    return operations


def decide_operations(
    document: Document, decisions: Mapping[str, OutputDecision]
) -> list[Operation]:
    """The batch that adds what a person decided to a stored outbox."""
    before = decode_outbox(document)
    outbox = replace(before, decided={**before.decided, **decisions})
    decided = with_outbox(document, outbox)
    return [ReplaceDocument(decided, version_of(document), WriteResult.TAKEN)]


def close_operations(position: int, version: str, closed: Resolution | None) -> list[Operation]:
    """The batch after which an entry no longer asks for a person; `closed` says who decided so."""
    fields: dict[str, Any] = {"/faulted": False}
    if closed is not None:
        fields["/closed"] = asdict(closed)
    return [PatchDocument(position_id(position), fields, WriteResult.TAKEN, version)]


def repetition_operations(
    session: str, report: str, repetition: Repetition | None
) -> list[Operation]:
    """The batch that records a repetition, or, where none is given, that it was sent."""
    if repetition is None:
        return [PatchDocument(repetition_id(report), {"/is_done": True}, WriteResult.TAKEN)]
    document = encode_repetition(session, report, repetition)
    return [CreateDocument(document, WriteResult.TAKEN)]


def ledger_operations(
    session: str,
    ledger: Ledger,
    version: str | None,
    pending: Outbox,
    keys: KeptKeys = NO_KEYS,
) -> list[Operation]:
    """The batch that stores a ledger, the messages of its newest numbers, and their keys.

    The ledger is its last operation. A key that is there already refuses all of it.
    """
    created = [encode_key(session, ledger.group, bound, keys.seconds) for bound in keys.kept]
    if pending.regions:
        created.append(encode_pending(session, pending))
    operations: list[Operation] = [CreateDocument(one, WriteResult.TAKEN) for one in created]
    operations += [
        DeleteDocument(key_id(ledger.group, forgotten), WriteResult.TAKEN)
        for forgotten in keys.forgotten
    ]
    document = encode_ledger(session, ledger)
    if version is None:
        return [*operations, CreateDocument(document, WriteResult.TAKEN)]
    return [*operations, ReplaceDocument(document, version, WriteResult.TAKEN)]


def regions_operations(regions: Sequence[str], version: str | None) -> list[Operation]:
    """The batch that stores the list of regions."""
    document = encode_regions(regions)
    if version is None:
        return [CreateDocument(document, WriteResult.TAKEN)]
    return [ReplaceDocument(document, version, WriteResult.TAKEN)]


def compact_operations(
    positions: Sequence[int], marks: Mapping[int, bool], states: Sequence[int] = ()
) -> list[Operation]:
    """The batch that removes entries and states beside them, and writes or removes marks."""
    ids = [position_id(position) for position in positions] + [state_id(at) for at in states]
    operations: list[Operation] = [DeleteDocument(one, WriteResult.ORPHANED) for one in ids]
    for position, is_marked in marks.items():
        mark = {"/milestone": is_marked}
        operations.append(PatchDocument(position_id(position), mark, WriteResult.ORPHANED))
    return operations
