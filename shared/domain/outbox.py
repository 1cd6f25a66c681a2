"""The outbox: messages somebody owes to one or more regions, and what is left of that debt.

An entry owes its handler's outputs; a producer owes the copy that a dark region could not take.
Both are the same debt: the same messages, in the same order, until every region has them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from shared.domain.message import Message


@dataclass(frozen=True, slots=True)
class Outbox:
    """Messages for one queue, and the regions that do not have them yet."""

    queue: str
    messages: tuple[Message, ...]
    regions: tuple[str, ...]

    @property
    def owing(self) -> bool:
        """Whether any region still waits for the messages."""
        return bool(self.messages) and bool(self.regions)

    def delivered(self, regions: Iterable[str]) -> "Outbox":
        """The same outbox after these regions took every message."""
        done = frozenset(regions)
        return replace(self, regions=tuple(r for r in self.regions if r not in done))

    def only(self, regions: Iterable[str]) -> "Outbox":
        """The part of the debt that these regions are owed."""
        wanted = frozenset(regions)
        return replace(self, regions=tuple(r for r in self.regions if r in wanted))


NOTHING_OWED = Outbox(queue="", messages=(), regions=())


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
    number = owing.outbox.messages[0].number
    if owing.of_entry or number is None:
        return (owing.document_id, "", 0)
    return ("owed", number.group, number.sequence)
