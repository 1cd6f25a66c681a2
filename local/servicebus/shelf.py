"""The shelf: every message of a queue or session, browsable by sequence number."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from local.servicebus.message import StoredMessage

STALE_MIN = 64  # below this many leftovers, tidying costs more than skipping them


class Shelf:
    """Stored messages by sequence number: O(1) to add at the end, find and remove."""

    def __init__(self) -> None:
        self._stored: dict[int, StoredMessage] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, stored: StoredMessage) -> None:
        """Place a message; a number is never placed twice."""
        sequence_number = stored.sequence_number
        self._stored[sequence_number] = stored
        if self._order and self._order[-1] > sequence_number:
            insort(self._order, sequence_number)
        else:
            self._order.append(sequence_number)

    def find(self, sequence_number: int) -> StoredMessage | None:
        """The message with this number, or None."""
        return self._stored.get(sequence_number)

    def remove(self, sequence_number: int) -> None:
        """Take a message off the shelf."""
        del self._stored[sequence_number]
        if len(self._order) > 2 * len(self._stored) + STALE_MIN:
            self._order = [number for number in self._order if number in self._stored]

    def browse(self, first: int) -> Iterator[StoredMessage]:
        """Messages from a sequence number on, in order; the shelf must not change meanwhile."""
        for index in range(bisect_left(self._order, first), len(self._order)):
            stored = self._stored.get(self._order[index])
            if stored is not None:
                yield stored
