"""The outbox: messages that wait to be delivered to regions, and which regions still miss them.

An entry's outbox holds its handler's outputs; a producer's holds the copies that a region could not
take. Both are worked off alike: the same messages, in the same order, until every region has them.
What a queue does not take before a person changes something is blocked, and nothing waits for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

from shared.domain.errors import InvalidMessage
from shared.domain.message import BODY_BYTES_MAX, Message
from shared.domain.reports import make_tombstone

# What a batch holds in place of the names of the app's own queues, which settings may change: where
# its outputs go, where its faults go, and the queue that it reads itself.
OUTPUTS = ""
ERRORS = "$errors"
HERE = "$here"
# In place of a blocked queue: the outputs of the whole outbox cannot be had at all.
EVERY_QUEUE = "*"


@dataclass(frozen=True, slots=True)
class AppQueues:
    """The names of the app's own queues, as its settings have them now, and what a queue takes."""

    here: str
    outputs: str
    errors: str
    body_bytes_max: int = BODY_BYTES_MAX

    def resolve(self, queue: str) -> str:
        """The real name of a batch's queue; any other queue is stored by its real name."""
        return {OUTPUTS: self.outputs, ERRORS: self.errors, HERE: self.here}.get(queue, queue)


@dataclass(frozen=True, slots=True)
class DestinationBatch:
    """Messages for one queue or topic, in the order of sending.

    The app's own queues are named by OUTPUTS, ERRORS and HERE, all others by their real names.
    """

    queue: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Staged:
    """The messages are in documents of their own, written by an attempt before it committed."""

    attempt: str
    documents: int


@dataclass(frozen=True, slots=True)
class Rerun:
    """The messages are made again by running the handler on the state before its entry.

    `digest` is that of the messages it produced first: others are never sent in their place.
    """

    digest: str


type OutputLocation = Staged | Rerun


class OutputAction(StrEnum):
    """A decision that a person can make about the outputs for a blocked queue."""

    RETRY = "retry"  # try the queue again at once
    REDIRECT = "redirect"  # send them to another queue
    DROP = "drop"  # send tombstones in their places, and nothing for those without numbers


@dataclass(frozen=True, slots=True)
class OutputDecision:
    """The decision of a person on the outputs for one queue; `to` is the other queue."""

    action: OutputAction
    who: str
    why: str
    to: str | None = None

    def __post_init__(self) -> None:
        if not self.who or not self.why:
            raise InvalidMessage("a decision about outputs needs who decided and why")
        if (self.action is OutputAction.REDIRECT) != (self.to is not None):
            raise InvalidMessage("a redirection needs another queue, and nothing else may name one")


@dataclass(frozen=True, slots=True)
class OutputsLeft:
    """The regions that do not have everything after a decision about outputs.

    Those in `blocked` need a person again. For those in `recorded` a sweep does what was decided as
    soon as it is possible.
    """

    blocked: tuple[str, ...]
    recorded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """The first `count` of the `total` messages for one queue, which it surely took."""

    count: int
    total: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of one delivery of an outbox, or how far it is while it `goes_on`.

    `regions` have everything but what their blocked queues do not take. `taken` names, by region,
    the queues that took theirs, and `blocked` those that need a person first, with the reason.
    `refused` are messages that no queue takes, by id, with the reason. `sent` is the part that
    other queues took, by region and queue. `tried` are the regions that the delivery is for.
    """

    regions: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    taken: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    blocked: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sent: Mapping[str, Mapping[str, Part]] = field(default_factory=dict)
    tried: tuple[str, ...] = ()
    goes_on: bool = False

    @property
    def whole(self) -> tuple[str, ...]:
        """The regions that surely have everything."""
        return tuple(region for region in self.regions if not self.blocked.get(region))


@dataclass(frozen=True, slots=True)
class Outbox:
    """Messages, and the regions that do not have them yet: none once all are delivered.

    `location` says where the messages are when the outbox does not hold them itself. `refused`
    names the messages that no queue takes, by id, with the reason. `blocked` names, by region, the
    queues that take nothing before a person changes something, with the reason: a region that
    misses only their messages is waited for no longer. `delivered` names, by region that has only
    a part, the queues that took theirs, and `sent` the part that other queues took. `sending` are
    the regions that a worker was sending to when it wrote this. `decided` is what a person decided,
    by queue.
    """

    batches: tuple[DestinationBatch, ...]
    regions: tuple[str, ...]
    location: OutputLocation | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    delivered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    blocked: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    decided: Mapping[str, OutputDecision] = field(default_factory=dict)
    sent: Mapping[str, Mapping[str, Part]] = field(default_factory=dict)
    sending: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.regions and self.is_empty:
            raise ValueError("an outbox without messages is pending nowhere")

    @property
    def is_empty(self) -> bool:
        """Return whether there never was anything to send."""
        return not self.batches and self.location is None

    @property
    def messages(self) -> tuple[Message, ...]:
        """Every message the outbox itself holds, in the order of sending."""
        return tuple(message for batch in self.batches for message in batch.messages)

    def is_dropped(self, queue: str) -> bool:
        """Return whether a person decided that only tombstones are sent to the queue."""
        return queue in self.decided and self.decided[queue].action is OutputAction.DROP

    def missing_in(self, region: str) -> dict[str, list[tuple[int, Message]]]:
        """Return what the region still misses, by queue in order; nothing for blocked queues.

        With each message comes its place among all that the outbox has for the queue, from 0 on.
        """
        done = {*self.delivered.get(region, ()), *self.blocked.get(region, ())}
        sent, missing = self.sent.get(region, {}), dict[str, list[tuple[int, Message]]]()
        for batch in self.batches:
            if batch.queue not in done and batch.queue not in missing:
                first = sent[batch.queue].count if batch.queue in sent else 0
                left = [*enumerate(self.messages_for(batch.queue))][first:]
                if self.is_dropped(batch.queue):
                    left = [(n, make_tombstone(m)) for n, m in left if m.number is not None]
                missing[batch.queue] = left
        return missing

    def messages_for(self, queue: str) -> list[Message]:
        """Return every message that the outbox itself holds for a queue, in order."""
        return [one for batch in self.batches if batch.queue == queue for one in batch.messages]

    def part_in(self, region: str) -> Part | None:
        """Return how much of the outbox a region has, as far as it says; None where it does not.

        Where the messages are kept elsewhere, that is of the queues that were begun.
        """
        parts = [*self.sent.get(region, {}).values()]
        for queue in self.delivered.get(region, ()):
            count = len(self.messages_for(queue))
            parts.append(Part(count, count))
        count, total = sum(part.count for part in parts), sum(part.total for part in parts)
        if self.location is None:
            total = len(self.messages)
        return Part(count, total) if total else None

    def destination_of(self, queue: str) -> str:
        """Return the queue that gets the messages for a queue: itself, or another by decision."""
        decision = self.decided.get(queue)
        return queue if decision is None or decision.to is None else decision.to

    def after(self, done: Delivered) -> "Outbox":
        """The same outbox after a delivery, which others may have overtaken.

        What a queue refused blocks nothing in a region that has everything by now.
        """
        regions = tuple(region for region in self.regions if region not in done.regions)
        heard_of = {*done.regions, *done.taken, *done.blocked}
        taken: dict[str, tuple[str, ...]] = {}
        blocked: dict[str, Mapping[str, str]] = {}
        sent: dict[str, Mapping[str, Part]] = {}
        for region in dict.fromkeys((*self.regions, *self.blocked)):
            has = dict.fromkeys((*self.delivered.get(region, ()), *done.taken.get(region, ())))
            reasons = dict(self.blocked.get(region, {}))
            if region in heard_of:
                # Its outputs could be had this time, or it is blocked for that reason again.
                reasons.pop(EVERY_QUEUE, None)
            reasons |= done.blocked.get(region, {})
            left = {queue: reason for queue, reason in reasons.items() if queue not in has}
            if left:
                blocked[region] = left
            if has and (left or region in regions):
                taken[region] = tuple(has)
            known, new = self.sent.get(region, {}), done.sent.get(region, {})
            parts = {
                queue: max((known.get(queue, NOTHING), new.get(queue, NOTHING)), key=count_of)
                for queue in (*known, *new)
                if queue not in has
            }
            if parts and (left or region in regions):
                sent[region] = parts
        busy = dict.fromkeys(r for r in self.sending if done.goes_on or r not in done.tried)
        busy |= dict.fromkeys(done.tried if done.goes_on else ())
        return replace(
            self,
            regions=regions,
            delivered=taken,
            blocked=blocked,
            refused={**self.refused, **done.refused},
            sent=sent,
            sending=tuple(region for region in busy if region in regions),
        )

    def retrying(self, region: str, queue: str) -> "Outbox":
        """The same outbox, pending for what one blocked queue of a region misses."""
        others = {q: why for q, why in self.blocked.get(region, {}).items() if q != queue}
        return replace(self, regions=(region,), blocked={region: others})

    def only(self, regions: Iterable[str]) -> "Outbox":
        """The same outbox, pending for these of its regions only."""
        wanted = frozenset(regions)
        return replace(self, regions=tuple(r for r in self.regions if r in wanted))

    def kept_at(self, location: OutputLocation) -> "Outbox":
        """The same outbox with its messages kept elsewhere."""
        return replace(self, batches=(), location=location)


NO_OUTBOX = Outbox(batches=(), regions=())
NOTHING = Part(0, 0)


def count_of(part: Part) -> int:
    return part.count


def address(queue: str, messages: Iterable[Message], regions: Iterable[str]) -> Outbox:
    """The outbox that has these messages of one queue pending for these regions."""
    kept = tuple(messages)
    return Outbox((DestinationBatch(queue, kept),), tuple(regions)) if kept else NO_OUTBOX


@dataclass(frozen=True, slots=True)
class PendingOutbox:
    """An outbox that some region waits for, and where it is stored.

    An entry's outbox is found by the `position` of its entry. A producer's has none: it is found by
    the store's own `key` for it, which is empty where the outbox was stored a moment ago. The age
    is that of the last change, by the store's clock. What was read has the `version` that it was
    read in, and the `regions` that it waited for then, also where `outbox` is for some of them.
    `types` are those of an entry's messages.
    """

    session: str
    outbox: Outbox
    position: int | None = None
    key: str = ""
    age_seconds: float = inf
    version: str = ""
    regions: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    def is_sent_elsewhere(self, region: str, lag_seconds: float) -> bool:
        """Say whether a worker was sending it to a region when it wrote it, less than a lag ago."""
        return region in self.outbox.sending and self.age_seconds < lag_seconds


def sort_for_delivery(pending: Iterable[PendingOutbox]) -> Sequence[PendingOutbox]:
    """A session's outboxes in the order of sending: entries by position, then producers' copies."""
    return sorted(pending, key=delivery_order)


def delivery_order(pending: PendingOutbox) -> tuple[bool, int, str, int]:
    """Entries by position; then a producer's copies by its numbers, and those without last."""
    if pending.position is not None:
        return (False, pending.position, "", 0)
    messages = pending.outbox.messages
    number = messages[0].number if messages else None
    if number is None:
        return (True, 1, pending.key, 0)
    return (True, 0, number.group, number.sequence)
