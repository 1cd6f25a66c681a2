"""The journal, read with the plain Azure SDK: documents as they are stored, nothing of the engine.

Reading costs request units like any client's; take the counters first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from demo.checker import AppliedMessage, StoredEntry, StoredStatus
from testbed.cloud import CloudProcess


@dataclass(frozen=True, slots=True)
class JournalReading:
    entries: tuple[StoredEntry, ...]
    pending: tuple[str, ...]


def read_journal(cloud: CloudProcess) -> JournalReading:
    with cloud.open_container() as container:
        documents = list(container.read_all_items())
    return JournalReading(
        entries=tuple(read_entry(document) for document in documents if is_entry(document)),
        pending=tuple(name for document in documents if (name := name_pending(document))),
    )


def is_entry(document: Mapping[str, Any]) -> bool:
    """Whether a document is an entry of a session; the journal holds other kinds beside."""
    return document.get("kind") == "entry"


def read_entry(document: Mapping[str, Any]) -> StoredEntry:
    """Read one document of kind `entry`; a document of another shape raises KeyError."""
    state = document.get("state") or {}
    return StoredEntry(
        session=document["session"],
        position=int(document["id"]),
        status=StoredStatus(document["status"]),
        covers=tuple(
            AppliedMessage(one["id"], int(one["sequence"]), one["digest"])
            for one in document["covers"]
        ),
        events=state.get("events"),
        region=document["owner"]["region"],
        at=int(document["_ts"]),
    )


def name_pending(document: Mapping[str, Any]) -> str | None:
    if document.get("kind") == "owed" or document.get("owing"):
        return f"{document['session']}/{document['id']}"
    return None
