"""A queue without sessions: one ready queue, a lock per message."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.amqp.message_format import note_first_number, read_message
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

    def run_timers(self, now: float) -> bool:
        """See MessagingEntity; what was there before the queue forwards is due at once."""
        had_due = super().run_timers(now)
        return had_due or (self.config.forward_to is not None and len(self._ready) > 0)

    def dispatch_ready(self, now: float) -> None:
        if self.config.forward_to is not None:
            self._forward_ready(self.config.forward_to, now)
            return
        while self._waiting and len(self._ready) > 0:  # one message each, round robin
            consumer = next(iter(self._waiting))
            del self._waiting[consumer]
            if consumer.deliver_one(now):
                self.wait(consumer)

    def _forward_ready(self, target: str, now: float) -> None:
        """Give another entity what is ready, in order; what it cannot have is a dead letter."""
        while (number := self._ready.take()) is not None:
            stored = self.index.find(number)
            if stored is None or self._forward is None:
                continue
            sent, encoded = stored.message, stored.message.encoded
            if sent.hops == 0 and self.rules is None:  # what is in a subscription, its topic noted
                encoded = note_first_number(encoded, number)
            message = replace(
                read_message(encoded),
                time_to_live_seconds=self.time_to_live(sent),
                hops=sent.hops + 1,
            )
            refusal = self._forward(target, message, now)
            if refusal is None:
                self.remove(stored)
            else:
                self._move_to_dead_letters(stored, refusal, now)

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
