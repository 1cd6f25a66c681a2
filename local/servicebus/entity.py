"""An entity: a queue, and the links that wait for something from it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from local.servicebus.gate import Gate, Wire
from local.servicebus.plain_queue import PlainQueue
from local.servicebus.queue import Queue
from local.servicebus.session_queue import SessionQueue


class Consumer(Protocol):
    """A link with credit on a plain queue."""

    def deliver_one(self, now: float) -> bool:
        """Deliver one message; returns whether there is credit for more."""
        ...


class Acceptor(Protocol):
    """A link that waits for any session."""

    def accept_next(self, now: float) -> None:
        """Take the session that is ready."""
        ...


class SessionConsumer(Protocol):
    """A link that holds a session."""

    @property
    def wire(self) -> Wire:
        """The connection it is part of."""
        ...

    def deliver(self) -> None:
        """Deliver what the session has and credit allows."""
        ...

    def evicted(self) -> None:
        """The lock has run out: close."""
        ...


class Entity(ABC):
    """What plain and session entities have in common."""

    def __init__(self, queue: Queue, gate: Gate, dead_letters: "PlainEntity | None") -> None:
        self.name = queue.config.name
        self.dead_letters = dead_letters
        self.store = queue
        self._gate = gate
        self._counted_expirations = 0

    @property
    def takes_no_messages(self) -> bool:
        """Whether only the service itself puts messages here: a dead-letter queue."""
        return self.dead_letters is None

    def act[Result](self, now: float, operation: Callable[[], Result]) -> Result:
        """Apply an operation at a time, then serve those who wait for its effect."""
        self.store.advance(now)
        try:
            return operation()
        finally:
            self.serve(now)

    def advance(self, now: float) -> None:
        """Let time pass."""
        self.store.advance(now)
        self.serve(now)

    def serve(self, now: float) -> None:
        """Give what is ready to those who wait."""
        expired = self.store.expired_locks - self._counted_expirations
        if expired:
            self._counted_expirations += expired
            self._gate.count("expire-lock", count=expired)
        self.serve_waiting(now)
        if self.dead_letters is not None:
            self.dead_letters.serve(now)

    @abstractmethod
    def serve_waiting(self, now: float) -> None:
        """Give what is ready to this entity's own links."""

    @abstractmethod
    def forget_waiting(self) -> None:
        """Every link is gone."""


class PlainEntity(Entity):
    """A plain queue; consumers take turns."""

    def __init__(
        self, queue: PlainQueue, gate: Gate, dead_letters: "PlainEntity | None" = None
    ) -> None:
        super().__init__(queue, gate, dead_letters)
        self.queue = queue
        self._waiting: dict[Consumer, None] = {}

    def wait(self, consumer: Consumer) -> None:
        """Serve this consumer when there is something."""
        self._waiting.setdefault(consumer)

    def stop_waiting(self, consumer: Consumer) -> None:
        """Do not serve this consumer any more."""
        self._waiting.pop(consumer, None)

    def serve_waiting(self, now: float) -> None:
        """One message each, round and round."""
        while self._waiting and self.queue.has_ready:
            consumer = next(iter(self._waiting))
            del self._waiting[consumer]
            if consumer.deliver_one(now):
                self._waiting[consumer] = None

    def forget_waiting(self) -> None:
        """Every link is gone."""
        self._waiting.clear()


class SessionEntity(Entity):
    """A session queue; acceptors are served in the order in which they came."""

    def __init__(
        self, queue: SessionQueue, gate: Gate, dead_letters: PlainEntity | None = None
    ) -> None:
        super().__init__(queue, gate, dead_letters)
        self.queue = queue
        self._holders: dict[object, SessionConsumer] = {}
        self._waiting: dict[Acceptor, None] = {}

    def wait(self, acceptor: Acceptor) -> None:
        """Give this acceptor a session when there is one."""
        self._waiting.setdefault(acceptor)

    def stop_waiting(self, acceptor: Acceptor) -> None:
        """Do not serve this acceptor any more."""
        self._waiting.pop(acceptor, None)

    def hold(self, consumer: SessionConsumer) -> None:
        """This consumer holds a session from now on."""
        self._holders[consumer] = consumer

    def let_go(self, consumer: SessionConsumer) -> None:
        """This consumer holds no session any more."""
        self._holders.pop(consumer, None)

    def serve_waiting(self, now: float) -> None:
        """Tell those who lost their lock, give out sessions, deliver."""
        for holder in self.queue.take_evicted():
            if holder in self._holders:
                self._holders.pop(holder).evicted()
        while self._waiting and self.queue.has_ready:
            acceptor = next(iter(self._waiting))
            del self._waiting[acceptor]
            acceptor.accept_next(now)
        for session_id in self.queue.take_stirred():
            consumer = self._holders.get(self.queue.holder_of(session_id))
            if consumer is not None:
                consumer.deliver()

    def holder_on(self, wire: Wire, session_id: str) -> SessionConsumer | None:
        """Who holds the session over this connection, or None."""
        consumer = self._holders.get(self.queue.holder_of(session_id))
        return consumer if consumer is not None and consumer.wire is wire else None

    def forget_waiting(self) -> None:
        """Every link is gone; what they held stays locked until the locks run out."""
        self._waiting.clear()
        self._holders.clear()
