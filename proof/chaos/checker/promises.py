"""The nine promises, each as a check of a history that names every violation of it.

A defect is named by the promise it breaks and by no other: a lost message is not also out of
order, and an effect that took place twice has not also other bytes.

Each session is walked from its first message to its head. An effect says its place and the chain of
everything before it. So an effect that was not seen can be told from one that did not take place:
the next effect has it in its chain, or has not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from proof.chaos.checker.history import (
    EffectCopy,
    ErrorReport,
    RunHistory,
    SentMessage,
    SessionHead,
)
from proof.chaos.messages import CHAIN_START, extend_chain

# What the product keeps beyond its retention, in entries of a session.
OLD_ENTRIES_MAX = 200
UNCOUNTED = ("entry", "pending", "parked")
EXAMPLES_MAX = 5


class ChainBreak(StrEnum):
    LOST = "it has no effect"
    UNSEEN = "its state has no output"
    DISPLACED = "it does not follow what was sent before it"
    DOUBLED = "it took effect more than once"


type BrokenLink = tuple[ChainBreak, str]


@dataclass
class SessionWalk:
    """The state of a walk: the place and the chain that the next effect builds on."""

    place: int = 0
    chain: str = CHAIN_START
    unseen: list[SentMessage] = field(default_factory=list)
    repeats: dict[int, EffectCopy] = field(default_factory=dict)

    def take_effect(self, sent: SentMessage, seen: EffectCopy) -> Iterator[BrokenLink]:
        """Take the next message that was seen; and decide about those before it that were not."""
        hidden = self.after(self.unseen)
        if (seen.place, seen.chain) == next_link(hidden, sent):
            yield from ((ChainBreak.UNSEEN, str(one)) for one in self.unseen)
        elif (seen.place, seen.chain) == next_link(SessionHead(self.place, self.chain), sent):
            yield from ((ChainBreak.LOST, str(one)) for one in self.unseen if one.is_safe)
        else:
            yield ChainBreak.DISPLACED, str(sent)
        self.unseen = []

    def go_on(self, first: EffectCopy, repeats: Iterable[EffectCopy]) -> None:
        """Build on a message's effect, and on what took effect once more right after it.

        What was applied before, out of its turn, is not built on again.
        """
        self.repeats |= {seen.place: seen for seen in repeats}
        after: EffectCopy | None = first if first.place >= self.place else None
        while after is not None:
            self.place, self.chain = after.place + 1, after.chain
            after = self.repeats.get(self.place)

    def end(self, session: str, head: SessionHead | None) -> Iterator[BrokenLink]:
        here, hidden = SessionHead(self.place, self.chain), self.after(self.unseen)
        stands = head or SessionHead(0, CHAIN_START)
        if stands == here:
            yield from ((ChainBreak.LOST, str(one)) for one in self.unseen if one.is_safe)
        elif stands == hidden:
            yield from ((ChainBreak.UNSEEN, str(one)) for one in self.unseen)
        elif stands.place > hidden.place:
            yield ChainBreak.DOUBLED, f"{session}: {stands.place} applied, {hidden.place} sent"
        elif stands.place < here.place:
            yield ChainBreak.LOST, f"{session}: {stands.place} in its state, {here.place} seen"
        else:
            yield ChainBreak.DISPLACED, f"{session}: its state has another chain"

    def after(self, messages: Iterable[SentMessage]) -> SessionHead:
        head = SessionHead(self.place, self.chain)
        for sent in messages:
            head = SessionHead(head.place + 1, extend_chain(head.chain, sent.id, sent.digest))
        return head


def next_link(head: SessionHead, sent: SentMessage) -> tuple[int, str]:
    return head.place, extend_chain(head.chain, sent.id, sent.digest)


def walk_session(
    session: str,
    messages: Sequence[SentMessage],
    copies: Mapping[str, Sequence[EffectCopy]],
    head: SessionHead | None,
) -> Iterator[BrokenLink]:
    at = SessionWalk()
    for sent in messages:
        effects = {(seen.place, seen.chain): seen for seen in copies.get(sent.id, ())}
        if not effects:
            at.unseen.append(sent)
            continue
        first, *repeats = sorted(effects.values(), key=lambda seen: seen.place)
        yield from at.take_effect(sent, first)
        yield from ((ChainBreak.DOUBLED, str(sent)) for _ in repeats)
        at.go_on(first, repeats)
    yield from at.end(session, head)


@dataclass(frozen=True)
class CheckedHistory:
    history: RunHistory

    @cached_property
    def broken(self) -> tuple[BrokenLink, ...]:
        copies, heads = self.history.copies, self.history.heads
        return tuple(
            broken
            for session, messages in self.history.sessions.items()
            for broken in walk_session(session, messages, copies, heads.get(session))
        )

    def breaks(self, kind: ChainBreak) -> Iterator[str]:
        return (name for found, name in self.broken if found is kind)

    @cached_property
    def effects(self) -> tuple[SentMessage, ...]:
        return tuple(sent for own in self.history.sessions.values() for sent in own)

    @cached_property
    def poisoned(self) -> tuple[SentMessage, ...]:
        """Messages that should end as a fault, as far as they are known to be safe."""
        return tuple(one for one in self.history.sent if one.is_poisoned and one.is_safe)


def find_lost(checked: CheckedHistory) -> Iterator[str]:
    """P1: safe messages without an effect, and effects that should have reached the outside."""
    yield from checked.breaks(ChainBreak.LOST)
    ran = {run.id for run in checked.history.runs}
    for sent in checked.effects:
        if sent.calls_outside and sent.id in checked.history.copies and sent.id not in ran:
            yield f"{sent}: its handler never ran"


def find_repeated(checked: CheckedHistory) -> Iterator[str]:
    """P2: messages with more than one effect, and those whose effects have several ids."""
    yield from checked.breaks(ChainBreak.DOUBLED)
    for sent in checked.effects:
        outputs = {seen.output for seen in checked.history.copies.get(sent.id, ())}
        if len(outputs) > 1:
            yield f"{sent}: {len(outputs)} outputs"


def find_out_of_order(checked: CheckedHistory) -> Iterator[str]:
    """P3: effects that do not follow what was sent before them, or came out before their turn."""
    yield from checked.breaks(ChainBreak.DISPLACED)
    highest: dict[tuple[str, str], int] = {}
    known: set[tuple[str, str]] = set()
    for seen in checked.history.seen:
        stream, copy = (seen.region, seen.session), (seen.region, seen.id)
        if copy in known:
            continue
        known.add(copy)
        # What a queue refused comes after later outputs; its receivers know that by its number.
        if seen.place < highest.get(stream, -1) and seen.region not in checked.history.refusing:
            yield f"{seen} came out late"
        highest[stream] = max(seen.place, highest.get(stream, -1))


def find_different(checked: CheckedHistory) -> Iterator[str]:
    """P4: copies of one effect that are not byte for byte the same, and keys that changed."""
    for sent in checked.effects:
        prints: dict[tuple[str, int, str], set[str]] = {}
        for seen in checked.history.copies.get(sent.id, ()):
            prints.setdefault((seen.output, seen.place, seen.chain), set()).add(seen.fingerprint)
        yield from (str(sent) for found in prints.values() for _ in range(len(found) - 1))
    keys: dict[str, set[str]] = {}
    for run in checked.history.runs:
        keys.setdefault(run.id, set()).add(run.key)
    yield from (f"message {name} has {len(own)} keys" for name, own in keys.items() if len(own) > 1)


def find_ghosts(checked: CheckedHistory) -> Iterator[str]:
    """P5: what nobody sent and yet is there, states without outputs, outputs a region lacks."""
    yield from checked.breaks(ChainBreak.UNSEEN)
    yield from find_unsent(checked.history)
    for sent in checked.effects:
        regions = {seen.region for seen in checked.history.copies.get(sent.id, ())}
        if regions:
            missing = (name for name in checked.history.regions if name not in regions)
            yield from (f"{sent} missing in {name}" for name in missing)


def find_unsent(history: RunHistory) -> Iterator[str]:
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


def find_unfinished(checked: CheckedHistory) -> Iterator[str]:
    """P6: what was left in queues, to be delivered, claimed or parked."""
    left = checked.history.left
    yield from (f"{count} in {queue}" for queue, count in left.queued.items() if count)
    for what, names in left.unfinished.items():
        yield from (f"{what}: {name}" for name in names)


def find_disturbed(checked: CheckedHistory) -> Iterator[str]:
    """P7: what happened in the stretch without faults and should not have."""
    baseline = checked.history.baseline
    yield from (f"{count} {name}" for name, count in baseline.counts.items() if count)
    copies = Counter(str(seen) for seen in baseline_copies(checked))
    yield from (f"{name} was sent {count} times" for name, count in copies.items() if count > 1)
    runs = Counter(run.id for run in checked.history.runs if run.at < baseline.until)
    yield from (f"message {name} ran {count} times" for name, count in runs.items() if count > 1)


def baseline_copies(checked: CheckedHistory) -> Iterator[EffectCopy]:
    return (seen for seen in checked.history.seen if seen.at < checked.history.baseline.until)


def find_unbounded(checked: CheckedHistory) -> Iterator[str]:
    """P8: documents that are kept for no reason, or for longer than they need be."""
    left, sessions = checked.history.left, len({sent.session for sent in checked.history.sent})
    # Entries are counted below; what is pending or parked is named as unfinished. A session where
    # messages were parked keeps the end of its flag for a while.
    kinds = ("ledger", "genesis", "waiting")
    allowed = {**dict.fromkeys(kinds, sessions), "regions": 1, **dict.fromkeys(UNCOUNTED)}
    for kind, count in left.kinds.items():
        most = allowed.get(kind, 0)
        if most is not None and count > most:
            yield f"{count} documents of kind {kind}, {most} at most"
    for session, count in left.old_entries.items():
        if count > OLD_ENTRIES_MAX:
            yield f"{count} old entries in {session}"


def find_unnamed(checked: CheckedHistory) -> Iterator[str]:
    """P9: poison that does not end by name in both error queues, and anything else that does."""
    history = checked.history
    reports: dict[str | None, list[ErrorReport]] = {}
    for report in history.reports:
        reports.setdefault(report.of, []).append(report)
    for sent in checked.poisoned:
        yield from find_badly_named(sent, reports.get(sent.id, []), history.regions)
        if sent.id in history.copies:
            yield f"{sent} was poisoned and has an effect"
    for name, found in reports.items():
        known = history.by_id.get(name or "")
        if known is None or not known.is_poisoned:
            yield f"{known or name or found[0].report}: {found[0].reason}"
    yield from (
        f"{count} dead letters in {queue}" for queue, count in history.left.dead.items() if count
    )


def find_badly_named(
    sent: SentMessage, reports: list[ErrorReport], regions: tuple[str, ...]
) -> Iterator[str]:
    found = {report.region for report in reports}
    yield from (f"{sent} is not named in {name}" for name in regions if name not in found)
    if len({report.fingerprint for report in reports}) > 1:
        yield f"{sent} has several reports"
    if any(not report.reason for report in reports):
        yield f"{sent} is named without a reason"


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise, how its violations are found, and what is checked for it."""

    name: str
    summary: str
    of: str
    find: Callable[[CheckedHistory], Iterator[str]]


@dataclass(frozen=True, slots=True)
class PromiseResult:
    """The result for a promise: `violations` of `checked` things, and a few of them by name."""

    promise: Promise
    checked: int
    violations: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        promise, examples = self.promise, "".join(f"; {example}" for example in self.examples)
        checked = f"{promise.name} {promise.summary}: checked {self.checked} {promise.of}"
        return f"{checked}, violations {self.violations}{examples}"


PROMISES = (
    Promise("P1", "no loss", "safe messages", find_lost),
    Promise("P2", "once", "messages with effects", find_repeated),
    Promise("P3", "order", "effects in order", find_out_of_order),
    Promise("P4", "same bytes", "copies of outputs", find_different),
    Promise("P5", "no ghosts", "outputs and states", find_ghosts),
    Promise("P6", "liveness", "queues and lists", find_unfinished),
    Promise("P7", "undisturbed without faults", "early copies and runs", find_disturbed),
    Promise("P8", "bounded", "documents", find_unbounded),
    Promise("P9", "named ends", "poisoned messages", find_unnamed),
)


def count_checked(checked: CheckedHistory) -> dict[str, int]:
    """Count the things that are checked for each promise, so that a check of nothing shows."""
    history, left = checked.history, checked.history.left
    return {
        "P1": sum(sent.is_safe for sent in checked.effects),
        "P2": sum(sent.id in history.copies for sent in checked.effects),
        "P3": len({(seen.region, seen.output) for seen in history.seen}),
        "P4": len(history.seen) + len(history.runs),
        "P5": len(history.copies) + len(history.heads),
        "P6": len(left.queued) + len(left.unfinished),
        "P7": len([*baseline_copies(checked)]) + len(history.baseline.counts),
        "P8": sum(left.kinds.values()),
        "P9": len(checked.poisoned),
    }


def check_history(history: RunHistory) -> tuple[PromiseResult, ...]:
    checked = CheckedHistory(history)
    counts = count_checked(checked)
    results = []
    for promise in PROMISES:
        names = list(promise.find(checked))
        examples = tuple(dict.fromkeys(names))[:EXAMPLES_MAX]
        results.append(PromiseResult(promise, counts[promise.name], len(names), examples))
    return tuple(results)
