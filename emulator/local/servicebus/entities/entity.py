"""The common part of queues and topics.

State machines: no clock, no threads, no network; every call is given the time, in seconds since
1970. A call either does all it was asked or raises AmqpError and changes nothing.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import islice

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.config import QueueConfig, TopicConfig
from local.servicebus.entities.indexes import (
    DuplicateDetection,
    MessageIndex,
    TimerKey,
    TimerKind,
    Timers,
)
from local.servicebus.entities.store import MessageStore, StoredQueue
from local.servicebus.message import (
    DEAD_LETTERED,
    BrokeredMessage,
    MessageState,
    StoredMessage,
)


class EntityKind(Enum):
    """The kind of an entity, for those who would send to it."""

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
        """Return whether clients may send here; to all others only the broker itself does."""
        return self.kind in (EntityKind.QUEUE, EntityKind.TOPIC)

    # What the kinds of entity do differently

    @abstractmethod
    def check(self, message: BrokeredMessage) -> None:
        """Raise AmqpError if the message cannot be taken."""

    @abstractmethod
    def enqueue(self, message: BrokeredMessage, now: float) -> int:
        """Take a message that is due, sent now or scheduled before; returns its number."""

    @abstractmethod
    def leads_to(self) -> list[str]:
        """The names of the entities that its messages go on to."""

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
        """Forget the links that wait; session locks that links held stay until they expire."""

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
        """Run due timers before a call on behalf of a client, and deliver after it."""
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
        own, common = message.time_to_live_seconds, self._time_to_live_seconds
        if own is None or common is None:
            return common if own is None else own
        return min(own, common)

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
        return {state.value: self._counts[state] for state in MessageState} | {DEAD_LETTERED: 0}

    def size(self) -> int:
        """The bytes that its messages take, with all that is held under it."""
        return sum(len(stored.message.encoded) for stored in self.index.browse(0))

    def find(self, sequence_number: int, state: MessageState) -> StoredMessage:
        """The message with this number; refused unless it is there, and in this state."""
        stored = self.index.find(sequence_number)
        if stored is None or stored.state is not state:
            description = f"No {state.value} message {sequence_number}"
            raise AmqpError(ErrorCondition.MESSAGE_NOT_FOUND, description)
        return stored

    def configure(self, config: QueueConfig | TopicConfig) -> None:
        """Go by another declaration from now on; what decides how it is built stays as it is."""
        self._time_to_live_seconds = config.time_to_live_seconds

    def discard(self) -> None:
        """Forget the entity: nothing of it is stored any more, whatever its last links still do."""
        self.remove_waiting_links()
        self._store.forget(self.name)
        self._store = MessageStore()

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
