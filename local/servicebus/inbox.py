"""What can be sent to: numbers, schedules, duplicates and browsing, shared by queues and topics.

A state machine: no clock, no threads, no network; every call is given the time. A call either does
all it was asked or raises Refused and changes nothing.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

from local.servicebus.alarms import Alarm, Alarms, Key
from local.servicebus.duplicates import Duplicates
from local.servicebus.ledger import Kept, Ledger
from local.servicebus.message import Message, State, StoredMessage
from local.servicebus.refusal import Condition, Refused
from local.servicebus.shelf import Shelf


class Inbox(ABC):
    """Order is the order of sequence numbers, given out as messages arrive."""

    def __init__(
        self, name: str, *, ledger: Ledger, duplicate_window_seconds: float | None
    ) -> None:
        """Without a window duplicates are not looked for."""
        self.name = name
        self.counts: Counter[State] = Counter()
        self.alarms = Alarms()
        self.shelf = Shelf()
        self._ledger = ledger
        self._duplicates = Duplicates(duplicate_window_seconds)
        self._last_sequence_number = 0

    # What the kinds of inbox do differently

    @abstractmethod
    def check(self, message: Message) -> None:
        """Raise Refused if the message cannot be taken."""

    @abstractmethod
    def arrive(self, message: Message, now: float) -> int:
        """A message is due now, sent or scheduled before; returns its sequence number."""

    @abstractmethod
    def ring(self, alarm: Alarm, key: Key, now: float) -> None:
        """Do what one alarm asks for."""

    # Sending

    def send(self, messages: Sequence[Message], now: float) -> list[int]:
        """Take all messages or none; returns their sequence numbers.

        A message whose id was sent before in the window is dropped; its number is that of the
        first, and the sender learns nothing of it.
        """
        for message in messages:
            self.check(message)
        return [self._take(message, now) for message in messages]

    def cancel(self, sequence_numbers: Sequence[int]) -> None:
        """Remove messages that are still scheduled."""
        scheduled = [self.find(number, State.SCHEDULED) for number in sequence_numbers]
        for stored in scheduled:
            self.remove(stored)

    def restore(self, kept: Kept) -> None:
        """Begin with what an earlier process left behind."""
        self._last_sequence_number = kept.last_sequence_number
        self._duplicates.restore(kept.seen)
        for stored in kept.messages:
            self.place(stored)

    def next_number(self) -> int:
        """A sequence number that was never given out before."""
        self._last_sequence_number += 1
        self._ledger.number(self.name, self._last_sequence_number)
        return self._last_sequence_number

    def activate(self, scheduled: StoredMessage, now: float) -> None:
        """The time of a scheduled message has come."""
        # Service Bus gives it a new number, as if it had just been sent; so the order of numbers
        # stays the order of service.
        self.remove(scheduled)
        self.arrive(scheduled.message, now)

    def _take(self, message: Message, now: float) -> int:
        earlier = self._duplicates.find(message.message_id, now)
        if earlier is not None:
            return earlier.sequence_number
        number = self._enter(message, now)
        seen = self._duplicates.note(message.message_id, number, now)
        if seen is not None:
            self._ledger.remember(self.name, seen)
        return number

    def _enter(self, message: Message, now: float) -> int:
        if message.scheduled_for is None or message.scheduled_for <= now:
            return self.arrive(message, now)
        stored = StoredMessage(self.next_number(), message, now, state=State.SCHEDULED)
        self.place(stored)
        self._ledger.keep(self.name, stored)
        return stored.sequence_number

    # Time

    def advance(self, now: float) -> None:
        """Do what has come due."""
        for alarm, key in self.alarms.due(now):
            self.ring(alarm, key, now)
        for message_id in self._duplicates.forget_old(now):
            self._ledger.unremember(self.name, message_id)

    # Looking

    def peek(
        self, first: int, count: int, session_id: str | None = None
    ) -> tuple[StoredMessage, ...]:
        """Up to `count` messages from a sequence number on, in any state, locking none."""
        found: list[StoredMessage] = []
        for stored in self.shelf_of(session_id).browse(first):
            if len(found) >= count:
                break
            found.append(stored)
        return tuple(found)

    def shelf_of(self, session_id: str | None) -> Shelf:
        """Where to look for the messages of a session, or of all."""
        if session_id is not None:
            raise Refused(Condition.NOT_ALLOWED, f"{self.name} has no sessions")
        return self.shelf

    def depth(self) -> dict[str, int]:
        """How many messages there are in each state."""
        return {state.value: self.counts[state] for state in State} | {"dead_lettered": 0}

    def find(self, sequence_number: int, state: State) -> StoredMessage:
        """The message with this number; refused unless it is there, and in this state."""
        stored = self.shelf.find(sequence_number)
        if stored is None or stored.state is not state:
            raise Refused(
                Condition.MESSAGE_NOT_FOUND, f"No {state.value} message {sequence_number}"
            )
        return stored

    # Coming and going

    def place(self, stored: StoredMessage) -> None:
        """A message is here from now on."""
        self.shelf.add(stored)
        self.counts[stored.state] += 1
        if stored.state is State.SCHEDULED:
            due = stored.message.scheduled_for or stored.enqueued_at
            self.alarms.set(Alarm.ACTIVATE, stored.sequence_number, due)

    def remove(self, stored: StoredMessage) -> None:
        """A message is here no longer."""
        self.alarms.cancel(Alarm.ACTIVATE, stored.sequence_number)
        self.counts[stored.state] -= 1
        self.shelf.remove(stored.sequence_number)
        self._ledger.forget(self.name, stored.sequence_number)
