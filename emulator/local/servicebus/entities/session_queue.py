"""A queue with sessions: one ready queue and one lock per session.

A session's messages are delivered in order to the one holder of its lock. When the lock expires,
what was delivered comes back and counts as failed; when the holder releases it, it does not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.config import QueueConfig
from local.servicebus.entities.indexes import MessageIndex, ReadyQueue, TimerKey, TimerKind
from local.servicebus.entities.queue import Queue, QueueOptions
from local.servicebus.entities.store import SessionState, StoredQueue
from local.servicebus.message import BrokeredMessage, StoredMessage


class SessionConsumer(Protocol):
    @property
    def connection(self) -> object: ...

    def accept_ready(self) -> None:
        """Take a session: one is ready."""

    def deliver(self) -> None:
        """Deliver what the session has and credit allows."""

    def on_session_lost(self) -> None:
        """The session lock has expired."""


@dataclass(slots=True)
class MessageSession:
    """The messages that share a session id. One consumer at most holds it, until `locked_until`."""

    id: str
    ready: ReadyQueue = field(default_factory=ReadyQueue)
    index: MessageIndex = field(default_factory=MessageIndex)
    delivered: dict[int, StoredMessage] = field(default_factory=dict)
    holder: SessionConsumer | None = None
    locked_until: float = 0.0
    state: SessionState | None = None


class SessionQueue(Queue[SessionConsumer]):
    """Sessions are given out in the order in which they became ready."""

    lock_lost = ErrorCondition.SESSION_LOCK_LOST

    def __init__(self, config: QueueConfig, options: QueueOptions) -> None:
        super().__init__(config, options)
        self._sessions: dict[str, MessageSession] = {}
        self._ready: dict[str, None] = {}  # sessions with ready messages that nobody holds
        # What happened since the last dispatch:
        self._deliverable: dict[str, None] = {}  # held sessions with newly ready messages
        self._lost: list[SessionConsumer] = []  # consumers whose session lock has expired

    def dispatch_ready(self, now: float) -> None:  # noqa: ARG002
        lost, self._lost = self._lost, []
        for consumer in lost:
            consumer.on_session_lost()
        while self._waiting and self._ready:
            consumer = next(iter(self._waiting))
            del self._waiting[consumer]
            consumer.accept_ready()
        deliverable, self._deliverable = self._deliverable, {}
        for session_id in deliverable:
            if (holder := self.holder_of(session_id)) is not None:
                holder.deliver()

    def check(self, message: BrokeredMessage) -> None:
        if message.session_id is None:
            description = f"{self.name} requires sessions: the message has no session id"
            raise AmqpError(ErrorCondition.NOT_ALLOWED, description)

    def restore(self, content: StoredQueue) -> None:
        super().restore(content)
        for session_id, state in content.session_states.items():
            self._find_or_create(session_id).state = state

    def place(self, stored: StoredMessage) -> None:
        self._find_or_create(stored.message.session_id).index.add(stored)
        super().place(stored)

    def remove(self, stored: StoredMessage) -> None:
        super().remove(stored)
        session = self._find_or_create(stored.message.session_id)
        session.index.remove(stored.sequence_number)
        self._forget_if_empty(session)

    def make_ready(self, stored: StoredMessage) -> None:
        session = self._find_or_create(stored.message.session_id)
        session.ready.put(stored.sequence_number)
        if session.holder is None:
            self._ready.setdefault(session.id)
        else:
            self._deliverable[session.id] = None

    def make_unready(self, stored: StoredMessage) -> None:
        session = self._find_or_create(stored.message.session_id)
        session.ready.discard(stored.sequence_number)
        if len(session.ready) == 0:
            self._ready.pop(session.id, None)

    def unlock(self, stored: StoredMessage) -> None:
        if stored.lock is not None:
            session = self._find_or_create(stored.message.session_id)
            session.delivered.pop(stored.sequence_number, None)
        super().unlock(stored)

    def expire_lock_of(self, stored: StoredMessage, now: float) -> None:
        """Expire the lock of the message's session: all that was delivered comes back."""
        self.expire_session_lock(self._find_or_create(stored.message.session_id).id, now)

    def run_timer(self, kind: TimerKind, key: TimerKey, now: float) -> None:
        if kind is TimerKind.UNLOCK_SESSION:
            self.expire_session_lock(str(key), now)
        else:
            super().run_timer(kind, key, now)

    def receive(self, session_id: str, holder: SessionConsumer) -> StoredMessage | None:
        """Lock the session's first ready message, or return None."""
        session = self.held_session(session_id, holder)
        sequence_number = session.ready.take()
        stored = None if sequence_number is None else self.index.find(sequence_number)
        return None if stored is None else self._lock_in_session(stored, session)

    def receive_deferred(
        self, sequence_numbers: Sequence[int], session_id: str, holder: SessionConsumer | None
    ) -> list[StoredMessage]:
        """Lock deferred messages of the session; all or none."""
        session = self.held_session(session_id, holder)
        found = self.find_deferred(sequence_numbers)
        if any(stored.message.session_id != session_id for stored in found):
            description = f"Not all are of session {session_id!r}"
            raise AmqpError(ErrorCondition.MESSAGE_NOT_FOUND, description)
        return [self._lock_in_session(stored, session) for stored in found]

    # Session locks

    def accept_next(self, holder: SessionConsumer, now: float) -> MessageSession | None:
        """Lock the session that has been ready longest, or return None."""
        session_id = next(iter(self._ready), None)
        return None if session_id is None else self.accept(session_id, holder, now)

    def accept(self, session_id: str, holder: SessionConsumer, now: float) -> MessageSession:
        """Lock a session, even one without messages; refused while somebody holds it."""
        session = self._find_or_create(session_id)
        if session.holder is not None:
            description = f"Session {session_id!r} is held by another"
            raise AmqpError(ErrorCondition.SESSION_CANNOT_BE_LOCKED, description)
        session.holder = holder
        self._ready.pop(session_id, None)
        self._lock_session(session, now)
        return session

    def renew(self, session_id: str, holder: SessionConsumer | None, now: float) -> float:
        """Renew the session lock; returns until when it now holds."""
        return self._lock_session(self.held_session(session_id, holder), now)

    def release(self, session_id: str, holder: SessionConsumer, now: float) -> None:
        """End the holder's lock, if it still has it; what it was delivered does not count."""
        if self.holder_of(session_id) is holder:
            self._unlock_session(self._sessions[session_id], now, failed=False)

    def expire_session_lock(self, session_id: str, now: float) -> None:
        """End an expired lock; what was delivered has failed. Nothing happens without a holder."""
        session = self._sessions.get(session_id)
        if session is not None and session.holder is not None:
            self.count_expired_lock()
            self._lost.append(session.holder)
            self._unlock_session(session, now, failed=True)

    def holder_of(self, session_id: str) -> SessionConsumer | None:
        session = self._sessions.get(session_id)
        return None if session is None else session.holder

    def holder_on(self, connection: object, session_id: str) -> SessionConsumer | None:
        holder = self.holder_of(session_id)
        return holder if holder is not None and holder.connection is connection else None

    def held_session(self, session_id: str, holder: SessionConsumer | None) -> MessageSession:
        session = self._sessions.get(session_id)
        if session is None or holder is None or session.holder is not holder:
            raise AmqpError(ErrorCondition.SESSION_LOCK_LOST, f"The lock on {session_id!r} is lost")
        return session

    def set_state(
        self, session_id: str, holder: SessionConsumer | None, state: SessionState | None
    ) -> None:
        """Keep a state with the session for its next holder; None clears it."""
        self.held_session(session_id, holder).state = state
        self._store.save_session_state(self.name, session_id, state)

    def session_ids(self, updated_after: float | None = None) -> list[str]:
        """The sessions that have messages, in any state, or a session state, in order of first use.

        With a time, those whose session state was set after it.
        """
        sessions = self._sessions.values()
        if updated_after is None:
            return [one.id for one in sessions if len(one.index) > 0 or one.state is not None]
        with_state = [(one.id, one.state) for one in sessions if one.state is not None]
        return [session_id for session_id, state in with_state if state.updated_at > updated_after]

    def size(self) -> int:
        states = (one.state.content for one in self._sessions.values() if one.state is not None)
        return super().size() + sum(map(len, states))

    def index_of(self, session_id: str | None) -> MessageIndex:
        if session_id is None:
            return self.index
        session = self._sessions.get(session_id)
        return MessageIndex() if session is None else session.index

    def _find_or_create(self, session_id: str | None) -> MessageSession:
        name = session_id or ""
        if name not in self._sessions:
            self._sessions[name] = MessageSession(name)
        return self._sessions[name]

    def _lock_in_session(self, stored: StoredMessage, session: MessageSession) -> StoredMessage:
        session.delivered[stored.sequence_number] = stored
        return self.lock(stored, session.locked_until)

    def _lock_session(self, session: MessageSession, now: float) -> float:
        session.locked_until = now + self.config.lock_seconds
        self.timers.set(TimerKind.UNLOCK_SESSION, session.id, session.locked_until)
        return session.locked_until

    def _unlock_session(self, session: MessageSession, now: float, *, failed: bool) -> None:
        session.holder = None
        self.timers.cancel(TimerKind.UNLOCK_SESSION, session.id)
        for stored in list(session.delivered.values()):
            self.give_back(stored, now, failed=failed)
        if len(session.ready) > 0:
            self._ready.setdefault(session.id)
        self._forget_if_empty(session)

    def _forget_if_empty(self, session: MessageSession) -> None:
        if session.holder is None and len(session.index) == 0 and session.state is None:
            self._sessions.pop(session.id, None)
