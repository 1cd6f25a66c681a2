"""A namespace as the platform has it: sessions with locks, redelivery, and all its tricks.

Locks are kept by the broker's clock. Within a session messages come in order, unless the weather
reorders them; what is not settled while the lock holds comes again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.domain.errors import InvalidMessage
from shared.domain.message import Message
from simulation.faults import Weather
from simulation.virtual_time import Bell

LOCK_SECONDS = 10.0
# What its queues take; a message over it is refused for good.
BODY_BYTES_MAX = 1_500


@dataclass(eq=False, slots=True)
class Queued:
    """A message in a queue."""

    message: Message
    visible_at: float
    deliveries: int = 0


@dataclass(eq=False, slots=True)
class SessionLock:
    """Who may take a session's messages, and until when."""

    session: str
    until: float


@dataclass
class Namespace:
    """One region's queues. In `down` nobody reaches it. `accepted` is all it ever took."""

    region: str
    weather: Weather
    down: tuple[float, float] | None = None
    queues: dict[str, list[Queued]] = field(default_factory=lambda: defaultdict(list))
    accepted: dict[str, list[Queued]] = field(default_factory=lambda: defaultdict(list))
    locks: dict[tuple[str, str], SessionLock] = field(default_factory=dict)
    redeliveries: int = 0

    def __post_init__(self) -> None:
        self.bell = Bell(self.down)

    def is_down(self, now: float) -> bool:
        """Whether nobody reaches the namespace."""
        return self.bell.is_down(now)

    def accept(self, queue: str, messages: Sequence[Message], visible_at: float) -> None:
        """Take messages in up to the first that is too large; the platform may take one twice."""
        weather = self.weather
        where = f"{self.region} {queue}"
        for message in messages:
            if len(message.body) > BODY_BYTES_MAX:
                raise InvalidMessage(f"a message is too large for {queue!r}")
            self.put(queue, Queued(message, visible_at))
            if weather.strikes(weather.climate.duplicates, "duplicate", where, visible_at):
                self.put(queue, Queued(message, visible_at))

    def put(self, queue: str, queued: Queued) -> None:
        """Keep a message, and wake whoever listens when it is visible."""
        self.queues[queue].append(queued)
        self.accepted[queue].append(queued)
        self.bell.ring_at(queued.visible_at)

    async def next_session(self, queue: str) -> SessionLock:
        """Wait for a session that has something visible and nobody holds, and lock it."""
        loop = asyncio.get_running_loop()
        while (lock := self.lock_session(queue, loop.time())) is None:
            await self.bell.heard()
        return lock

    def lock_session(self, queue: str, now: float) -> SessionLock | None:
        """Lock a session, if there is one to take."""
        if self.is_down(now):
            self.bell.ring_at(now)
            return None
        ready = dict.fromkeys(q.message.session for q in self.queues[queue] if q.visible_at <= now)
        free = [s for s in ready if (queue, s) not in self.locks or not self.is_held(queue, s, now)]
        if not free:
            return None
        lock = SessionLock(self.weather.chance.pick(free), now + LOCK_SECONDS)
        self.locks[queue, lock.session] = lock
        self.bell.ring_at(lock.until)
        return lock

    def is_held(self, queue: str, session: str, now: float) -> bool:
        """Whether somebody's lock still holds; if so, whoever listens hears of its end."""
        until = self.locks[queue, session].until
        if now < until:
            self.bell.ring_at(until)
        return now < until

    def holds(self, queue: str, lock: SessionLock, now: float) -> bool:
        """Whether the lock is still the holder's, and the namespace is there."""
        known = self.locks.get((queue, lock.session))
        return known is lock and now < lock.until and not self.is_down(now)

    def deliver(self, queue: str, lock: SessionLock, now: float, most: int) -> list[Queued]:
        """The session's next messages, if the lock holds."""
        if not self.holds(queue, lock, now):
            return []
        session = lock.session
        ready = [
            q for q in self.queues[queue] if q.message.session == session and q.visible_at <= now
        ]
        weather = self.weather
        if len(ready) > 1 and weather.strikes(
            weather.climate.reorders, "reorder", f"{self.region} {session}", now
        ):
            ready.insert(0, ready.pop(1))
        taken = ready[:most]
        for queued in taken:
            queued.deliveries += 1
            self.redeliveries += queued.deliveries > 1
        return taken

    def complete(self, queue: str, lock: SessionLock, queued: Queued, now: float) -> bool:
        """Settle, while the lock holds; the settlement may get lost."""
        weather = self.weather
        if not self.holds(queue, lock, now) or weather.strikes(
            weather.climate.lost_settlements, "lost settlement", f"{self.region} {queue}", now
        ):
            return False
        if queued in self.queues[queue]:
            self.queues[queue].remove(queued)
        return True

    def release(self, queue: str, lock: SessionLock) -> None:
        """Give the session back."""
        if self.locks.get((queue, lock.session)) is lock:
            del self.locks[queue, lock.session]
            self.bell.ring()

    def renew(self, queue: str, lock: SessionLock, now: float) -> None:
        """Keep the session, unless it is lost."""
        if self.holds(queue, lock, now):
            lock.until = now + LOCK_SECONDS
