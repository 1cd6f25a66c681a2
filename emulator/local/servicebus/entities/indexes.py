"""In-memory indexes of a queue: messages by number, what is ready, timers, message ids sent."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import takewhile

from local.servicebus.message import StoredMessage

STALE_MIN = 64  # below this many stale entries, removing them costs more than skipping them


class MessageIndex:
    """Stored messages by sequence number: O(1) to add at the end, find and remove."""

    def __init__(self) -> None:
        self._stored: dict[int, StoredMessage] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, stored: StoredMessage) -> None:
        sequence_number = stored.sequence_number
        self._stored[sequence_number] = stored
        if self._order and self._order[-1] > sequence_number:
            insort(self._order, sequence_number)
        else:
            self._order.append(sequence_number)

    def find(self, sequence_number: int) -> StoredMessage | None:
        return self._stored.get(sequence_number)

    def remove(self, sequence_number: int) -> None:
        del self._stored[sequence_number]
        if len(self._order) > 2 * len(self._stored) + STALE_MIN:
            self._order = [number for number in self._order if number in self._stored]

    def browse(self, first: int) -> Iterator[StoredMessage]:
        """Messages from a sequence number on, in order; the index must not change meanwhile."""
        for position in range(bisect_left(self._order, first), len(self._order)):
            stored = self._stored.get(self._order[position])
            if stored is not None:
                yield stored


class ReadyQueue:
    """Sequence numbers of active messages, the lowest first.

    Whatever the order in which they are put back; O(log n) each.
    """

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._ready: set[int] = set()

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, sequence_number: int) -> None:
        if sequence_number not in self._ready:
            self._ready.add(sequence_number)
            heappush(self._heap, sequence_number)

    def take(self) -> int | None:
        """Remove and return the lowest number, or None when there is none."""
        while self._heap:
            sequence_number = heappop(self._heap)
            if sequence_number in self._ready:
                self._ready.remove(sequence_number)
                return sequence_number
        return None

    def discard(self, sequence_number: int) -> None:
        # The heap entry stays until it comes up. Putting the number back before then leaves two
        # entries, which is harmless: `take` finds the second no longer ready.
        self._ready.discard(sequence_number)


class TimerKind(StrEnum):
    """The kind of a timer: what it does when it is due."""

    ACTIVATE = "activate"  # a scheduled message becomes active
    EXPIRE = "expire"  # a message's time to live is over
    UNLOCK = "unlock"  # a message's lock expires
    UNLOCK_SESSION = "unlock-session"  # a session's lock expires


type TimerKey = int | str  # a sequence number, or a session id


class Timers:
    """The timers of an entity: at most one time per (kind, key); setting it again moves it."""

    def __init__(self) -> None:
        self._times: dict[tuple[TimerKind, TimerKey], float] = {}
        self._heap: list[tuple[float, TimerKind, TimerKey]] = []

    def set(self, kind: TimerKind, key: TimerKey, when: float) -> None:
        """Set a timer to be due at `when`, in seconds since 1970."""
        self._times[kind, key] = when
        heappush(self._heap, (when, kind, key))

    def cancel(self, kind: TimerKind, key: TimerKey) -> None:
        self._times.pop((kind, key), None)
        # Completed messages leave their 14 days of time to live behind in the heap.
        if len(self._heap) > 2 * len(self._times) + STALE_MIN:
            self._heap = [(when, *timer) for timer, when in self._times.items()]
            heapify(self._heap)

    def take_due(self, now: float) -> Iterator[tuple[TimerKind, TimerKey]]:
        """Remove and yield what is due, earliest first; timers may be set while iterating."""
        while self._heap and self._heap[0][0] <= now:
            when, kind, key = heappop(self._heap)
            if self._times.get((kind, key)) == when:
                del self._times[kind, key]
                yield kind, key


@dataclass(frozen=True, slots=True)
class SentMessageId:
    """A message id, when it was first sent (seconds since 1970), and its sequence number."""

    message_id: str
    at: float
    sequence_number: int


class DuplicateDetection:
    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._sent: dict[str, SentMessageId] = {}  # in the order of time

    def restore(self, sent: Iterable[SentMessageId]) -> None:  # earliest first
        self._sent = {one.message_id: one for one in sent}

    def find(self, message_id: str, now: float) -> SentMessageId | None:
        """The earlier send of this id, if there was one in the window."""
        sent = self._sent.get(message_id)
        return None if sent is None or now - sent.at >= self._window_seconds else sent

    def add(self, message_id: str, sequence_number: int, now: float) -> SentMessageId:
        self._sent.pop(message_id, None)  # so that it goes to the end of the order
        sent = self._sent[message_id] = SentMessageId(message_id, now, sequence_number)
        return sent

    def remove_expired(self, now: float) -> list[str]:
        def is_expired(sent: SentMessageId) -> bool:
            return now - sent.at >= self._window_seconds

        expired = [sent.message_id for sent in takewhile(is_expired, self._sent.values())]
        for message_id in expired:
            del self._sent[message_id]
        return expired
