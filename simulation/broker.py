"""A namespace as the platform has it: sessions with locks, redelivery, and all its tricks.

Locks are kept by the broker's clock. Within a session messages come in order, unless the weather
reorders them; what is not settled while the lock holds comes again.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.domain.message import Message
from simulation.weather import Weather

LOCK_SECONDS = 30.0


@dataclass
class Queued:
    """A message in a queue."""

    message: Message
    visible_at: float
    deliveries: int = 0


@dataclass
class SessionLock:
    """Who may take a session's messages, and until when."""

    session: str
    until: float

    def holds(self, now: float) -> bool:
        """Whether the lock is still the holder's."""
        return now < self.until


@dataclass
class Namespace:
    """One region's queues. `downs` are the times in which nobody reaches it."""

    region: str
    weather: Weather
    queues: dict[str, list[Queued]] = field(default_factory=lambda: defaultdict(list))
    locks: dict[str, SessionLock] = field(default_factory=dict)
    downs: list[tuple[float, float]] = field(default_factory=list)
    redeliveries: int = 0

    def is_down(self, now: float) -> bool:
        """Whether nobody reaches the namespace."""
        return any(begin <= now < end for begin, end in self.downs)

    def accept(self, queue: str, messages: Sequence[Message], visible_at: float) -> None:
        """Take messages in; the platform may take one in twice."""
        for message in messages:
            self.queues[queue].append(Queued(message, visible_at))
            climate = self.weather.climate
            if self.weather.strikes(climate.duplicates, "duplicate", visible_at):
                self.queues[queue].append(Queued(message, visible_at))

    def next_session(self, queue: str, now: float) -> SessionLock | None:
        """Lock a session that has something visible and nobody holds."""
        if self.is_down(now):
            return None
        ready = sorted({q.message.session for q in self.queues[queue] if q.visible_at <= now})
        free = [s for s in ready if s not in self.locks or not self.locks[s].holds(now)]
        if not free:
            return None
        lock = SessionLock(self.weather.chance.pick(free), now + LOCK_SECONDS)
        self.locks[lock.session] = lock
        return lock

    def deliver(self, queue: str, lock: SessionLock, now: float) -> Queued | None:
        """The session's next message, if the lock holds and there is one."""
        if not lock.holds(now) or self.locks.get(lock.session) is not lock or self.is_down(now):
            return None
        waiting = [
            q
            for q in self.queues[queue]
            if q.message.session == lock.session and q.visible_at <= now
        ]
        if not waiting:
            return None
        first = waiting[0]
        if len(waiting) > 1 and self.weather.strikes(self.weather.climate.reorders, "reorder", now):
            first = waiting[1]
        first.deliveries += 1
        self.redeliveries += first.deliveries > 1
        return first

    def complete(self, queue: str, lock: SessionLock, queued: Queued, now: float) -> bool:
        """Settle, while the lock holds; the settlement may get lost."""
        if not lock.holds(now) or self.locks.get(lock.session) is not lock or self.is_down(now):
            return False
        if self.weather.strikes(self.weather.climate.lost_settlements, "lost settlement", now):
            return False
        if queued in self.queues[queue]:
            self.queues[queue].remove(queued)
        return True

    def release(self, lock: SessionLock) -> None:
        """Give the session back."""
        if self.locks.get(lock.session) is lock:
            del self.locks[lock.session]

    def renew(self, lock: SessionLock, now: float) -> None:
        """Keep the session, unless it is lost."""
        if lock.holds(now) and self.locks.get(lock.session) is lock:
            lock.until = now + LOCK_SECONDS
