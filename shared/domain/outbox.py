"""The outbox: messages that wait to be delivered to regions, and which regions still miss them.

An entry's outbox holds its handler's outputs; a producer's holds the copies that a region could not
take. Both are worked off alike: the same messages, in the same order, until every region has them.
What a queue does not take before a person changes something is blocked, and nothing waits for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shared.domain.errors import InvalidMessage
from shared.domain.message import Message
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
    """The names of the app's own queues, as its settings have them now."""

    here: str
    outputs: str
    errors: str

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
class Delivered:
    """The result of one delivery of an outbox.

    `regions` have everything but what their blocked queues do not take. `taken` names, by region,
    the queues that took theirs, and `blocked` those that need a person first, with the reason.
    `refused` are messages that no queue takes, by id, with the reason.
    """

    regions: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    taken: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    blocked: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

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
    a part, the queues that took theirs. `decided` is what a person decided, by queue.
    """

    batches: tuple[DestinationBatch, ...]
    regions: tuple[str, ...]
    location: OutputLocation | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    delivered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    blocked: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    decided: Mapping[str, OutputDecision] = field(default_factory=dict)

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

    def missing_in(self, region: str) -> dict[str, list[Message]]:
        """Return what the region still misses, by queue in order; nothing for blocked queues."""
        done = {*self.delivered.get(region, ()), *self.blocked.get(region, ())}
        missing: dict[str, list[Message]] = {}
        for batch in self.batches:
            if batch.queue not in done:
                messages: Iterable[Message] = batch.messages
                if self.is_dropped(batch.queue):
                    messages = (make_tombstone(m) for m in messages if m.number is not None)
                missing.setdefault(batch.queue, []).extend(messages)
        return missing

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
        refused = {**self.refused, **done.refused}
        return replace(self, regions=regions, delivered=taken, blocked=blocked, refused=refused)

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


def address(queue: str, messages: Iterable[Message], regions: Iterable[str]) -> Outbox:
    """The outbox that has these messages of one queue pending for these regions."""
    kept = tuple(messages)
    return Outbox((DestinationBatch(queue, kept),), tuple(regions)) if kept else NO_OUTBOX


@dataclass(frozen=True, slots=True)
class PendingOutbox:
    """An outbox that some region waits for, and where it is stored.

    An entry's outbox is found by the `position` of its entry. A producer's has none: it is found by
    the store's own `key` for it, which is empty where the outbox was stored a moment ago.
    """

    session: str
    outbox: Outbox
    position: int | None = None
    key: str = ""


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
