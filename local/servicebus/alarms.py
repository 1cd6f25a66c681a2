"""Alarms: what must happen to a queue by itself, and when."""

from collections.abc import Iterator
from enum import StrEnum
from heapq import heapify, heappop, heappush

STALE_MIN = 64  # below this many leftovers, tidying costs more than skipping them


class Alarm(StrEnum):
    """What a time brings."""

    ACTIVATE = "activate"  # a scheduled message enters the line
    EXPIRE = "expire"  # a message's time to live is over
    UNLOCK = "unlock"  # a message's lock runs out
    UNLOCK_SESSION = "unlock-session"  # a session's lock runs out


type Key = int | str


class Alarms:
    """At most one time per (alarm, key); setting it again moves it."""

    def __init__(self) -> None:
        self._times: dict[tuple[Alarm, Key], float] = {}
        self._heap: list[tuple[float, Alarm, Key]] = []

    def set(self, alarm: Alarm, key: Key, when: float) -> None:
        """Ring at `when`, in seconds since 1970."""
        self._times[alarm, key] = when
        heappush(self._heap, (when, alarm, key))

    def cancel(self, alarm: Alarm, key: Key) -> None:
        """Do not ring; nothing happens if it was not set."""
        self._times.pop((alarm, key), None)
        # Completed messages leave their 14 days of time to live behind in the heap.
        if len(self._heap) > 2 * len(self._times) + STALE_MIN:
            self._heap = [(when, *alarm_key) for alarm_key, when in self._times.items()]
            heapify(self._heap)

    def due(self, now: float) -> Iterator[tuple[Alarm, Key]]:
        """Remove and yield what has come, earliest first; alarms may be set while iterating."""
        while self._heap and self._heap[0][0] <= now:
            when, alarm, key = heappop(self._heap)
            if self._times.get((alarm, key)) == when:
                del self._times[alarm, key]
                yield alarm, key
