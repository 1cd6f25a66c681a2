"""What is written at once: lists of operations that the store applies in order, all or none.

The order decides what a refusal means, because the store names the first operation that failed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared.domain.journal import ARRIVALS, Entry, Marker, Status
from shared.domain.outbox import Outbox, Staged
from shared.domain.producer import Ledger
from shared.ports import NOTHING_CARRIED, Carried, ParkedMessage, WriteResult
from shared.storage.documents import (
    Document,
    decode_outbox,
    encode_entry,
    encode_genesis,
    encode_ledger,
    encode_marker,
    encode_parked,
    encode_pending,
    is_producers_outbox,
    parked_id,
    position_id,
    staged_ids,
    version_of,
    with_outbox,
)

# How long staged outputs are kept of which one was refused.
REFUSED_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """Prove that a document exists."""

    document_id: str
    refused: WriteResult


@dataclass(frozen=True, slots=True)
class CreateDocument:
    """Create a document that must not exist."""

    document: Document
    refused: WriteResult


@dataclass(frozen=True, slots=True)
class UpsertDocument:
    """Store a document whether it exists or not."""

    document: Document
    refused: WriteResult = WriteResult.TAKEN


@dataclass(frozen=True, slots=True)
class ReplaceDocument:
    """Replace a document that must still be of this version."""

    document: Document
    version: str
    refused: WriteResult


@dataclass(frozen=True, slots=True)
class PatchDocument:
    """Set fields of a document that must exist."""

    document_id: str
    fields: Mapping[str, Any]
    refused: WriteResult


@dataclass(frozen=True, slots=True)
class DeleteDocument:
    """Delete a document that must exist, and be of this version where one is given."""

    document_id: str
    refused: WriteResult
    version: str | None = None


type Operation = (
    ReadDocument
    | CreateDocument
    | UpsertDocument
    | ReplaceDocument
    | PatchDocument
    | DeleteDocument
)


def append_operations(entry: Entry, carried: Carried = NOTHING_CARRIED) -> list[Operation]:
    """The batch that appends an entry.

    The first entry of a session creates its genesis, which is never removed, so nobody can begin a
    session twice; every later one proves that its predecessor is still there.
    """
    operations: list[Operation] = []
    # 1. The position is the next one. A worker that slept while compaction removed the entries it
    #    remembers could otherwise create a position that was taken before.
    if entry.position == 0:
        operations.append(CreateDocument(encode_genesis(entry.session), WriteResult.TAKEN))
    elif carried.acknowledges:
        # This proves that the predecessor exists, too: a patch needs its document.
        taken: dict[str, Any] = {"/owing": [], "/outbox/regions": []}
        predecessor = position_id(entry.position - 1)
        operations.append(PatchDocument(predecessor, taken, WriteResult.ORPHANED))
    else:
        predecessor = position_id(entry.position - 1)
        operations.append(ReadDocument(predecessor, WriteResult.ORPHANED))
    # 2. Nobody else was first. This create is claim, commit, deduplication and fence at once.
    operations.append(CreateDocument(encode_entry(entry), WriteResult.TAKEN))
    # 3. A message is parked, or taken from where it was parked.
    number = entry.identities[0].number
    if entry.status is Status.PARKED and entry.message is not None:
        parked = encode_parked(entry.message, number)
        if entry.parked.get(number.group) == 1:
            # Where nobody waits, what lies there was left by an entry that was deleted by hand.
            operations.append(UpsertDocument(parked))
        else:
            operations.append(CreateDocument(parked, WriteResult.PARKED_BEFORE))
    if entry.from_parked:
        operations.append(DeleteDocument(parked_id(number), WriteResult.ORPHANED))
    # 4. Un-numbered messages leave a proof that they were seen. One that was parked, or is
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
    return operations + adopt_staged(entry)


def replace_operations(
    entry: Entry,
    version: str,
    carried: Carried = NOTHING_CARRIED,
    waiting: ParkedMessage | None = None,
) -> list[Operation]:
    """The batch that replaces a claim, with a message to be parked beside it."""
    operations: list[Operation] = [ReplaceDocument(encode_entry(entry), version, WriteResult.TAKEN)]
    if waiting is not None:
        parked = encode_parked(waiting.message, waiting.identity.number)
        operations.append(CreateDocument(parked, WriteResult.PARKED_BEFORE))
        if waiting.identity.number.group == ARRIVALS:
            proof = Marker(waiting.identity, entry.position)
            marker = encode_marker(entry.session, proof, carried.marker_seconds)
            operations.append(CreateDocument(marker, WriteResult.SEEN_BEFORE))
    return operations + adopt_staged(entry)


def adopt_staged(entry: Entry) -> list[Operation]:
    """Staged outputs become the entry's: they no longer vanish by themselves.

    An attempt that was too slow finds them gone, and cannot commit.
    """
    staged = entry.outbox.location
    if not isinstance(staged, Staged):
        return []
    return [PatchDocument(part, {"/ttl": -1}, WriteResult.ORPHANED) for part in staged_ids(staged)]


def acknowledge_operations(
    document: Document, delivered: Sequence[str], refused: Mapping[str, str]
) -> list[Operation]:
    """The batch that strikes regions off a stored outbox, and deletes what nobody needs then."""
    before = decode_outbox(document)
    outbox = replace(before.without(delivered), refused={**before.refused, **refused})
    version = version_of(document)
    if is_producers_outbox(document) and not outbox.regions and not refused:
        return [DeleteDocument(document["id"], WriteResult.TAKEN, version)]
    operations: list[Operation] = [
        ReplaceDocument(with_outbox(document, outbox), version, WriteResult.TAKEN)
    ]
    if isinstance(outbox.location, Staged) and not outbox.regions:
        for part in staged_ids(outbox.location):
            if outbox.refused:
                # People may still want to see an output that was refused.
                kept = {"/ttl": REFUSED_SECONDS}
                operations.append(PatchDocument(part, kept, WriteResult.ORPHANED))
            else:
                operations.append(DeleteDocument(part, WriteResult.ORPHANED))
    return operations


def ledger_operations(
    session: str, ledger: Ledger, version: str | None, pending: Outbox
) -> list[Operation]:
    """The batch that stores a ledger, and the messages of its newest numbers."""
    document = encode_ledger(session, ledger)
    operations: list[Operation] = [CreateDocument(document, WriteResult.TAKEN)]
    if version is not None:
        operations = [ReplaceDocument(document, version, WriteResult.TAKEN)]
    if pending.regions:
        operations.append(CreateDocument(encode_pending(session, pending), WriteResult.TAKEN))
    return operations


def compact_operations(positions: Sequence[int], passed: int | None) -> list[Operation]:
    """The batch that removes entries, and unmarks a milestone below which none is left."""
    operations: list[Operation] = [
        DeleteDocument(position_id(position), WriteResult.ORPHANED) for position in positions
    ]
    if passed is not None:
        unmarked = {"/milestone": False}
        operations.append(PatchDocument(position_id(passed), unmarked, WriteResult.ORPHANED))
    return operations


def apply_patch(document: Document, fields: Mapping[str, Any]) -> None:
    """Set what paths such as /outbox/regions name; all but a path's last part must be there."""
    for path, value in fields.items():
        *parents, last = path.strip("/").split("/")
        parent = document
        for name in parents:
            parent = parent[name]
        parent[last] = value
