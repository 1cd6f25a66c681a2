"""A Service Bus namespace: sessions with locks, redelivery, duplicates and reordering.

Locks are kept by the broker's clock. Within a session messages come in order, unless a fault that
is injected reorders them. What is not settled while the lock holds is delivered again.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from proof.simulation.world.faults import FaultInjector
from proof.simulation.world.virtual_time import Signal
from shared.domain.errors import InvalidMessage
from shared.domain.message import Message

LOCK_SECONDS = 10.0
# What its queues take; a larger message is refused for good.
BODY_BYTES_MAX = 1_500


@dataclass(eq=False, slots=True)
class QueuedMessage:
    message: Message
    visible_at: float
    sequence: int
    deliveries: int = 0


@dataclass(eq=False, slots=True)
class SessionLock:
    session: str
    until: float


@dataclass
class Namespace:
    """One region's queues, unavailable during `down`. `accepted` is all it ever took in.

    One that `is_silent` still takes connections then, and never answers. A queue in `refusing` is
    missing for a time, or the right to send to it is.
    """

    region: str
    injector: FaultInjector
    down: tuple[float, float] | None = None
    is_silent: bool = False
    refusing: dict[str, tuple[float, float]] = field(default_factory=dict)
    queues: dict[str, list[QueuedMessage]] = field(default_factory=lambda: defaultdict(list))
    accepted: dict[str, list[QueuedMessage]] = field(default_factory=lambda: defaultdict(list))
    locks: dict[tuple[str, str], SessionLock] = field(default_factory=dict)
    redeliveries: int = 0

    def __post_init__(self) -> None:
        self.signal = Signal(self.down)

    def accept(self, queue: str, messages: Sequence[Message], visible_at: float) -> None:
        """Take messages in, or none where one is too large; the platform may take one twice."""
        injector = self.injector
        where = f"{self.region} {queue}"
        if any(len(message.body) > BODY_BYTES_MAX for message in messages):
            raise InvalidMessage(f"a message is too large for {queue!r}")
        for message in messages:
            self.put(queue, message, visible_at)
            if injector.inject(injector.profile.duplicates, "duplicate", where, visible_at):
                self.put(queue, message, visible_at)

    def put(self, queue: str, message: Message, visible_at: float) -> None:
        queued = QueuedMessage(message, visible_at, len(self.accepted[queue]))
        self.queues[queue].append(queued)
        self.accepted[queue].append(queued)
        self.signal.notify_at(queued.visible_at)

    def lock_session(self, queue: str, now: float) -> SessionLock | None:
        ready = dict.fromkeys(q.message.session for q in self.queues[queue] if q.visible_at <= now)
        free = []
        for session in ready:
            held = self.locks.get((queue, session))
            if held is not None and now < held.until:
                self.signal.notify_at(held.until)
            else:
                free.append(session)
        if not free:
            return None
        lock = SessionLock(self.injector.rng.pick(free), now + LOCK_SECONDS)
        self.locks[queue, lock.session] = lock
        self.signal.notify_at(lock.until)
        return lock

    def holds(self, queue: str, lock: SessionLock, now: float) -> bool:
        known = self.locks.get((queue, lock.session))
        return known is lock and now < lock.until and not self.signal.is_down(now)

    def deliver(
        self, queue: str, lock: SessionLock, now: float, in_hand: Collection[QueuedMessage]
    ) -> QueuedMessage | None:
        """Return the session's next message that the lock's holder does not have in hand."""
        if not self.holds(queue, lock, now):
            return None
        session = lock.session
        ready = [
            q
            for q in self.queues[queue]
            if q.message.session == session and q.visible_at <= now and q not in in_hand
        ]
        injector = self.injector
        if len(ready) > 1 and injector.inject(
            injector.profile.reorders, "reorder", f"{self.region} {session}", now
        ):
            ready.insert(0, ready.pop(1))
        for queued in ready[:1]:
            queued.deliveries += 1
            self.redeliveries += queued.deliveries > 1
            return queued
        return None

    def complete(self, queue: str, lock: SessionLock, queued: QueuedMessage, now: float) -> bool:
        """Settle, while the lock holds; the settlement may get lost."""
        injector = self.injector
        if not self.holds(queue, lock, now) or injector.inject(
            injector.profile.lost_settlements, "lost settlement", f"{self.region} {queue}", now
        ):
            return False
        if queued in self.queues[queue]:
            self.queues[queue].remove(queued)
        return True

    def release(self, queue: str, lock: SessionLock) -> None:
        if self.locks.get((queue, lock.session)) is lock:
            del self.locks[queue, lock.session]
            self.signal.notify()

    def renew(self, queue: str, lock: SessionLock, now: float) -> None:
        if self.holds(queue, lock, now):
            lock.until = now + LOCK_SECONDS
