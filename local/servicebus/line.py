"""The line: messages ready for delivery, the lowest sequence number first."""

from heapq import heappop, heappush


class Line:
    """Sequence numbers in order, whatever the order in which they come back; O(log n) each."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._waiting: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, sequence_number: int) -> None:
        """Place a number; one that is already waiting stays where it is."""
        if sequence_number not in self._waiting:
            self._waiting.add(sequence_number)
            heappush(self._heap, sequence_number)

    def take(self) -> int | None:
        """Remove and return the first, or None when nothing waits."""
        while self._heap:
            sequence_number = heappop(self._heap)
            if sequence_number in self._waiting:
                self._waiting.remove(sequence_number)
                return sequence_number
        return None

    def discard(self, sequence_number: int) -> None:
        """Remove a number wherever it stands."""
        # The heap entry stays until it comes up. Putting the number back before then would leave
        # two entries, which is harmless: the second finds nothing waiting.
        self._waiting.discard(sequence_number)
