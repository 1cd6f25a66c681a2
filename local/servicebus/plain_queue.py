"""A queue without sessions: one line, a lock per message."""

from collections.abc import Callable, Sequence
from uuid import UUID

from local.servicebus.alarms import Alarm
from local.servicebus.config import QueueConfig
from local.servicebus.ledger import Ledger
from local.servicebus.line import Line
from local.servicebus.message import Lock, Message, StoredMessage
from local.servicebus.queue import Queue
from local.servicebus.refusal import Condition, Refused


class PlainQueue(Queue):
    """Messages are served in order to whoever asks; a lock belongs to a message, not to a link.

    So closing a link gives nothing back: what it held comes back when the locks run out.
    """

    lock_lost = Condition.MESSAGE_LOCK_LOST

    def __init__(
        self,
        config: QueueConfig,
        *,
        tokens: Callable[[], UUID],
        ledger: Ledger,
        dead_letters: Queue | None,
    ) -> None:
        super().__init__(config, tokens=tokens, ledger=ledger, dead_letters=dead_letters)
        self._line = Line()

    def check(self, message: Message) -> None:
        """Any message will do; a session id is carried and means nothing."""

    def line_up(self, stored: StoredMessage) -> None:
        """Put an active message into the line."""
        self._line.put(stored.sequence_number)

    def fall_out(self, stored: StoredMessage) -> None:
        """Take an active message out of the line."""
        self._line.discard(stored.sequence_number)

    def joined(self, stored: StoredMessage) -> None:
        """The shelf is all there is to join."""

    def left(self, stored: StoredMessage) -> None:
        """The shelf is all there was to leave."""

    def lose(self, stored: StoredMessage, now: float) -> None:
        """A message alone is no longer locked."""
        self.expired_locks += 1
        self.give_back(stored, now, failed=True)

    def unlocked(self, stored: StoredMessage) -> None:
        """A lock belongs to its message alone."""

    @property
    def has_ready(self) -> bool:
        """Whether `receive` has something to give."""
        return len(self._line) > 0

    def receive(self, now: float) -> StoredMessage | None:
        """Lock the first message of the line, or return None."""
        sequence_number = self._line.take()
        stored = None if sequence_number is None else self.shelf.find(sequence_number)
        return None if stored is None else self._lock_for_a_while(stored, now)

    def receive_deferred(self, sequence_numbers: Sequence[int], now: float) -> list[StoredMessage]:
        """Lock messages that were set aside; all or none."""
        return [self._lock_for_a_while(m, now) for m in self.find_deferred(sequence_numbers)]

    def renew(self, tokens: Sequence[UUID], now: float) -> list[float]:
        """Prolong locks, all or none; returns until when each now holds."""
        held = [self._locked.get(token) for token in tokens]
        if None in held:
            raise Refused(Condition.MESSAGE_LOCK_LOST, "The lock is lost and cannot be renewed")
        return [self._prolong(stored, now) for stored in held if stored is not None]

    def _lock_for_a_while(self, stored: StoredMessage, now: float) -> StoredMessage:
        until = now + self.config.lock_seconds
        self.alarms.set(Alarm.UNLOCK, stored.sequence_number, until)
        return self.lock(stored, until)

    def _prolong(self, stored: StoredMessage, now: float) -> float:
        until = now + self.config.lock_seconds
        if stored.lock is not None:
            stored.lock = Lock(stored.lock.token, until)
            self.alarms.set(Alarm.UNLOCK, stored.sequence_number, until)
        return until
