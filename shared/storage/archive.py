"""The rows that an archive takes of the journal, and the record of how far it has come.

An archive has a row for each version of an entry that it saw: the session, the position, when the
store wrote it, and the entry as stored, as JSON. The genesis of a session is a row as well, at
GENESIS_POSITION: another session of the same name, after this one was removed, begins there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.domain.journal import Status
from shared.ports import Document
from shared.storage.documents import session_in, written_at
from shared.storage.entries import GENESIS_ID, lacks_state, state_id, with_state

# The record of the archive lies beside the list of regions, whose session has no other documents.
ARCHIVE_ID, ARCHIVE_KIND = "archive", "archive"
GENESIS_POSITION = -1
WRITTEN_SQL = (
    "SELECT * FROM c WHERE c._ts > @since AND c._ts <= @until AND c.kind IN ('entry', 'genesis')"
)
OLDEST_SQL = "SELECT TOP 1 c._ts FROM c WHERE c._ts > @since ORDER BY c._ts"


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """An archive has all that was written until this time of the store's clock, and lies there."""

    until: int
    place: str


type ArchiveRow = tuple[str, int, int, str]


def encode_archive_record(session: str, record: ArchiveRecord) -> Document:
    document: Document = {"id": ARCHIVE_ID, "session": session, "kind": ARCHIVE_KIND}
    return document | {"until": record.until, "place": record.place}


def decode_archive_record(document: Mapping[str, Any]) -> ArchiveRecord:
    return ArchiveRecord(document["until"], document["place"])


def archived_state_id(document: Mapping[str, Any]) -> str | None:
    """Return the id of the document with an entry's state, where that lies beside the entry."""
    return state_id(int(document["id"])) if lacks_state(document) else None


def make_archive_row(
    document: Document, state: Mapping[str, Any] | None = None
) -> ArchiveRow | None:
    """The row of a document, with the state beside it; None for a claim, which has not ended.

    Whatever holds the body of a message that is not to be archived is left out.
    """
    session, written = session_in(document), int(written_at(document))
    if document["id"] == GENESIS_ID:
        return (
            session,
            GENESIS_POSITION,
            written,
            json.dumps({"id": GENESIS_ID, "kind": GENESIS_ID}),
        )
    if document.get("claimed"):
        return None
    kept = (with_state(document, state) if state else None) or document
    hidden = set[str]()
    if None in document.get("inputs", ()):
        # The report of a fault holds the message whole.
        hidden = {"message", "outbox"} if document["status"] == Status.FAULTED else {"message"}
    kept = {n: value for n, value in kept.items() if not n.startswith("_") and n not in hidden}
    return session, int(document["id"]), written, json.dumps(kept, separators=(",", ":"))
