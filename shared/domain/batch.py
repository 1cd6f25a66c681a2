"""An append as a list of operations that the store applies all or none, in this order.

The order decides what a refusal means, because the store names the first operation that failed.
"""

from dataclasses import dataclass
from enum import Enum, auto

from shared.domain.documents import (
    Document,
    entry_document,
    genesis_document,
    parked_document,
    parked_id,
    position_id,
)
from shared.domain.journal import Entry, Status


class Appended(Enum):
    """What became of a create at the end of a journal."""

    CREATED = auto()
    TAKEN = (
        auto()
    )  # the position holds an entry, which may be our own earlier try: compare attempts
    ORPHANED = auto()  # something the entry builds on is gone: its head is out of date
    PARKED_BEFORE = auto()  # the message to be parked is parked already


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
class Delete:
    """Delete a document that must exist."""

    document_id: str
    refused: Appended


type Operation = Read | Create | Delete


def append_operations(entry: Entry) -> list[Operation]:
    """The batch that appends an entry.

    The first entry of a session creates its genesis, which is never removed, so nobody can begin a
    session twice; every later one proves that its predecessor is still there.
    """
    operations = [beginning(entry), Create(entry_document(entry), Appended.TAKEN)]
    number = entry.covers[0].number
    if entry.status is Status.PARKED and entry.message is not None:
        operations.append(Create(parked_document(entry.message), Appended.PARKED_BEFORE))
    if entry.from_parked:
        operations.append(Delete(parked_id(number), Appended.ORPHANED))
    return operations


def beginning(entry: Entry) -> Operation:
    """The proof that the position is the next one."""
    if entry.position == 0:
        return Create(genesis_document(entry.session), Appended.TAKEN)
    return Read(position_id(entry.position - 1), Appended.ORPHANED)
