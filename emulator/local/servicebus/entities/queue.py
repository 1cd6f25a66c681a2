"""The common part of plain and session queues: locks, settlement, time to live and dead letters."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.amqp.message_format import modify_properties
from local.servicebus.config import QueueConfig, TopicConfig
from local.servicebus.entities.entity import EntityKind, MessagingEntity
from local.servicebus.entities.indexes import TimerKey, TimerKind
from local.servicebus.entities.store import MessageStore
from local.servicebus.message import (
    DEAD_LETTERED,
    BrokeredMessage,
    DeadLetterReason,
    DeliveryLock,
    Disposition,
    MessageState,
    Settlement,
    StoredMessage,
)
from local.servicebus.rules import RuleSet

# Service Bus's own words for a dead letter.
EXPIRED = DeadLetterReason("TTLExpiredException", "The message expired and was dead lettered.")
NO_SESSION = "Session ID is null"


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The parts that a queue needs beside its declaration."""

    store: MessageStore
    kind: EntityKind = EntityKind.QUEUE
    dead_letters: "Queue | None" = None  # where its dead letters go; without, there are none
    rules: RuleSet | None = None  # of the subscription whose messages it holds
    count_expired_lock: Callable[[], None] = lambda: None
    # Gives another entity a message, or returns why it cannot have it: for a queue that forwards.
    forward: Callable[[str, BrokeredMessage, float], DeadLetterReason | None] | None = None
    new_lock_token: Callable[[], UUID] = uuid4


class Queue[Consumer = Any](MessagingEntity):
    """The common part of plain and session queues: locks, settlement, time to live, dead-lettering.

    A message that comes back (abandoned, released, lock lost) is delivered before all later ones.
    """

    lock_lost: ErrorCondition

    def __init__(self, config: QueueConfig, options: QueueOptions) -> None:
        super().__init__(config, options.kind, options.store)
        self.config = config
        self.dead_letters = options.dead_letters
        self.rules = options.rules
        self.count_expired_lock = options.count_expired_lock
        self._forward = options.forward
        self._new_lock_token = options.new_lock_token
        self._locked: dict[UUID, StoredMessage] = {}
        self._waiting: dict[Consumer, None] = {}  # links, in the order in which they are served
        self.has_new_dead_letters = False  # taken over since the last dispatch

    @abstractmethod
    def expire_lock_of(self, stored: StoredMessage, now: float) -> None:
        """End the delivery of a locked message as failed: its lock has expired."""

    @abstractmethod
    def dispatch_ready(self, now: float) -> None:
        """Give what is ready to this queue's own links."""

    def configure(self, config: QueueConfig | TopicConfig) -> None:
        super().configure(config)
        if isinstance(config, QueueConfig):
            self.config = config

    def wait(self, consumer: Consumer) -> None:
        self._waiting.setdefault(consumer)

    def stop_waiting(self, consumer: Consumer) -> None:
        self._waiting.pop(consumer, None)

    def remove_waiting_links(self) -> None:
        self._waiting.clear()

    def dispatch(self, now: float) -> None:
        self.dispatch_ready(now)
        if self.dead_letters is not None and self.dead_letters.has_new_dead_letters:
            self.dead_letters.has_new_dead_letters = False
            self.dead_letters.dispatch(now)

    def leads_to(self) -> list[str]:
        return [] if self.config.forward_to is None else [self.config.forward_to]

    def enqueue(self, message: BrokeredMessage, now: float) -> int:
        seconds = self.time_to_live(message)
        expires_at = None if seconds is None else now + seconds
        stored = StoredMessage(self.next_sequence_number(), message, now, expires_at=expires_at)
        self.place(stored)
        self._store.save_message(self.name, stored)
        return stored.sequence_number

    # Locks

    def lock(self, stored: StoredMessage, until: float) -> StoredMessage:
        token = self._new_lock_token()
        stored.lock = DeliveryLock(token, until)
        self._locked[token] = stored
        self._change_state(stored, MessageState.LOCKED)
        return stored

    def unlock(self, stored: StoredMessage) -> None:
        if stored.lock is not None:
            del self._locked[stored.lock.token]
            self.timers.cancel(TimerKind.UNLOCK, stored.sequence_number)
            stored.lock = None

    def expire_lock(self, token: UUID, now: float) -> None:
        """Expire a lock as if its time were over now; nothing happens if it already is over."""
        stored = self._locked.get(token)
        if stored is not None:
            self.expire_lock_of(stored, now)

    def settle(self, token: UUID, disposition: Disposition, now: float) -> None:
        """Apply a receiver's disposition; refused when its lock is lost."""
        stored = self._locked.get(token)
        if stored is None:
            description = "The lock is lost; the message may be with somebody else"
            raise AmqpError(self.lock_lost, description)
        if disposition.settlement is Settlement.DEAD_LETTER and self.dead_letters is None:
            description = "A dead-lettered message cannot be so again"
            raise AmqpError(ErrorCondition.NOT_ALLOWED, description)
        if disposition.properties:
            encoded = modify_properties(stored.message.encoded, disposition.properties)
            stored.message = replace(stored.message, encoded=encoded)
        match disposition.settlement:
            case Settlement.COMPLETE if stored.redeliver_once:
                stored.redeliver_once = False
                self.give_back(stored, now, failed=False)
            case Settlement.COMPLETE:
                self.unlock(stored)
                self.remove(stored)
            case Settlement.ABANDON:
                self.give_back(stored, now, failed=True)
            case Settlement.RELEASE:
                self.give_back(stored, now, failed=False)
            case Settlement.DEFER:
                self.unlock(stored)
                stored.was_deferred = True
                self._change_state(stored, MessageState.DEFERRED)
                self._store.save_message(self.name, stored)
            case Settlement.DEAD_LETTER:
                self._move_to_dead_letters(stored, disposition.reason or DeadLetterReason(), now)

    def give_back(self, stored: StoredMessage, now: float, *, failed: bool) -> None:
        """End a delivery without success; a failed one counts against the message."""
        self.unlock(stored)
        stored.delivery_count += failed
        limit = self.config.max_delivery_count
        if stored.expires_at is not None and stored.expires_at <= now:
            self._expire(stored, now)
            return
        if stored.delivery_count >= limit and self.dead_letters is not None:
            description = f"Message could not be consumed after {limit} delivery attempts."
            reason = DeadLetterReason("MaxDeliveryCountExceeded", description)
            self._move_to_dead_letters(stored, reason, now)
            return
        unlocked = MessageState.DEFERRED if stored.was_deferred else MessageState.ACTIVE
        self._change_state(stored, unlocked)
        if unlocked is MessageState.ACTIVE:
            self.make_ready(stored)
        if failed:
            self._store.save_message(self.name, stored)

    def find_deferred(self, sequence_numbers: Sequence[int]) -> list[StoredMessage]:
        """The deferred messages with these numbers; refused if one of them is not there."""
        return [self.find(number, MessageState.DEFERRED) for number in sequence_numbers]

    def run_timer(self, kind: TimerKind, key: TimerKey, now: float) -> None:
        stored = self.index.find(key) if isinstance(key, int) else None
        if stored is None:
            return
        match kind:
            case TimerKind.ACTIVATE:
                self.activate(stored, now)
            case TimerKind.EXPIRE if stored.state is not MessageState.LOCKED:
                # A locked message may still be settled; give_back looks at its age again.
                self._expire(stored, now)
            case TimerKind.UNLOCK:
                self.expire_lock_of(stored, now)

    def _expire(self, stored: StoredMessage, now: float) -> None:
        if self.config.dead_letter_expired and self.dead_letters is not None:
            self._move_to_dead_letters(stored, EXPIRED, now)
        else:
            self.remove(stored)

    # Dead letters

    def dead_letter_on_arrival(
        self, message: BrokeredMessage, reason: DeadLetterReason, now: float
    ) -> None:
        if self.dead_letters is not None:
            arrived = StoredMessage(self.next_sequence_number(), message, now)
            self.dead_letters.take_dead_letter(arrived, reason, now)

    def take_dead_letter(self, stored: StoredMessage, reason: DeadLetterReason, now: float) -> None:
        """Take over another queue's message; it keeps its number and delivery count."""
        taken = StoredMessage(
            stored.sequence_number,
            stored.message,
            enqueued_at=now,
            delivery_count=stored.delivery_count,
            dead_letter=reason,
        )
        self.has_new_dead_letters = True
        self.place(taken)
        self._store.save_message(self.name, taken)

    def _move_to_dead_letters(
        self, stored: StoredMessage, reason: DeadLetterReason, now: float
    ) -> None:
        self.unlock(stored)
        self.remove(stored)
        if self.dead_letters is not None:
            self.dead_letters.take_dead_letter(stored, reason, now)

    def depth(self) -> dict[str, int]:
        dead_letters = 0 if self.dead_letters is None else len(self.dead_letters.index)
        return {**super().depth(), DEAD_LETTERED: dead_letters}

    def size(self) -> int:
        return super().size() + (0 if self.dead_letters is None else self.dead_letters.size())

    def _change_state(self, stored: StoredMessage, state: MessageState) -> None:
        self._counts[stored.state] -= 1
        stored.state = state
        self._counts[state] += 1
