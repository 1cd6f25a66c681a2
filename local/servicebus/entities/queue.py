"""What queues and topics share, and what plain and session queues share.

State machines: no clock, no threads, no network; every call is given the time, in seconds since
1970. A call either does all it was asked or raises AmqpError and changes nothing.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

from local.servicebus.config import QueueConfig, TopicConfig
from local.servicebus.entities.indexes import (
    DuplicateDetection,
    MessageIndex,
    TimerKey,
    TimerKind,
    Timers,
)
from local.servicebus.entities.message import (
    BrokeredMessage,
    DeadLetterReason,
    DeliveryLock,
    MessageState,
    Settlement,
    StoredMessage,
)
from local.servicebus.entities.store import MessageStore, StoredQueue
from local.servicebus.protocol.errors import AmqpError, ErrorCondition
from local.servicebus.rules import RuleSet

# Service Bus's own words for a dead letter.
EXPIRED = DeadLetterReason("TTLExpiredException", "The message expired and was dead lettered.")


class EntityKind(Enum):
    """What an entity is to those who would send to it."""

    QUEUE = "a queue"
    TOPIC = "a topic"
    SUBSCRIPTION = "a subscription"
    DEAD_LETTER_QUEUE = "a dead-letter queue"


class MessagingEntity(ABC):
    """A queue or topic: sequence numbers, scheduled messages, duplicate detection, browsing.

    Messages are in the order of their sequence numbers, given out as they arrive.
    """

    def __init__(
        self, config: QueueConfig | TopicConfig, kind: EntityKind, store: MessageStore
    ) -> None:
        self.name = config.name
        self.kind = kind
        self.index = MessageIndex()
        self.timers = Timers()
        self._counts: Counter[MessageState] = Counter()
        self._store = store
        self._time_to_live_seconds = config.time_to_live_seconds
        self._duplicates: DuplicateDetection | None = None
        if config.duplicate_window_seconds is not None:
            self._duplicates = DuplicateDetection(config.duplicate_window_seconds)
        self._last_sequence_number = 0

    @property
    def takes_messages(self) -> bool:
        """Whether clients may send here; to all others only the broker itself does."""
        return self.kind in (EntityKind.QUEUE, EntityKind.TOPIC)

    # What the kinds of entity do differently

    @abstractmethod
    def check(self, message: BrokeredMessage) -> None:
        """Raise AmqpError if the message cannot be taken."""

    @abstractmethod
    def enqueue(self, message: BrokeredMessage, now: float) -> int:
        """Take a message that is due, sent now or scheduled before; returns its number."""

    @abstractmethod
    def run_timer(self, kind: TimerKind, key: TimerKey, now: float) -> None: ...

    @abstractmethod
    def make_ready(self, stored: StoredMessage) -> None:
        """Put an active message into its ready queue."""

    @abstractmethod
    def make_unready(self, stored: StoredMessage) -> None:
        """Take an active message out of its ready queue."""

    @abstractmethod
    def dispatch(self, now: float) -> None:
        """Give what is ready to the links that wait for it."""

    @abstractmethod
    def remove_waiting_links(self) -> None:
        """No link waits any more; session locks that links held stay until they expire."""

    def advance(self, now: float) -> None:
        self.run_timers(now)
        self.dispatch(now)

    def run_timers(self, now: float) -> bool:
        """Do what has come due; returns whether anything had."""
        had_due = False
        for kind, key in self.timers.take_due(now):
            had_due = True
            self.run_timer(kind, key, now)
        if self._duplicates is not None:
            for message_id in self._duplicates.remove_expired(now):
                self._store.delete_sent_id(self.name, message_id)
        return had_due

    @contextmanager
    def dispatching(self, now: float) -> Iterator[None]:
        """Around every call on behalf of a client: due timers run before it, delivery after it."""
        self.run_timers(now)
        try:
            yield
        finally:
            self.dispatch(now)

    # Sending

    def send(self, messages: Sequence[BrokeredMessage], now: float) -> list[int]:
        """Take all messages or none; returns their sequence numbers.

        A message whose id was sent before in the window is dropped; its number is that of the
        first, and the sender is not told (as in Service Bus, a duplicate is accepted silently).
        """
        for message in messages:
            self.check(message)
        numbers: list[int] = []
        for message in messages:
            if self._duplicates is not None and message.message_id is not None:
                earlier = self._duplicates.find(message.message_id, now)
                if earlier is not None:
                    numbers.append(earlier.sequence_number)
                    continue
            if message.scheduled_for is None or message.scheduled_for <= now:
                number = self.enqueue(message, now)
            else:
                number = self.next_sequence_number()
                scheduled = StoredMessage(number, message, now, state=MessageState.SCHEDULED)
                self.place(scheduled)
                self._store.save_message(self.name, scheduled)
            if self._duplicates is not None and message.message_id is not None:
                sent = self._duplicates.add(message.message_id, number, now)
                self._store.save_sent_id(self.name, sent)
            numbers.append(number)
        return numbers

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> None:
        for stored in [self.find(one, MessageState.SCHEDULED) for one in sequence_numbers]:
            self.remove(stored)

    def activate(self, scheduled: StoredMessage, now: float) -> None:
        # Service Bus gives it a new number, as if it had just been sent; so the order of numbers
        # stays the order of delivery.
        self.remove(scheduled)
        self.enqueue(scheduled.message, now)

    def next_sequence_number(self) -> int:
        self._last_sequence_number += 1
        self._store.save_last_sequence_number(self.name, self._last_sequence_number)
        return self._last_sequence_number

    def time_to_live(self, message: BrokeredMessage) -> float | None:
        """The shorter of the message's own and the entity's; None is for ever."""
        limits = (message.time_to_live_seconds, self._time_to_live_seconds)
        return min((limit for limit in limits if limit is not None), default=None)

    def peek(
        self, first: int, count: int, session_id: str | None = None
    ) -> tuple[StoredMessage, ...]:
        """Up to `count` messages from a sequence number on, in any state, locking none."""
        return tuple(islice(self.index_of(session_id).browse(first), max(count, 0)))

    def index_of(self, session_id: str | None) -> MessageIndex:
        """The messages of a session, or all of them for None."""
        if session_id is not None:
            raise AmqpError(ErrorCondition.NOT_ALLOWED, f"{self.name} has no sessions")
        return self.index

    def depth(self) -> dict[str, int]:
        return {state.value: self._counts[state] for state in MessageState} | {"dead_lettered": 0}

    def find(self, sequence_number: int, state: MessageState) -> StoredMessage:
        """The message with this number; refused unless it is there, and in this state."""
        stored = self.index.find(sequence_number)
        if stored is None or stored.state is not state:
            description = f"No {state.value} message {sequence_number}"
            raise AmqpError(ErrorCondition.MESSAGE_NOT_FOUND, description)
        return stored

    def restore(self, content: StoredQueue) -> None:
        self._last_sequence_number = content.last_sequence_number
        if self._duplicates is not None:
            self._duplicates.restore(content.sent_ids)
        else:  # detection was switched off since
            for sent in content.sent_ids:
                self._store.delete_sent_id(self.name, sent.message_id)
        for stored in content.messages:
            self.place(stored)

    def place(self, stored: StoredMessage) -> None:
        self.index.add(stored)
        self._counts[stored.state] += 1
        if stored.expires_at is not None:
            self.timers.set(TimerKind.EXPIRE, stored.sequence_number, stored.expires_at)
        if stored.state is MessageState.SCHEDULED:
            due = stored.message.scheduled_for or stored.enqueued_at
            self.timers.set(TimerKind.ACTIVATE, stored.sequence_number, due)
        elif stored.state is MessageState.ACTIVE:
            self.make_ready(stored)

    def remove(self, stored: StoredMessage) -> None:
        if stored.state is MessageState.ACTIVE:
            self.make_unready(stored)
        for kind in (TimerKind.ACTIVATE, TimerKind.EXPIRE):
            self.timers.cancel(kind, stored.sequence_number)
        self._counts[stored.state] -= 1
        self.index.remove(stored.sequence_number)
        self._store.delete_message(self.name, stored.sequence_number)


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What a queue needs beside its declaration."""

    store: MessageStore
    kind: EntityKind = EntityKind.QUEUE
    dead_letters: "Queue | None" = None  # where its dead letters go; without, there are none
    rules: RuleSet | None = None  # of the subscription whose messages it holds
    count_expired_lock: Callable[[], None] = lambda: None
    new_lock_token: Callable[[], UUID] = uuid4


class Queue[Consumer = Any](MessagingEntity):
    """What plain and session queues share: locks, settlement, time to live, dead-lettering.

    A message that comes back (abandoned, released, lock lost) is delivered before all later ones.
    """

    lock_lost: ErrorCondition

    def __init__(self, config: QueueConfig, options: QueueOptions) -> None:
        super().__init__(config, options.kind, options.store)
        self.config = config
        self.dead_letters = options.dead_letters
        self.rules = options.rules
        self.count_expired_lock = options.count_expired_lock
        self._new_lock_token = options.new_lock_token
        self._locked: dict[UUID, StoredMessage] = {}
        self._waiting: dict[Consumer, None] = {}  # links, in the order in which they are served
        self.has_new_dead_letters = False  # taken over since the last dispatch

    @abstractmethod
    def expire_lock_of(self, stored: StoredMessage, now: float) -> None:
        """A locked message's lock has expired: a failed delivery."""

    @abstractmethod
    def dispatch_ready(self, now: float) -> None:
        """Give what is ready to this queue's own links."""

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
        """As if the lock's time were over now; nothing happens if it already is."""
        stored = self._locked.get(token)
        if stored is not None:
            self.expire_lock_of(stored, now)

    def settle(
        self,
        token: UUID,
        settlement: Settlement,
        now: float,
        reason: DeadLetterReason | None = None,
    ) -> None:
        """Apply a receiver's decision; refused when its lock is lost."""
        stored = self._locked.get(token)
        if stored is None:
            description = "The lock is lost; the message may be with somebody else"
            raise AmqpError(self.lock_lost, description)
        match settlement:
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
                self._move_to_dead_letters(stored, reason or DeadLetterReason(), now)

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
        if self.dead_letters is None:
            description = "A dead-lettered message cannot be so again"
            raise AmqpError(ErrorCondition.NOT_ALLOWED, description)
        self.unlock(stored)
        self.remove(stored)
        self.dead_letters.take_dead_letter(stored, reason, now)

    def depth(self) -> dict[str, int]:
        dead_letters = 0 if self.dead_letters is None else len(self.dead_letters.index)
        return {**super().depth(), "dead_lettered": dead_letters}

    def _change_state(self, stored: StoredMessage, state: MessageState) -> None:
        self._counts[stored.state] -= 1
        stored.state = state
        self._counts[state] += 1
