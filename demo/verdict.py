"""The verdict: which promises a history keeps and which it breaks, each broken one by name.

Pure functions over frozen data. Every defect is named once, by the promise it breaks: a message
that ended as faulted is not also lost, and a second effect is not also out of order.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise

from demo.history import Cover, Entry, History, Sent, Status

EXAMPLES = 5


class Breach(StrEnum):
    """The ways in which a history can break a promise."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    OUT_OF_ORDER = "out of order"
    OVERLAPPING = "overlapping"
    DIFFERENT = "different content"
    UNEXPECTED = "unexpected"
    FAULTED = "faulted"
    UNFINISHED = "unfinished"
    LEFT = "left in queues"
    OWED = "owed, not delivered"


@dataclass(frozen=True, slots=True)
class Finding:
    """How often a promise was broken, with a few examples to look up."""

    breach: Breach
    count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was sent, what took effect, and one finding for every way to break a promise."""

    sent: int
    effects: int
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> tuple[Finding, ...]:
        """Return the findings that say a promise was broken."""
        return tuple(finding for finding in self.findings if finding.count)


def judge(history: History) -> Verdict:
    """Hold the journal against the source; the answer names every defect and nothing else."""
    return Verdict(
        sent=len(history.sent),
        effects=sum(len(entry.covers) for entry in history.completed()),
        findings=tuple(_finding(breach, look(history)) for breach, look in LOOKS.items()),
    )


def lost(history: History) -> Iterator[str]:
    """Name what was sent and has neither an effect nor another named end."""
    ended = {(entry.session, cover.id) for entry in history.entries for cover in entry.covers}
    return (_sent_name(sent) for sent in history.sent if (sent.session, sent.id) not in ended)


def duplicated(history: History) -> Iterator[str]:
    """Name every effect after the first of the same message, wherever it took place."""
    times = Counter(cover.id for _, cover in effects(history))
    return (id_ for id_, count in times.items() for _ in range(count - 1))


def out_of_order(history: History) -> Iterator[str]:
    """Name first effects that follow one with a higher number in the same session."""
    seen: set[str] = set()
    highest: dict[str, int] = {}
    for entry, cover in effects(history):
        if cover.id in seen:
            continue
        seen.add(cover.id)
        if cover.sequence < highest.get(entry.session, -1):
            yield _cover_name(entry, cover)
        highest[entry.session] = max(cover.sequence, highest.get(entry.session, -1))


def overlapping(history: History) -> Iterator[str]:
    """Name entries whose state does not build on the state of the entry before them.

    Where an entry between the two is gone from the journal there is nothing to compare.
    """
    taken = {(entry.session, entry.position) for entry in history.entries}
    for session, group in groupby(history.completed(), key=lambda entry: entry.session):
        for before, after in pairwise([None, *group]):
            between = range(before.position if before else 0, after.position if after else 0)
            is_whole = taken.issuperset((session, position) for position in between)
            if after and is_whole and not _builds_on(before, after):
                yield _entry_name(after)


def different(history: History) -> Iterator[str]:
    """Name effects whose content or number is not that of the message with their id."""
    known = {sent.id: sent for sent in history.sent}
    for entry, cover in effects(history):
        sent = known.get(cover.id)
        if sent and (sent.digest, sent.sequence) != (cover.digest, cover.sequence):
            yield _cover_name(entry, cover)


def unexpected(history: History) -> Iterator[str]:
    """Name effects in a session to which the source sent no such message."""
    known = {(sent.session, sent.id) for sent in history.sent}
    return (
        _cover_name(entry, cover)
        for entry, cover in effects(history)
        if (entry.session, cover.id) not in known
    )


def faulted(history: History) -> Iterator[str]:
    """Name entries that ended as faulted or were skipped."""
    ends = (Status.FAULTED, Status.SKIPPED)
    return (_entry_name(entry) for entry in history.entries if entry.status in ends)


def unfinished(history: History) -> Iterator[str]:
    """Name claims nobody finished and parked messages whose turn never came."""
    done = {(entry.session, cover.id) for entry, cover in effects(history)}
    for entry in history.entries:
        waiting = any((entry.session, cover.id) not in done for cover in entry.covers)
        if entry.status is Status.WORKING or (entry.status is Status.PARKED and waiting):
            yield _entry_name(entry)


def left(history: History) -> Iterator[str]:
    """Name, once per message, the region whose queue still holds it."""
    return (region for region, count in history.left.items() for _ in range(count))


def owed(history: History) -> Iterator[str]:
    """Name the documents that still owe a copy or an output to a namespace."""
    return iter(history.owed)


def effects(history: History) -> Iterator[tuple[Entry, Cover]]:
    """Walk over the effects of every session in journal order."""
    return ((entry, cover) for entry in history.completed() for cover in entry.covers)


LOOKS: dict[Breach, Callable[[History], Iterator[str]]] = {
    Breach.LOST: lost,
    Breach.DUPLICATED: duplicated,
    Breach.OUT_OF_ORDER: out_of_order,
    Breach.OVERLAPPING: overlapping,
    Breach.DIFFERENT: different,
    Breach.UNEXPECTED: unexpected,
    Breach.FAULTED: faulted,
    Breach.UNFINISHED: unfinished,
    Breach.LEFT: left,
    Breach.OWED: owed,
}


def _finding(breach: Breach, names: Iterable[str]) -> Finding:
    witnesses = list(names)
    return Finding(breach, len(witnesses), tuple(dict.fromkeys(witnesses))[:EXAMPLES])


def _builds_on(before: Entry | None, after: Entry) -> bool:
    so_far = (before.events if before else 0) or 0
    return after.events == so_far + len(after.covers)


def _sent_name(sent: Sent) -> str:
    return f"{sent.session} message {sent.sequence}"


def _cover_name(entry: Entry, cover: Cover) -> str:
    return f"{entry.session} message {cover.sequence} at position {entry.position}"


def _entry_name(entry: Entry) -> str:
    return f"{entry.session} position {entry.position}"
