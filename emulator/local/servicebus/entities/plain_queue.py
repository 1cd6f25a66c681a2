"""A queue without sessions: one ready queue, a lock per message."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.config import QueueConfig
from local.servicebus.entities.indexes import ReadyQueue, TimerKind
from local.servicebus.entities.queue import Queue, QueueOptions
from local.servicebus.message import BrokeredMessage, DeliveryLock, StoredMessage


class QueueConsumer(Protocol):
    def deliver_one(self, now: float) -> bool:
        """Deliver one message; returns whether there is credit for more."""
        ...


class PlainQueue(Queue[QueueConsumer]):
    """Messages are delivered in order to whoever asks; a lock belongs to a message, not to a link.

    So closing a link gives nothing back: what it had locked comes back when the locks expire.
    """

    lock_lost = ErrorCondition.MESSAGE_LOCK_LOST

    def __init__(self, config: QueueConfig, options: QueueOptions) -> None:
        super().__init__(config, options)
        self._ready = ReadyQueue()

    def dispatch_ready(self, now: float) -> None:
        while self._waiting and len(self._ready) > 0:  # one message each, round robin
            consumer = next(iter(self._waiting))
            del self._waiting[consumer]
            if consumer.deliver_one(now):
                self.wait(consumer)

    def check(self, message: BrokeredMessage) -> None:
        """Accept any message; a session id is carried and means nothing."""

    def make_ready(self, stored: StoredMessage) -> None:
        self._ready.put(stored.sequence_number)

    def make_unready(self, stored: StoredMessage) -> None:
        self._ready.discard(stored.sequence_number)

    def expire_lock_of(self, stored: StoredMessage, now: float) -> None:
        self.count_expired_lock()
        self.give_back(stored, now, failed=True)

    def receive(self, now: float) -> StoredMessage | None:
        """Lock the first ready message, or return None."""
        sequence_number = self._ready.take()
        stored = None if sequence_number is None else self.index.find(sequence_number)
        return None if stored is None else self._lock_for_delivery(stored, now)

    def receive_deferred(self, sequence_numbers: Sequence[int], now: float) -> list[StoredMessage]:
        """Lock deferred messages; all or none."""
        return [self._lock_for_delivery(m, now) for m in self.find_deferred(sequence_numbers)]

    def renew(self, tokens: Sequence[UUID], now: float) -> list[float]:
        """Renew locks, all or none; returns until when each now holds."""
        locked = [stored for token in tokens if (stored := self._locked.get(token)) is not None]
        if len(locked) < len(tokens):
            raise AmqpError(self.lock_lost, "The lock is lost and cannot be renewed")
        until = now + self.config.lock_seconds
        for token, stored in zip(tokens, locked, strict=True):
            stored.lock = DeliveryLock(token, until)
            self.timers.set(TimerKind.UNLOCK, stored.sequence_number, until)
        return [until] * len(tokens)

    def _lock_for_delivery(self, stored: StoredMessage, now: float) -> StoredMessage:
        until = now + self.config.lock_seconds
        self.timers.set(TimerKind.UNLOCK, stored.sequence_number, until)
        return self.lock(stored, until)
