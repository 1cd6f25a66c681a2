"""A queue with sessions: one line and one lock per session.

A session's messages are served in order to the one holder of its lock. When the lock runs out,
what was handed out comes back and counts as failed; when the holder lets go, it does not count.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from local.servicebus.alarms import Alarm, Key
from local.servicebus.config import QueueConfig
from local.servicebus.ledger import Kept, Ledger
from local.servicebus.message import Message, StoredMessage
from local.servicebus.queue import Queue
from local.servicebus.refusal import Condition, Refused
from local.servicebus.session import Holder, Session
from local.servicebus.shelf import Shelf


class SessionQueue(Queue):
    """Beside Refused, a call reports through `take_stirred` and `take_evicted`."""

    lock_lost = Condition.SESSION_LOCK_LOST

    def __init__(
        self,
        config: QueueConfig,
        *,
        tokens: Callable[[], UUID],
        ledger: Ledger,
        dead_letters: Queue | None,
    ) -> None:
        super().__init__(config, tokens=tokens, ledger=ledger, dead_letters=dead_letters)
        self._sessions: dict[str, Session] = {}
        self._ready: dict[str, None] = {}  # in the order in which they became so
        self._stirred: dict[str, None] = {}
        self._evicted: list[Holder] = []

    # The line of a session

    def check(self, message: Message) -> None:
        """A message without a session id is refused."""
        if message.session_id is None:
            raise Refused(
                Condition.NOT_ALLOWED,
                f"{self.name} requires sessions: the message has no session id",
            )

    def restore(self, kept: Kept) -> None:
        """Begin with what an earlier process left behind, session states included."""
        super().restore(kept)
        for session_id, state in kept.session_states.items():
            self._session(session_id).state = state

    def joined(self, stored: StoredMessage) -> None:
        """A message is now in its session."""
        self._session_of(stored).shelf.add(stored)

    def left(self, stored: StoredMessage) -> None:
        """A message is no longer in its session."""
        session = self._session_of(stored)
        session.shelf.remove(stored.sequence_number)
        self._forget_if_empty(session)

    def line_up(self, stored: StoredMessage) -> None:
        """Put an active message into its session's line."""
        session = self._session_of(stored)
        session.line.put(stored.sequence_number)
        if session.holder is not None:
            self._stirred[session.id] = None
        self._note_readiness(session)

    def fall_out(self, stored: StoredMessage) -> None:
        """Take an active message out of its session's line."""
        session = self._session_of(stored)
        session.line.discard(stored.sequence_number)
        self._note_readiness(session)

    def lose(self, stored: StoredMessage, now: float) -> None:
        """The lock is the session's: all that was handed out comes back."""
        self.lose_session(self._session_of(stored).id, now)

    def unlocked(self, stored: StoredMessage) -> None:
        """A message is no longer handed out."""
        self._session_of(stored).handed_out.pop(stored.sequence_number, None)

    # Holding a session

    @property
    def has_ready(self) -> bool:
        """Whether `accept_next` has a session to give."""
        return bool(self._ready)

    def accept_next(self, holder: Holder, now: float) -> Session | None:
        """Lock the session that has been ready longest, or return None."""
        session_id = next(iter(self._ready), None)
        return None if session_id is None else self.accept(session_id, holder, now)

    def accept(self, session_id: str, holder: Holder, now: float) -> Session:
        """Lock a session, even one without messages; refused while somebody holds it."""
        session = self._session(session_id)
        if session.holder is not None:
            raise Refused(
                Condition.SESSION_CANNOT_BE_LOCKED, f"Session {session_id!r} is held by another"
            )
        session.holder = holder
        self._note_readiness(session)
        self._lock_session(session, now)
        return session

    def receive(self, session_id: str, holder: Holder) -> StoredMessage | None:
        """Hand out the session's first message, or return None; one may be given several."""
        session = self.held(session_id, holder)
        sequence_number = session.line.take()
        stored = None if sequence_number is None else self.shelf.find(sequence_number)
        return None if stored is None else self._hand_out(stored, session)

    def receive_deferred(
        self, sequence_numbers: Sequence[int], session_id: str, holder: Holder | None
    ) -> list[StoredMessage]:
        """Hand out messages of the session that were set aside; all or none."""
        session = self.held(session_id, holder)
        found = self.find_deferred(sequence_numbers)
        if any(stored.message.session_id != session_id for stored in found):
            raise Refused(Condition.MESSAGE_NOT_FOUND, f"Not all are of session {session_id!r}")
        return [self._hand_out(stored, session) for stored in found]

    def renew(self, session_id: str, holder: Holder | None, now: float) -> float:
        """Prolong the lock; returns until when it now holds."""
        return self._lock_session(self.held(session_id, holder), now)

    def let_go(self, session_id: str, holder: Holder, now: float) -> None:
        """End the holder's lock, if it still has it; what it was handed does not count."""
        session = self._sessions.get(session_id)
        if session is not None and session.holder is holder:
            self._unlock_session(session, now, failed=False)

    def lose_session(self, session_id: str, now: float) -> None:
        """The lock is over; what was handed out counts as failed. Nothing if nobody holds it."""
        session = self._sessions.get(session_id)
        if session is not None and session.holder is not None:
            self.expired_locks += 1
            self._evicted.append(session.holder)
            self._unlock_session(session, now, failed=True)

    def held(self, session_id: str, holder: Holder | None) -> Session:
        """The session, if this holder holds it; refused otherwise."""
        session = self._sessions.get(session_id)
        if session is None or holder is None or session.holder is not holder:
            raise Refused(Condition.SESSION_LOCK_LOST, f"The lock on {session_id!r} is lost")
        return session

    def set_state(self, session_id: str, holder: Holder | None, state: bytes | None) -> None:
        """Keep a state with the session for its next holder; None clears it."""
        session = self.held(session_id, holder)
        session.state = state
        self._ledger.keep_session_state(self.name, session.id, state)

    # What happened

    def take_stirred(self) -> list[str]:
        """The held sessions that may have something to deliver, since the last call."""
        stirred, self._stirred = list(self._stirred), {}
        return stirred

    def take_evicted(self) -> list[Holder]:
        """The holders that lost their session, since the last call."""
        evicted, self._evicted = self._evicted, []
        return evicted

    def holder_of(self, session_id: str) -> Holder | None:
        """Who holds the session now."""
        session = self._sessions.get(session_id)
        return None if session is None else session.holder

    def session_ids(self) -> list[str]:
        """The sessions that have messages, in any state, in the order of their first sign."""
        return [one.id for one in self._sessions.values() if len(one.shelf) > 0]

    def shelf_of(self, session_id: str | None) -> Shelf:
        """Where to look for the messages of a session, or of all."""
        if session_id is None:
            return self.shelf
        session = self._sessions.get(session_id)
        return Shelf() if session is None else session.shelf

    def ring(self, alarm: Alarm, key: Key, now: float) -> None:
        """Do what one alarm asks for."""
        if alarm is not Alarm.UNLOCK_SESSION:
            return super().ring(alarm, key, now)
        return self.lose_session(str(key), now)

    # Inside

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = Session(session_id)
        return session

    def _session_of(self, stored: StoredMessage) -> Session:
        return self._session(stored.message.session_id or "")

    def _hand_out(self, stored: StoredMessage, session: Session) -> StoredMessage:
        session.handed_out[stored.sequence_number] = stored
        return self.lock(stored, session.locked_until)

    def _lock_session(self, session: Session, now: float) -> float:
        session.locked_until = now + self.config.lock_seconds
        self.alarms.set(Alarm.UNLOCK_SESSION, session.id, session.locked_until)
        return session.locked_until

    def _unlock_session(self, session: Session, now: float, *, failed: bool) -> None:
        session.holder = None
        self.alarms.cancel(Alarm.UNLOCK_SESSION, session.id)
        for stored in list(session.handed_out.values()):
            self.give_back(stored, now, failed=failed)
        self._note_readiness(session)
        self._forget_if_empty(session)

    def _note_readiness(self, session: Session) -> None:
        if session.is_ready:
            self._ready.setdefault(session.id)
        else:
            self._ready.pop(session.id, None)

    def _forget_if_empty(self, session: Session) -> None:
        if session.is_forgettable:
            self._sessions.pop(session.id, None)
