"""The nine promises, each as a look at a history that names every breach of it.

A defect is named by the promise it breaks and by no other: a lost message is not also out of
order, and an effect that took place twice has not also other bytes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from chaos.judge.history import History, Report, Seen, Sent
from chaos.judge.walk import Break, Broken, walk

# What the product keeps beyond its retention, in entries of a session.
OLD_ENTRIES_MAX = 200
UNCOUNTED = ("entry", "owed", "parked")


@dataclass(frozen=True)
class Case:
    """A history, and what was found by walking over its sessions."""

    history: History

    @cached_property
    def broken(self) -> tuple[Broken, ...]:
        """What is wrong in the chains of all sessions."""
        history = self.history
        return tuple(
            broken
            for session, messages in history.sessions.items()
            for broken in walk(session, messages, history.copies, history.heads.get(session))
        )

    def breaks(self, kind: Break) -> Iterator[str]:
        """The names of breaks of a kind."""
        return (name for found, name in self.broken if found is kind)

    @cached_property
    def effects(self) -> tuple[Sent, ...]:
        """Messages that should have an effect."""
        return tuple(sent for own in self.history.sessions.values() for sent in own)

    @cached_property
    def poisoned(self) -> tuple[Sent, ...]:
        """Messages that should end as a fault, as far as they are known to be safe."""
        return tuple(one for one in self.history.sent if one.is_poisoned and one.is_safe)


def lost(case: Case) -> Iterator[str]:
    """P1: safe messages without an effect, and effects that should have reached the outside."""
    yield from case.breaks(Break.LOST)
    ran = {run.id for run in case.history.runs}
    for sent in case.effects:
        if sent.calls_outside and sent.id in case.history.copies and sent.id not in ran:
            yield f"{sent}: its handler never ran"


def repeated(case: Case) -> Iterator[str]:
    """P2: messages with more than one effect, and those whose effects have several ids."""
    yield from case.breaks(Break.DOUBLED)
    for sent in case.effects:
        outputs = {seen.output for seen in case.history.copies.get(sent.id, ())}
        if len(outputs) > 1:
            yield f"{sent}: {len(outputs)} outputs"


def out_of_order(case: Case) -> Iterator[str]:
    """P3: effects that do not follow what was sent before them, or came out before their turn."""
    yield from case.breaks(Break.DISPLACED)
    highest: dict[tuple[str, str], int] = {}
    known: set[tuple[str, str]] = set()
    for seen in case.history.seen:
        stream, copy = (seen.region, seen.session), (seen.region, seen.id)
        if copy in known:
            continue
        known.add(copy)
        if seen.place < highest.get(stream, -1):
            yield f"{seen} came out late"
        highest[stream] = max(seen.place, highest.get(stream, -1))


def different(case: Case) -> Iterator[str]:
    """P4: copies of one effect that are not byte for byte the same, and keys that changed."""
    for sent in case.effects:
        prints: dict[tuple[str, int, str], set[str]] = {}
        for seen in case.history.copies.get(sent.id, ()):
            prints.setdefault((seen.output, seen.place, seen.chain), set()).add(seen.fingerprint)
        yield from (str(sent) for found in prints.values() for _ in range(len(found) - 1))
    keys: dict[str, set[str]] = {}
    for run in case.history.runs:
        keys.setdefault(run.id, set()).add(run.key)
    yield from (f"message {name} has {len(own)} keys" for name, own in keys.items() if len(own) > 1)


def ghosts(case: Case) -> Iterator[str]:
    """P5: what nobody sent and yet is there, states without outputs, outputs a region lacks."""
    yield from case.breaks(Break.UNSEEN)
    yield from unsent(case.history)
    for sent in case.effects:
        regions = {seen.region for seen in case.history.copies.get(sent.id, ())}
        if regions:
            missing = (name for name in case.history.regions if name not in regions)
            yield from (f"{sent} missing in {name}" for name in missing)


def unsent(history: History) -> Iterator[str]:
    """Outputs, runs and states of what nobody sent."""
    for name, copies in history.copies.items():
        sent = history.by_id.get(name)
        if sent is None or not sent.is_begun:
            yield f"{copies[0]}: nobody sent it"
        elif any((one.session, one.digest) != (sent.session, sent.digest) for one in copies):
            yield f"{copies[0]}: not what was sent"
    for run in history.runs:
        if run.id not in history.by_id:
            yield f"a handler ran for message {run.id}: nobody sent it"
    for session, head in history.heads.items():
        if head.place and session not in history.sessions:
            yield f"{session} has a state: nobody sent anything there"


def unfinished(case: Case) -> Iterator[str]:
    """P6: what was left in queues, owed, claimed or parked."""
    left = case.history.left
    yield from (f"{count} in {queue}" for queue, count in left.queued.items() if count)
    for what, names in left.unfinished.items():
        yield from (f"{what}: {name}" for name in names)


def unquiet(case: Case) -> Iterator[str]:
    """P7: what happened in the stretch without faults and should not have."""
    quiet = case.history.quiet
    yield from (f"{count} {name}" for name, count in quiet.counts.items() if count)
    copies = Counter(str(seen) for seen in early(case))
    yield from (f"{name} was sent {count} times" for name, count in copies.items() if count > 1)
    runs = Counter(run.id for run in case.history.runs if run.at < quiet.until)
    yield from (f"message {name} ran {count} times" for name, count in runs.items() if count > 1)


def early(case: Case) -> Iterator[Seen]:
    """What was seen in the stretch without faults."""
    return (seen for seen in case.history.seen if seen.at < case.history.quiet.until)


def unbounded(case: Case) -> Iterator[str]:
    """P8: documents that are kept for no reason, or for longer than they need be."""
    left, sessions = case.history.left, len({sent.session for sent in case.history.sent})
    # Entries are counted below; what is owed or parked is named as unfinished.
    allowed = {"ledger": sessions, "genesis": sessions, **dict.fromkeys(UNCOUNTED)}
    for kind, count in left.kinds.items():
        most = allowed.get(kind, 0)
        if most is not None and count > most:
            yield f"{count} documents of kind {kind}, {most} at most"
    for session, count in left.old_entries.items():
        if count > OLD_ENTRIES_MAX:
            yield f"{count} old entries in {session}"


def unnamed(case: Case) -> Iterator[str]:
    """P9: poison that does not end by name in both error queues, and anything else that does."""
    history = case.history
    reports: dict[str | None, list[Report]] = {}
    for report in history.reports:
        reports.setdefault(report.of, []).append(report)
    for sent in case.poisoned:
        yield from badly_named(sent, reports.get(sent.id, []), history.regions)
        if sent.id in history.copies:
            yield f"{sent} was poisoned and has an effect"
    for name, found in reports.items():
        known = history.by_id.get(name or "")
        if known is None or not known.is_poisoned:
            yield f"{known or name or found[0].report}: {found[0].reason}"
    yield from (
        f"{count} dead letters in {queue}" for queue, count in history.left.dead.items() if count
    )


def badly_named(sent: Sent, reports: list[Report], regions: tuple[str, ...]) -> Iterator[str]:
    """What is wrong with the reports of a poisoned message."""
    found = {report.region for report in reports}
    yield from (f"{sent} is not named in {name}" for name in regions if name not in found)
    if len({report.fingerprint for report in reports}) > 1:
        yield f"{sent} has several reports"
    if any(not report.reason for report in reports):
        yield f"{sent} is named without a reason"
