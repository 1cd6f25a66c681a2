"""The nine promises, each as a check of a history that names every violation of it.

A defect is named by the promise it breaks and by no other: a lost message is not also out of
order, and an effect that took place twice has not also other bytes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from chaos.checker.history import EffectCopy, ErrorReport, RunHistory, SentMessage
from chaos.checker.walk import BrokenLink, ChainBreak, walk_session

# What the product keeps beyond its retention, in entries of a session.
OLD_ENTRIES_MAX = 200
UNCOUNTED = ("entry", "owed", "parked")
EXAMPLES_MAX = 5


@dataclass(frozen=True)
class CheckedHistory:
    history: RunHistory

    @cached_property
    def broken(self) -> tuple[BrokenLink, ...]:
        history = self.history
        return tuple(
            broken
            for session, messages in history.sessions.items()
            for broken in walk_session(
                session, messages, history.copies, history.heads.get(session)
            )
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
        if seen.place < highest.get(stream, -1):
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
    # Entries are counted below; what is pending or parked is named as unfinished.
    allowed = {"ledger": sessions, "genesis": sessions, **dict.fromkeys(UNCOUNTED)}
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
    name: str
    summary: str
    find: Callable[[CheckedHistory], Iterator[str]]
    of: str
    count: Callable[[CheckedHistory], int]


@dataclass(frozen=True, slots=True)
class PromiseResult:
    """How a promise was kept: `violations` of `checked` things, and a few of them by name."""

    promise: Promise
    checked: int
    violations: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        text = (
            f"{self.promise.name} {self.promise.summary}: checked {self.checked} {self.promise.of}"
        )
        examples = "".join(f"; {example}" for example in self.examples)
        return f"{text}, violations {self.violations}{examples}"


# Of each promise how many things are checked for it, so that a check of nothing shows.
PROMISES = (
    Promise(
        "P1", "no loss", find_lost, "safe messages", lambda c: sum(s.is_safe for s in c.effects)
    ),
    Promise(
        "P2",
        "once",
        find_repeated,
        "messages with effects",
        lambda c: sum(sent.id in c.history.copies for sent in c.effects),
    ),
    Promise(
        "P3",
        "order",
        find_out_of_order,
        "effects in order",
        lambda c: len({(one.region, one.output) for one in c.history.seen}),
    ),
    Promise(
        "P4",
        "same bytes",
        find_different,
        "copies of outputs",
        lambda c: len(c.history.seen) + len(c.history.runs),
    ),
    Promise(
        "P5",
        "no ghosts",
        find_ghosts,
        "outputs and states",
        lambda c: len(c.history.copies) + len(c.history.heads),
    ),
    Promise(
        "P6",
        "liveness",
        find_unfinished,
        "queues and lists",
        lambda c: len(c.history.left.queued) + len(c.history.left.unfinished),
    ),
    Promise(
        "P7",
        "undisturbed without faults",
        find_disturbed,
        "early copies and runs",
        lambda c: len([*baseline_copies(c)]) + len(c.history.baseline.counts),
    ),
    Promise(
        "P8", "bounded", find_unbounded, "documents", lambda c: sum(c.history.left.kinds.values())
    ),
    Promise("P9", "named ends", find_unnamed, "poisoned messages", lambda c: len(c.poisoned)),
)


def check_history(history: RunHistory) -> tuple[PromiseResult, ...]:
    checked = CheckedHistory(history)
    results = []
    for promise in PROMISES:
        names = list(promise.find(checked))
        examples = tuple(dict.fromkeys(names))[:EXAMPLES_MAX]
        results.append(PromiseResult(promise, promise.count(checked), len(names), examples))
    return tuple(results)
