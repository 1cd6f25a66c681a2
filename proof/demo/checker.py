"""Checks a history: which promises it keeps and which it breaks, each broken one by name.

What happened is known from independent sources: the file the messages came from, the journal as it
is stored, and what the queues hold. Pure functions over frozen data; nothing of the engine is used.
Every defect is named once, by the promise it breaks: a message that ended as faulted is not also
lost, and a second effect is not also out of order.

A run that was broken off leaves things undone. What is known to be somewhere still breaks no
promise then: it is unfinished. What is nowhere is lost, whether the run came to its end or not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain, groupby, pairwise
from typing import Any

from proof.testbed.flights import FlightMessage

EXAMPLES_MAX = 5


class StoredStatus(StrEnum):
    WORKING = "working"
    COMPLETED = "completed"
    FAULTED = "faulted"
    PARKED = "parked"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class AppliedMessage:
    id: str
    sequence: int
    digest: str


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry of a session's journal; `events` counts the statuses its state has seen.

    `at` is the store's time in whole seconds since the epoch.
    """

    session: str
    position: int
    status: StoredStatus
    covers: tuple[AppliedMessage, ...]
    events: int | None
    region: str
    at: int


def is_entry(document: Mapping[str, Any]) -> bool:
    """Return whether a document is an entry of a session; the journal holds other kinds beside."""
    return document.get("kind") == "entry"


def read_entry(document: Mapping[str, Any]) -> StoredEntry:
    """Read one document of kind `entry`; a document of another shape raises KeyError."""
    covers = document["identities"]
    return StoredEntry(
        session=document["session"],
        position=int(document["id"]),
        status=StoredStatus(document["status"]),
        covers=tuple(AppliedMessage(m["id"], int(m["sequence"]), m["digest"]) for m in covers),
        events=(document.get("state") or {}).get("events"),
        region=document["owner"]["region"],
        at=int(document["_ts"]),
    )


def name_pending(document: Mapping[str, Any]) -> str | None:
    if document.get("kind") == "pending" or document.get("pending") or document.get("blocked"):
        return f"{document['session']}/{document['id']}"
    return None


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that is somewhere, whatever became of it so far."""

    session: str
    id: str


def read_parked(document: Mapping[str, Any]) -> HeldMessage | None:
    """Return the message that a document keeps until those before it are there."""
    if document.get("kind") == "parked":
        return HeldMessage(document["session"], document["message"]["id"])
    return None


def read_pending(document: Mapping[str, Any]) -> Iterator[HeldMessage]:
    """Yield the messages of a document whose copies are still to be delivered."""
    if name_pending(document):
        for batch in document.get("outbox", {}).get("batches", ()):
            for message in batch["messages"]:
                yield HeldMessage(message["session"], message["id"])


@dataclass(frozen=True, slots=True)
class DemoHistory:
    """The input of the checker: what was sent, what was stored, and what was left over.

    `parked` are messages that the journal keeps until it is their turn; `pending` names documents
    with something still to deliver, and `pending_messages` is what they hold; `queued` is what each
    region's queue still holds. `is_over` says that the run came to its end and was not broken off,
    `is_fed` that everything was sent.
    """

    sent: tuple[FlightMessage, ...] = ()
    entries: tuple[StoredEntry, ...] = ()
    parked: tuple[HeldMessage, ...] = ()
    pending: tuple[str, ...] = ()
    pending_messages: frozenset[HeldMessage] = frozenset()
    queued: Mapping[str, tuple[HeldMessage, ...]] = field(default_factory=dict)
    is_over: bool = True
    is_fed: bool = True

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, Any]]) -> "DemoHistory":
        """Read what a journal's documents say; one of another shape raises KeyError."""
        kept = list(documents)
        return cls(
            entries=tuple(map(read_entry, filter(is_entry, kept))),
            parked=tuple(filter(None, map(read_parked, kept))),
            pending=tuple(filter(None, map(name_pending, kept))),
            pending_messages=frozenset(one for each in kept for one in read_pending(each)),
        )

    def of_sessions(self, is_wanted: Callable[[str], bool]) -> "DemoHistory":
        """Return what there is of the sessions that are wanted."""
        return replace(
            self,
            entries=tuple(one for one in self.entries if is_wanted(one.session)),
            parked=tuple(one for one in self.parked if is_wanted(one.session)),
            pending=tuple(one for one in self.pending if is_wanted(one.rpartition("/")[0])),
            queued={
                region: tuple(one for one in messages if is_wanted(one.session))
                for region, messages in self.queued.items()
            },
        )

    def held(self) -> set[HeldMessage]:
        """Return the messages that are anywhere: with an entry, or on their way to one."""
        applied = (
            HeldMessage(entry.session, message.id)
            for entry in self.entries
            for message in entry.covers
        )
        return {*applied, *self.parked, *self.pending_messages, *chain(*self.queued.values())}

    def completed(self) -> list[StoredEntry]:
        """Return the entries that stand for effects, in journal order within each session."""
        done = [entry for entry in self.entries if entry.status is StoredStatus.COMPLETED]
        return sorted(done, key=lambda entry: (entry.session, entry.position))


class Breach(StrEnum):
    LOST = "lost"
    DUPLICATED = "duplicated"
    OUT_OF_ORDER = "out of order"
    OVERLAPPING = "overlapping"
    DIFFERENT = "different content"
    UNEXPECTED = "unexpected"
    FAULTED = "faulted"
    UNSENT = "not sent"
    UNFINISHED = "unfinished"
    REMAINING = "left in queues"
    PENDING = "pending, not delivered"


# What a run that is over must not leave, and a run that was broken off may.
LEFT = frozenset({Breach.UNSENT, Breach.UNFINISHED, Breach.REMAINING, Breach.PENDING})


@dataclass(frozen=True, slots=True)
class BreachCount:
    breach: Breach
    count: int
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.breach}: {self.count} ({', '.join(self.examples)})"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The numbers of messages and effects, and one result for every way to break a promise.

    Of a run that is not over, what is left undone is unfinished and breaks nothing.
    """

    sent: int
    effects: int
    results: tuple[BreachCount, ...]
    is_over: bool = True

    @property
    def broken(self) -> tuple[BreachCount, ...]:
        return tuple(one for one in self.results if one.count and not self.is_left(one))

    @property
    def unfinished(self) -> tuple[BreachCount, ...]:
        return tuple(one for one in self.results if one.count and self.is_left(one))

    def is_left(self, result: BreachCount) -> bool:
        """Return whether a result says what a run that was broken off did not come to."""
        return not self.is_over and result.breach in LEFT


def check_history(history: DemoHistory) -> CheckResult:
    """Hold the journal against the source; the result names every defect and nothing else."""
    results = []
    for breach, check in CHECKS.items():
        names = list(check(history))
        examples = tuple(dict.fromkeys(names))[:EXAMPLES_MAX]
        results.append(BreachCount(breach, len(names), examples))
    effects = sum(len(entry.covers) for entry in history.completed())
    return CheckResult(len(history.sent), effects, tuple(results), history.is_over)


def find_lost(history: DemoHistory) -> Iterator[str]:
    """Name what was sent and is nowhere: not in the journal, in no queue, and not pending."""
    return (name for name, is_unsent in find_missing(history) if not is_unsent)


def list_unsent(history: DemoHistory) -> Iterator[str]:
    """Name what a feed that has not ended has not come to."""
    return (name for name, is_unsent in find_missing(history) if is_unsent)


def find_missing(history: DemoHistory) -> Iterator[tuple[str, bool]]:
    """Name the messages that are nowhere, each with whether it may not have been sent yet.

    A feed sends the messages of a session in order: what is before one that is somewhere was sent.
    """
    held = history.held()
    last: dict[str, int] = {}
    for sent in history.sent:
        if HeldMessage(sent.session, sent.id) in held:
            last[sent.session] = max(sent.sequence, last.get(sent.session, -1))
    for sent in history.sent:
        if HeldMessage(sent.session, sent.id) not in held:
            is_unsent = not history.is_fed and sent.sequence > last.get(sent.session, -1)
            yield f"{sent.session} message {sent.sequence}", is_unsent


def find_duplicated(history: DemoHistory) -> Iterator[str]:
    """Name every effect after the first of the same message, wherever it took place."""
    times = Counter(message.id for _, message in walk_effects(history))
    return (id_ for id_, count in times.items() for _ in range(count - 1))


def find_out_of_order(history: DemoHistory) -> Iterator[str]:
    """Name first effects that follow one with a higher number in the same session."""
    seen: set[str] = set()
    highest: dict[str, int] = {}
    for entry, message in walk_effects(history):
        if message.id in seen:
            continue
        seen.add(message.id)
        if message.sequence < highest.get(entry.session, -1):
            yield _effect_name(entry, message)
        highest[entry.session] = max(message.sequence, highest.get(entry.session, -1))


def find_overlapping(history: DemoHistory) -> Iterator[str]:
    """Name entries whose state does not build on the state of the entry before them.

    Where an entry between the two is gone from the journal there is nothing to compare.
    """
    taken = {(entry.session, entry.position) for entry in history.entries}
    for session, group in groupby(history.completed(), key=lambda entry: entry.session):
        for before, after in pairwise([None, *group]):
            between = range(before.position if before else 0, after.position if after else 0)
            is_whole = taken.issuperset((session, position) for position in between)
            if after and is_whole:
                events_before = (before.events if before else 0) or 0
                if after.events != events_before + len(after.covers):
                    yield _entry_name(after)


def find_different(history: DemoHistory) -> Iterator[str]:
    """Name effects whose content or number is not that of the message with their id."""
    known = {sent.id: sent for sent in history.sent}
    for entry, message in walk_effects(history):
        sent = known.get(message.id)
        if sent and (sent.digest, sent.sequence) != (message.digest, message.sequence):
            yield _effect_name(entry, message)


def find_unexpected(history: DemoHistory) -> Iterator[str]:
    known = {(sent.session, sent.id) for sent in history.sent}
    return (
        _effect_name(entry, message)
        for entry, message in walk_effects(history)
        if (entry.session, message.id) not in known
    )


def find_faulted(history: DemoHistory) -> Iterator[str]:
    ends = (StoredStatus.FAULTED, StoredStatus.SKIPPED)
    return (_entry_name(entry) for entry in history.entries if entry.status in ends)


def find_unfinished(history: DemoHistory) -> Iterator[str]:
    """Name claims that nobody finished and parked messages that were never processed."""
    applied = {(entry.session, m.id) for entry in history.entries for m in entry.covers}
    for parked in history.parked:
        if (parked.session, parked.id) not in applied:
            yield f"{parked.session} message {parked.id}, parked"
    done = {(entry.session, message.id) for entry, message in walk_effects(history)}
    for entry in history.entries:
        waiting = any((entry.session, message.id) not in done for message in entry.covers)
        if entry.status is StoredStatus.WORKING or (
            entry.status is StoredStatus.PARKED and waiting
        ):
            yield _entry_name(entry)


def find_remaining(history: DemoHistory) -> Iterator[str]:
    for region, messages in history.queued.items():
        yield from (f"{message.session} in {region}" for message in messages)


def walk_effects(history: DemoHistory) -> Iterator[tuple[StoredEntry, AppliedMessage]]:
    return ((entry, message) for entry in history.completed() for message in entry.covers)


CHECKS: dict[Breach, Callable[[DemoHistory], Iterator[str]]] = {
    Breach.LOST: find_lost,
    Breach.DUPLICATED: find_duplicated,
    Breach.OUT_OF_ORDER: find_out_of_order,
    Breach.OVERLAPPING: find_overlapping,
    Breach.DIFFERENT: find_different,
    Breach.UNEXPECTED: find_unexpected,
    Breach.FAULTED: find_faulted,
    Breach.UNSENT: list_unsent,
    Breach.UNFINISHED: find_unfinished,
    Breach.REMAINING: find_remaining,
    Breach.PENDING: lambda history: iter(history.pending),
}


def _effect_name(entry: StoredEntry, message: AppliedMessage) -> str:
    return f"{entry.session} message {message.sequence} at position {entry.position}"


def _entry_name(entry: StoredEntry) -> str:
    return f"{entry.session} position {entry.position}"
