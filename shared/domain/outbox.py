"""The outbox: messages somebody owes to one or more regions, and what is left of that debt.

An entry owes its handler's outputs; a producer owes the copy that a dark region could not take.
Both are the same debt: the same messages, in the same order, until every region has them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from shared.domain.message import Message


@dataclass(frozen=True, slots=True)
class Parcel:
    """Messages for one queue or topic, in the order of sending."""

    queue: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Staged:
    """The messages lie in documents of their own, written by an attempt before it committed."""

    attempt: str
    documents: int


@dataclass(frozen=True, slots=True)
class Rerun:
    """The messages are made again by running the handler on the state before its entry.

    `digest` is that of the messages it gave first: others are never sent in their place.
    """

    digest: str


type Elsewhere = Staged | Rerun


@dataclass(frozen=True, slots=True)
class Outbox:
    """Messages, and the regions that do not have them yet.

    `elsewhere` says where the messages are when the outbox does not hold them itself. `refused`
    names the messages that no queue takes, by id, with the reason.
    """

    parcels: tuple[Parcel, ...]
    regions: tuple[str, ...]
    elsewhere: Elsewhere | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def owing(self) -> bool:
        """Whether any region still waits for the messages."""
        return not self.is_empty and bool(self.regions)

    @property
    def is_empty(self) -> bool:
        """Whether there never was anything to send."""
        return not self.parcels and self.elsewhere is None

    @property
    def messages(self) -> tuple[Message, ...]:
        """Every message the outbox itself holds, in the order of sending."""
        return tuple(message for parcel in self.parcels for message in parcel.messages)

    def delivered(self, regions: Iterable[str]) -> "Outbox":
        """The same outbox after these regions took every message."""
        done = frozenset(regions)
        return replace(self, regions=tuple(r for r in self.regions if r not in done))

    def only(self, regions: Iterable[str]) -> "Outbox":
        """The part of the debt that these regions are owed."""
        wanted = frozenset(regions)
        return replace(self, regions=tuple(r for r in self.regions if r in wanted))

    def at(self, elsewhere: Elsewhere) -> "Outbox":
        """The same debt with its messages kept elsewhere."""
        return replace(self, parcels=(), elsewhere=elsewhere)


NOTHING_OWED = Outbox(parcels=(), regions=())


def owed(queue: str, messages: Iterable[Message], regions: Iterable[str]) -> Outbox:
    """The outbox that owes these messages of one queue to these regions."""
    kept = tuple(messages)
    return Outbox((Parcel(queue, kept),) if kept else (), tuple(regions))


@dataclass(frozen=True, slots=True)
class Owing:
    """A stored outbox and where it is stored."""

    session: str
    document_id: str
    outbox: Outbox

    @property
    def of_entry(self) -> bool:
        """Whether an entry owes it; otherwise a producer does."""
        return self.document_id.isdigit()


def in_order(owings: Iterable[Owing]) -> list[Owing]:
    """A session's debts in the order in which they must be paid: positions, then numbers."""
    return sorted(owings, key=payment_order)


def payment_order(owing: Owing) -> tuple[str, str, int]:
    """Entries by position; a producer's copies by its own numbers."""
    messages = owing.outbox.messages
    number = messages[0].number if messages else None
    if owing.of_entry or number is None:
        return (owing.document_id, "", 0)
    return ("owed", number.group, number.sequence)
