"""A queue as a state machine: no clock, no threads, no network.

Every call is given the time. What the two kinds of queue share stands here: sending, scheduling,
settling, time to live, dead-lettering and browsing. Order is the order of sequence numbers; a
message that comes back (abandoned, released, lock lost) is served before all later ones.

A call either does all it was asked or raises Refused and changes nothing.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from local.servicebus.alarms import Alarm, Alarms, Key
from local.servicebus.config import QueueConfig
from local.servicebus.ledger import Kept, Ledger
from local.servicebus.message import DeadLetter, Lock, Message, Settlement, State, StoredMessage
from local.servicebus.refusal import Condition, Refused
from local.servicebus.shelf import Shelf


class Queue(ABC):
    """What plain and session queues have in common."""

    lock_lost: Condition

    def __init__(
        self,
        config: QueueConfig,
        *,
        tokens: Callable[[], UUID],
        ledger: Ledger,
        dead_letters: "Queue | None",
    ) -> None:
        """`tokens` makes lock tokens; without `dead_letters` nothing can be dead-lettered."""
        self.config = config
        self.dead_letters = dead_letters
        self.expired_locks = 0  # how many locks have run out, ever
        self.counts: Counter[State] = Counter()
        self.alarms = Alarms()
        self.shelf = Shelf()
        self._tokens = tokens
        self._ledger = ledger
        self._locked: dict[UUID, StoredMessage] = {}
        self._last_sequence_number = 0

    # What the two kinds of queue do differently

    @abstractmethod
    def check(self, message: Message) -> None:
        """Raise Refused if the queue cannot take the message."""

    @abstractmethod
    def line_up(self, stored: StoredMessage) -> None:
        """Put an active message into its line."""

    @abstractmethod
    def fall_out(self, stored: StoredMessage) -> None:
        """Take an active message out of its line."""

    @abstractmethod
    def joined(self, stored: StoredMessage) -> None:
        """A message is now in the queue, in whatever state."""

    @abstractmethod
    def left(self, stored: StoredMessage) -> None:
        """A message is no longer in the queue."""

    @abstractmethod
    def unlocked(self, stored: StoredMessage) -> None:
        """A message is no longer locked."""

    # Sending

    def send(self, messages: Sequence[Message], now: float) -> list[int]:
        """Take all messages or none; returns their sequence numbers."""
        for message in messages:
            self.check(message)
        numbers = [self._enter(message, now).sequence_number for message in messages]
        self._ledger.number(self.config.name, self._last_sequence_number)
        return numbers

    def cancel(self, sequence_numbers: Sequence[int]) -> None:
        """Remove messages that are still scheduled."""
        scheduled = [self._find(number, State.SCHEDULED) for number in sequence_numbers]
        for stored in scheduled:
            self._remove(stored)

    def restore(self, kept: Kept) -> None:
        """Begin with what an earlier process left behind."""
        self._last_sequence_number = kept.last_sequence_number
        for stored in kept.messages:
            self._place(stored)

    def _enter(self, message: Message, now: float) -> StoredMessage:
        stored = StoredMessage(self._next_number(), message, now)
        if message.scheduled_for is not None and message.scheduled_for > now:
            stored.state = State.SCHEDULED
        else:
            stored.expires_at = message.expiry(now, self.config.time_to_live_seconds)
        self._place(stored)
        self._ledger.keep(self.config.name, stored)
        return stored

    def _activate(self, scheduled: StoredMessage, now: float) -> None:
        # Service Bus gives a scheduled message a new number when its time comes, as if it had just
        # been sent; so the order of numbers stays the order of service.
        self._remove(scheduled)
        message = scheduled.message
        expires_at = message.expiry(now, self.config.time_to_live_seconds)
        stored = StoredMessage(self._next_number(), message, now, expires_at=expires_at)
        self._place(stored)
        self._ledger.keep(self.config.name, stored)
        self._ledger.number(self.config.name, self._last_sequence_number)

    def _next_number(self) -> int:
        self._last_sequence_number += 1
        return self._last_sequence_number

    # Locks

    def lock(self, stored: StoredMessage, until: float) -> StoredMessage:
        """Hand a message out under a new token."""
        token = self._tokens()
        stored.lock = Lock(token, until)
        self._locked[token] = stored
        self._change(stored, State.LOCKED)
        return stored

    def settle(
        self,
        token: UUID,
        settlement: Settlement,
        now: float,
        dead_letter: DeadLetter | None = None,
    ) -> None:
        """Apply a receiver's decision; refused when its lock is no longer there."""
        stored = self._locked.get(token)
        if stored is None:
            raise Refused(self.lock_lost, "The lock is lost; the message may be with somebody else")
        match settlement:
            case Settlement.COMPLETE:
                self._unlock(stored)
                self._remove(stored)
            case Settlement.ABANDON:
                self.give_back(stored, now, failed=True)
            case Settlement.RELEASE:
                self.give_back(stored, now, failed=False)
            case Settlement.DEFER:
                self._unlock(stored)
                stored.set_aside = True
                self._change(stored, State.DEFERRED)
                self._ledger.keep(self.config.name, stored)
            case Settlement.DEAD_LETTER:
                self._bury(stored, dead_letter or DeadLetter(None, None), now)

    def give_back(self, stored: StoredMessage, now: float, *, failed: bool) -> None:
        """End a delivery without success; a failed one counts against the message."""
        self._unlock(stored)
        stored.delivery_count += failed
        limit = self.config.max_delivery_count
        if stored.is_expired(now):
            self._expire(stored, now)
        elif stored.delivery_count >= limit and self.dead_letters is not None:
            self._bury(stored, DeadLetter.after_failures(limit), now)
        else:
            self._rest(stored)
            if failed:
                self._ledger.keep(self.config.name, stored)

    def _rest(self, stored: StoredMessage) -> None:
        if stored.set_aside:
            self._change(stored, State.DEFERRED)
        else:
            self._change(stored, State.ACTIVE)
            self.line_up(stored)

    def _unlock(self, stored: StoredMessage) -> None:
        if stored.lock is not None:
            del self._locked[stored.lock.token]
            self.alarms.cancel(Alarm.UNLOCK, stored.sequence_number)
            self.unlocked(stored)
            stored.lock = None

    # Time

    def advance(self, now: float) -> None:
        """Do what has come due: activate, expire, unlock."""
        for alarm, key in self.alarms.due(now):
            self.ring(alarm, key, now)

    def ring(self, alarm: Alarm, key: Key, now: float) -> None:
        """Do what one alarm asks for."""
        stored = self.shelf.find(key) if isinstance(key, int) else None
        if stored is None:
            return
        match alarm:
            case Alarm.ACTIVATE:
                self._activate(stored, now)
            case Alarm.EXPIRE if stored.state is not State.LOCKED:
                # A locked message may still be settled; give_back looks at its age again.
                self._expire(stored, now)
            case Alarm.UNLOCK:
                self.expired_locks += 1
                self.give_back(stored, now, failed=True)

    def _expire(self, stored: StoredMessage, now: float) -> None:
        if self.config.dead_letter_expired and self.dead_letters is not None:
            self._bury(stored, DeadLetter.after_expiry(), now)
        else:
            self._remove(stored)

    # Dead letters

    def _bury(self, stored: StoredMessage, why: DeadLetter, now: float) -> None:
        if self.dead_letters is None:
            raise Refused(Condition.NOT_ALLOWED, "A dead-lettered message cannot be so again")
        self._unlock(stored)
        self._remove(stored)
        self.dead_letters.adopt(stored, why, now)

    def adopt(self, stored: StoredMessage, why: DeadLetter, now: float) -> None:
        """Take over a message that another queue gave up; it keeps number and delivery count."""
        buried = StoredMessage(
            stored.sequence_number,
            stored.message,
            enqueued_at=now,
            delivery_count=stored.delivery_count,
            dead_letter=why,
        )
        self._place(buried)
        self._ledger.keep(self.config.name, buried)

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
            raise Refused(Condition.NOT_ALLOWED, f"{self.config.name} is not a session queue")
        return self.shelf

    def depth(self) -> dict[str, int]:
        """How many messages there are in each state, and how many are dead-lettered."""
        depth = {state.value: self.counts[state] for state in State}
        dead_letters = self.dead_letters
        return {**depth, "dead_lettered": 0 if dead_letters is None else len(dead_letters.shelf)}

    def find_deferred(self, sequence_numbers: Sequence[int]) -> list[StoredMessage]:
        """The deferred messages with these numbers; refused if one of them is not there."""
        return [self._find(number, State.DEFERRED) for number in sequence_numbers]

    def _find(self, sequence_number: int, state: State) -> StoredMessage:
        stored = self.shelf.find(sequence_number)
        if stored is None or stored.state is not state:
            raise Refused(
                Condition.MESSAGE_NOT_FOUND, f"No {state.value} message {sequence_number}"
            )
        return stored

    # Coming and going

    def _place(self, stored: StoredMessage) -> None:
        self.shelf.add(stored)
        self.counts[stored.state] += 1
        self.joined(stored)
        if stored.expires_at is not None:
            self.alarms.set(Alarm.EXPIRE, stored.sequence_number, stored.expires_at)
        if stored.state is State.ACTIVE:
            self.line_up(stored)
        elif stored.state is State.SCHEDULED:
            due = stored.message.scheduled_for or stored.enqueued_at
            self.alarms.set(Alarm.ACTIVATE, stored.sequence_number, due)

    def _remove(self, stored: StoredMessage) -> None:
        if stored.state is State.ACTIVE:
            self.fall_out(stored)
        for alarm in (Alarm.ACTIVATE, Alarm.EXPIRE):
            self.alarms.cancel(alarm, stored.sequence_number)
        self.counts[stored.state] -= 1
        self.shelf.remove(stored.sequence_number)
        self.left(stored)
        self._ledger.forget(self.config.name, stored.sequence_number)

    def _change(self, stored: StoredMessage, state: State) -> None:
        self.counts[stored.state] -= 1
        stored.state = state
        self.counts[state] += 1
