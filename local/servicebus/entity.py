"""An entity: a queue or topic, and the links that wait for something from it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from local.servicebus.gate import Gate, Wire
from local.servicebus.inbox import Inbox
from local.servicebus.plain_queue import PlainQueue
from local.servicebus.queue import Queue
from local.servicebus.session_queue import SessionQueue
from local.servicebus.topic import Subscription, Topic


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


class Role(Enum):
    """What an entity is to those who would send to it."""

    QUEUE = "a queue"
    TOPIC = "a topic"
    SUBSCRIPTION = "a subscription"
    DEAD_LETTER_QUEUE = "a dead-letter queue"


class Entity(ABC):
    """What every entity has in common."""

    def __init__(self, store: Inbox, gate: Gate, role: Role) -> None:
        self.name = store.name
        self.store = store
        self.role = role
        self._gate = gate

    @property
    def takes_messages(self) -> bool:
        """Whether clients may send here; to all others only the service itself does."""
        return self.role in (Role.QUEUE, Role.TOPIC)

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

    @abstractmethod
    def serve(self, now: float) -> None:
        """Give what is ready to those who wait."""

    @abstractmethod
    def forget_waiting(self) -> None:
        """Every link is gone."""


class QueueEntity(Entity):
    """What plain and session entities have in common."""

    def __init__(
        self, queue: Queue, gate: Gate, role: Role, dead_letters: "PlainEntity | None"
    ) -> None:
        super().__init__(queue, gate, role)
        self.store: Queue = queue
        self.dead_letters = dead_letters
        self.subscription: Subscription | None = None  # what fills it, if it is one's queue
        self._counted_expirations = 0

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


class TopicEntity(Entity):
    """A topic; nobody waits at it, but at its subscriptions."""

    def __init__(self, topic: Topic, gate: Gate, subscriptions: Sequence[QueueEntity]) -> None:
        super().__init__(topic, gate, Role.TOPIC)
        self.subscriptions = subscriptions

    def serve(self, now: float) -> None:
        """What has come may have made somebody's wait end."""
        for subscription in self.subscriptions:
            subscription.serve(now)

    def forget_waiting(self) -> None:
        """Its subscriptions are entities of their own."""


class PlainEntity(QueueEntity):
    """A plain queue; consumers take turns."""

    def __init__(
        self,
        queue: PlainQueue,
        gate: Gate,
        role: Role,
        dead_letters: "PlainEntity | None" = None,
    ) -> None:
        super().__init__(queue, gate, role, dead_letters)
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


class SessionEntity(QueueEntity):
    """A session queue; acceptors are served in the order in which they came."""

    def __init__(
        self, queue: SessionQueue, gate: Gate, role: Role, dead_letters: PlainEntity | None
    ) -> None:
        super().__init__(queue, gate, role, dead_letters)
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
