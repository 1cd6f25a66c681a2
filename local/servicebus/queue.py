"""A queue: an inbox that hands its messages out.

What the two kinds of queue share stands here: locks, settlement, time to live and dead-lettering.
A message that comes back (abandoned, released, lock lost) is served before all later ones.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from uuid import UUID

from local.servicebus.alarms import Alarm, Key
from local.servicebus.config import QueueConfig
from local.servicebus.inbox import Inbox
from local.servicebus.ledger import Ledger
from local.servicebus.message import DeadLetter, Lock, Message, Settlement, State, StoredMessage
from local.servicebus.refusal import Condition, Refused


class Queue(Inbox):
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
        super().__init__(
            config.name,
            ledger=ledger,
            duplicate_window_seconds=config.duplicate_window_seconds,
        )
        self.config = config
        self.dead_letters = dead_letters
        self.expired_locks = 0  # how many locks have run out, ever
        self._tokens = tokens
        self._locked: dict[UUID, StoredMessage] = {}

    # What the two kinds of queue do differently

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
    def lose(self, stored: StoredMessage, now: float) -> None:
        """A locked message's lock is lost before its time: a failed delivery."""

    @abstractmethod
    def unlocked(self, stored: StoredMessage) -> None:
        """A message is no longer locked."""

    # Arriving

    def arrive(self, message: Message, now: float) -> int:
        """A message is active from now on."""
        expires_at = message.expiry(now, self.config.time_to_live_seconds)
        stored = StoredMessage(self.next_number(), message, now, expires_at=expires_at)
        self.place(stored)
        self._ledger.keep(self.name, stored)
        return stored.sequence_number

    def bury_at_once(self, message: Message, why: DeadLetter, now: float) -> None:
        """A message that cannot be served here becomes a dead letter."""
        if self.dead_letters is not None:
            self.dead_letters.adopt(StoredMessage(self.next_number(), message, now), why, now)

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
            case Settlement.COMPLETE if stored.comes_again:
                stored.comes_again = False
                self.give_back(stored, now, failed=False)
            case Settlement.COMPLETE:
                self._unlock(stored)
                self.remove(stored)
            case Settlement.ABANDON:
                self.give_back(stored, now, failed=True)
            case Settlement.RELEASE:
                self.give_back(stored, now, failed=False)
            case Settlement.DEFER:
                self._unlock(stored)
                stored.set_aside = True
                self._change(stored, State.DEFERRED)
                self._ledger.keep(self.name, stored)
            case Settlement.DEAD_LETTER:
                self._bury(stored, dead_letter or DeadLetter(None, None), now)

    def lose_lock(self, token: UUID, now: float) -> None:
        """As if the lock had run out now; nothing happens if it already has."""
        stored = self._locked.get(token)
        if stored is not None:
            self.lose(stored, now)

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
                self._ledger.keep(self.name, stored)

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

    def ring(self, alarm: Alarm, key: Key, now: float) -> None:
        """Do what one alarm asks for."""
        stored = self.shelf.find(key) if isinstance(key, int) else None
        if stored is None:
            return
        match alarm:
            case Alarm.ACTIVATE:
                self.activate(stored, now)
            case Alarm.EXPIRE if stored.state is not State.LOCKED:
                # A locked message may still be settled; give_back looks at its age again.
                self._expire(stored, now)
            case Alarm.UNLOCK:
                self.lose(stored, now)

    def _expire(self, stored: StoredMessage, now: float) -> None:
        if self.config.dead_letter_expired and self.dead_letters is not None:
            self._bury(stored, DeadLetter.after_expiry(), now)
        else:
            self.remove(stored)

    # Dead letters

    def _bury(self, stored: StoredMessage, why: DeadLetter, now: float) -> None:
        if self.dead_letters is None:
            raise Refused(Condition.NOT_ALLOWED, "A dead-lettered message cannot be so again")
        self._unlock(stored)
        self.remove(stored)
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
        self.place(buried)
        self._ledger.keep(self.name, buried)

    # Looking

    def depth(self) -> dict[str, int]:
        """How many messages there are in each state, and how many are dead-lettered."""
        dead_letters = self.dead_letters
        return {
            **super().depth(),
            "dead_lettered": 0 if dead_letters is None else len(dead_letters.shelf),
        }

    def find_deferred(self, sequence_numbers: Sequence[int]) -> list[StoredMessage]:
        """The deferred messages with these numbers; refused if one of them is not there."""
        return [self.find(number, State.DEFERRED) for number in sequence_numbers]

    # Coming and going

    def place(self, stored: StoredMessage) -> None:
        """A message is here from now on, in line if it is active."""
        super().place(stored)
        self.joined(stored)
        if stored.expires_at is not None:
            self.alarms.set(Alarm.EXPIRE, stored.sequence_number, stored.expires_at)
        if stored.state is State.ACTIVE:
            self.line_up(stored)

    def remove(self, stored: StoredMessage) -> None:
        """A message is here no longer."""
        if stored.state is State.ACTIVE:
            self.fall_out(stored)
        self.alarms.cancel(Alarm.EXPIRE, stored.sequence_number)
        super().remove(stored)
        self.left(stored)

    def _change(self, stored: StoredMessage, state: State) -> None:
        self.counts[stored.state] -= 1
        stored.state = state
        self.counts[state] += 1
