"""What is written in one go, as a list of operations that the store applies all or none, in order.

The order decides what a refusal means, because the store names the first operation that failed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from shared.domain.documents import (
    entry_document,
    genesis_document,
    ledger_document,
    marker_document,
    owed_document,
    parked_document,
    parked_id,
    position_id,
    staged_id,
    with_delivered,
)
from shared.domain.journal import ARRIVALS, Covered, Entry, Mark, Status
from shared.domain.message import Message, Number
from shared.domain.outbox import Outbox, Staged
from shared.domain.producer import Ledger
from shared.domain.stored_messages import Document, outbox_from

# How long the proof that an un-numbered message was seen is kept.
MARKER_SECONDS = 7 * 24 * 3600
# How long staged outputs are kept of which one was refused.
REFUSED_SECONDS = 30 * 24 * 3600


class Appended(Enum):
    """What became of a write at the end of a journal."""

    CREATED = auto()
    # The position holds another entry or version, which may be our own earlier try: compare.
    TAKEN = auto()
    # Something the entry builds on is gone: its head is out of date.
    ORPHANED = auto()
    # The message to be parked is parked already.
    PARKED_BEFORE = auto()
    # The un-numbered message has its entry already.
    SEEN_BEFORE = auto()


@dataclass(frozen=True, slots=True)
class Read:
    """Prove that a document exists."""

    document_id: str
    refused: Appended


@dataclass(frozen=True, slots=True)
class Create:
    """Create a document that must not exist."""

    document: Document
    refused: Appended


@dataclass(frozen=True, slots=True)
class Upsert:
    """Store a document whether it exists or not."""

    document: Document
    refused: Appended = Appended.TAKEN


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace a document that must still be of this version."""

    document: Document
    version: str
    refused: Appended


@dataclass(frozen=True, slots=True)
class Patch:
    """Set fields of a document that must exist."""

    document_id: str
    fields: Mapping[str, Any]
    refused: Appended


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a document that must exist, and be of this version where one is given."""

    document_id: str
    refused: Appended
    version: str | None = None


type Operation = Read | Create | Upsert | Replace | Patch | Delete


@dataclass(frozen=True, slots=True)
class Carried:
    """What an entry's batch does beside creating it.

    `acknowledges` says that every region took the predecessor's outbox: saying so here costs no
    write of its own.
    """

    acknowledges: bool = False
    marker_seconds: int = MARKER_SECONDS


NOTHING_CARRIED = Carried()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message to be parked beside a claim, and the number it is parked under."""

    message: Message
    covered: Covered

    @property
    def number(self) -> Number:
        """The number it is parked under."""
        return self.covered.number


def append_operations(entry: Entry, carried: Carried = NOTHING_CARRIED) -> list[Operation]:
    """The batch that appends an entry.

    The first entry of a session creates its genesis, which is never removed, so nobody can begin a
    session twice; every later one proves that its predecessor is still there.
    """
    operations = [beginning(entry, carried), Create(entry_document(entry), Appended.TAKEN)]
    number = entry.covers[0].number
    if entry.status is Status.PARKED and entry.message is not None:
        parked = parked_document(entry.message, number)
        # What lies there although nobody waits was left by an entry that was deleted by hand.
        is_first = entry.parked.get(number.group) == 1
        operations.append(Upsert(parked) if is_first else Create(parked, Appended.PARKED_BEFORE))
    if entry.from_parked:
        operations.append(Delete(parked_id(number), Appended.ORPHANED))
    operations += proofs(entry, carried)
    return operations + adopted(entry)


def replace_operations(
    entry: Entry, version: str, carried: Carried = NOTHING_CARRIED, waiting: Waiting | None = None
) -> list[Operation]:
    """The batch that replaces a claim, with a message to be parked beside it."""
    operations: list[Operation] = [Replace(entry_document(entry), version, Appended.TAKEN)]
    if waiting is not None:
        parked = parked_document(waiting.message, waiting.number)
        operations.append(Create(parked, Appended.PARKED_BEFORE))
        documents = markers(entry, [waiting.covered], carried)
        operations += [Create(marker, Appended.SEEN_BEFORE) for marker in documents]
    return operations + adopted(entry)


def acknowledge_operations(
    document: Document, delivered: Sequence[str], refused: Mapping[str, str]
) -> list[Operation]:
    """The batch that strikes regions off a stored outbox; what is paid up leaves nothing behind."""
    after = with_delivered(document, delivered, refused)
    outbox = outbox_from(after)
    version = document["_etag"]
    if after["kind"] == "owed" and not outbox.owing and not refused:
        return [Delete(document["id"], Appended.TAKEN, version)]
    operations: list[Operation] = [Replace(after, version, Appended.TAKEN)]
    if isinstance(outbox.elsewhere, Staged) and not outbox.owing:
        operations += [cleared(part, outbox) for part in parts(outbox.elsewhere)]
    return operations


def cleared(document_id: str, outbox: Outbox) -> Operation:
    """What becomes of a staged part that is paid: people may still want to see a refused output."""
    if outbox.refused:
        return Patch(document_id, {"/ttl": REFUSED_SECONDS}, Appended.ORPHANED)
    return Delete(document_id, Appended.ORPHANED)


def ledger_operations(
    session: str, ledger: Ledger, version: str | None, owed: Outbox
) -> list[Operation]:
    """The batch that stores a ledger and what its newest numbers owe."""
    document = ledger_document(session, ledger)
    stored: Operation = Create(document, Appended.TAKEN)
    if version is not None:
        stored = Replace(document, version, Appended.TAKEN)
    if not owed.owing:
        return [stored]
    return [stored, Create(owed_document(session, owed), Appended.TAKEN)]


def compact_operations(positions: Sequence[int], passed: int | None) -> list[Operation]:
    """The batch that removes entries, and unmarks a milestone below which none is left."""
    operations: list[Operation] = [
        Delete(position_id(position), Appended.ORPHANED) for position in positions
    ]
    if passed is not None:
        operations.append(Patch(position_id(passed), {"/milestone": False}, Appended.ORPHANED))
    return operations


def beginning(entry: Entry, carried: Carried) -> Operation:
    """The proof that the position is the next one."""
    if entry.position == 0:
        return Create(genesis_document(entry.session), Appended.TAKEN)
    predecessor = position_id(entry.position - 1)
    if carried.acknowledges:
        return Patch(predecessor, {"/owing": [], "/outbox/regions": []}, Appended.ORPHANED)
    return Read(predecessor, Appended.ORPHANED)


def proofs(entry: Entry, carried: Carried) -> list[Operation]:
    """The proofs that the entry's un-numbered messages were seen.

    One that was parked, or is resolved, has its marker already, unless it waited for too long.
    """
    documents = markers(entry, entry.covers, carried)
    if entry.from_parked or entry.resolution is not None:
        return [Upsert(document) for document in documents]
    return [Create(document, Appended.SEEN_BEFORE) for document in documents]


def markers(entry: Entry, covers: Sequence[Covered], carried: Carried) -> list[Document]:
    """The markers of those of the messages that came without a number."""
    marks = [Mark(c, entry.position) for c in covers if c.number.group == ARRIVALS]
    return [marker_document(entry.session, mark, carried.marker_seconds) for mark in marks]


def adopted(entry: Entry) -> list[Operation]:
    """Staged outputs become the entry's: they no longer vanish by themselves.

    An attempt that was too slow finds them gone, and cannot commit.
    """
    staged = entry.outbox.elsewhere
    if not isinstance(staged, Staged):
        return []
    return [Patch(document_id, {"/ttl": -1}, Appended.ORPHANED) for document_id in parts(staged)]


def parts(staged: Staged) -> list[str]:
    """The ids of the documents that hold staged outputs."""
    return [staged_id(staged.attempt, index) for index in range(staged.documents)]
