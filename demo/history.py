"""What a run's two witnesses say: the source file, and the journal read with the plain SDK."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How an entry of the journal stands."""

    WORKING = "working"
    COMPLETED = "completed"
    FAULTED = "faulted"
    PARKED = "parked"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message the source says must have been sent, numbered from 0 within its session."""

    session: str
    sequence: int
    id: str
    digest: str


@dataclass(frozen=True, slots=True)
class Cover:
    """A message that an entry says it covers."""

    id: str
    sequence: int
    digest: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a session's journal; `events` counts the statuses its state has seen.

    `at` is the store's time in whole seconds since the epoch.
    """

    session: str
    position: int
    status: Status
    covers: tuple[Cover, ...]
    events: int | None
    region: str
    at: int


@dataclass(frozen=True, slots=True)
class History:
    """Everything the verdict judges: what was to happen, what did, what was left over."""

    sent: tuple[Sent, ...]
    entries: tuple[Entry, ...]
    owed: tuple[str, ...] = ()
    left: Mapping[str, int] = field(default_factory=dict)

    def completed(self) -> list[Entry]:
        """Return the entries that stand for effects, in journal order within each session."""
        done = [entry for entry in self.entries if entry.status is Status.COMPLETED]
        return sorted(done, key=lambda entry: (entry.session, entry.position))


def entry_of(document: Mapping[str, Any]) -> Entry:
    """Read one document of kind `entry`; a document of another shape raises KeyError."""
    state = document.get("state") or {}
    return Entry(
        session=document["session"],
        position=int(document["id"]),
        status=Status(document["status"]),
        covers=tuple(
            Cover(cover["id"], int(cover["sequence"]), cover["digest"])
            for cover in document["covers"]
        ),
        events=state.get("events"),
        region=document["owner"]["region"],
        at=int(document["_ts"]),
    )


def owed_by(document: Mapping[str, Any]) -> str | None:
    """Name what a document still owes somebody, or None when it owes nothing."""
    if document.get("kind") == "owed" or document.get("owing"):
        return f"{document['session']}/{document['id']}"
    return None
