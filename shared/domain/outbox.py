"""The outbox: messages that wait to be delivered to regions, and which regions still miss them.

An entry's outbox holds its handler's outputs; a producer's holds the copies that a region could not
take. Both are worked off alike: the same messages, in the same order, until every region has them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shared.domain.message import Message


@dataclass(frozen=True, slots=True)
class DestinationBatch:
    """Messages for one queue or topic, in the order of sending."""

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


@dataclass(frozen=True, slots=True)
class Outbox:
    """Messages, and the regions that do not have them yet: none once all are delivered.

    `location` says where the messages are when the outbox does not hold them itself. `refused`
    names the messages that no queue takes, by id, with the reason.
    """

    batches: tuple[DestinationBatch, ...]
    regions: tuple[str, ...]
    location: OutputLocation | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.regions and self.is_empty:
            raise ValueError("an outbox without messages is pending nowhere")

    @property
    def is_empty(self) -> bool:
        """Whether there never was anything to send."""
        return not self.batches and self.location is None

    @property
    def messages(self) -> tuple[Message, ...]:
        """Every message the outbox itself holds, in the order of sending."""
        return tuple(message for batch in self.batches for message in batch.messages)

    def without(self, regions: Iterable[str]) -> "Outbox":
        """The same outbox after these regions took every message."""
        done = frozenset(regions)
        return replace(self, regions=tuple(r for r in self.regions if r not in done))

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
