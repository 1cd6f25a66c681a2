"""Links on which a client receives from a session: they wait for one, then hold its lock."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from proton import Sender, symbol

from local.servicebus.broker import ClientOperation
from local.servicebus.entities.session_queue import MessageSession, SessionQueue
from local.servicebus.links.endpoint import refuse_link
from local.servicebus.links.outgoing import OutgoingLink
from local.servicebus.protocol.errors import AmqpError, ErrorCondition

# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide
SESSION_FILTER = symbol("com.microsoft:session-filter")
LOCKED_UNTIL = symbol("com.microsoft:locked-until-utc")
TIMEOUT = symbol("com.microsoft:timeout")  # in milliseconds
WAIT_SECONDS_DEFAULT = 60.0  # when the client does not name a timeout
TICKS_AT_1970 = 621_355_968_000_000_000  # .NET counts 100 ns since the year 1
TICKS_PER_SECOND = 10_000_000


@dataclass(eq=False)
class SessionOutgoingLink(OutgoingLink[SessionQueue]):
    """Attached only once it has its session; without one in time, refused with a timeout.

    So the client reads from the attach which session it got and until when its lock holds.
    """

    _timeout: asyncio.Handle | None = None
    _session_id: str | None = None

    def open(self) -> None:
        wanted = read_filters(self._link)[SESSION_FILTER]
        if wanted is not None:
            self._execute_accept(lambda: self._accept_named(str(wanted)))
            return
        milliseconds = (self._link.remote_properties or {}).get(TIMEOUT)
        seconds = WAIT_SECONDS_DEFAULT if milliseconds is None else milliseconds / 1000
        self._timeout = self._broker.call_later(seconds, self._on_timeout)
        self._queue.wait(self)
        self._queue.advance(self._broker.now())

    def accept_ready(self) -> None:
        self._cancel_timeout()
        self._execute_accept(self._accept_next)

    def on_link_flow(self) -> None:
        self._queue.advance(self._broker.now())
        self.deliver()
        if self._link.drain_mode:
            self._link.drained()

    def on_link_closed(self) -> None:
        """The session is free for others at once; nothing counts as failed."""
        self._cancel_timeout()
        self._queue.stop_waiting(self)
        session_id, self._session_id = self._session_id, None
        if session_id is not None:
            now = self._broker.now()
            with self._queue.dispatching(now):
                self._queue.release(session_id, self, now)

    def deliver(self) -> None:
        while self._session_id is not None and self._link.credit > 0 and self.connection.is_open:
            stored = self._queue.receive(self._session_id, self)
            if stored is None:
                return
            self.transfer(stored, self._broker.now())

    def on_session_lost(self) -> None:
        self._session_id = None
        self._refuse(AmqpError(ErrorCondition.SESSION_LOCK_LOST, "The session lock has expired"))

    def _execute_accept(self, accept: Callable[[], MessageSession]) -> None:
        self._broker.interceptor.execute(
            ClientOperation("accept", accept, self._attach, self.connection)
        )

    def _accept_named(self, session_id: str) -> MessageSession:
        now = self._broker.now()
        self._queue.advance(now)
        session = self._queue.accept(session_id, self, now)
        self._session_id = session.id
        return session

    def _accept_next(self) -> MessageSession:
        session = self._queue.accept_next(self, self._broker.now())
        if session is None:
            raise AmqpError(ErrorCondition.TIMEOUT, "The session that was ready is gone")
        self._session_id = session.id
        return session

    def _attach(self, result: MessageSession | AmqpError) -> None:
        if isinstance(result, AmqpError):
            self._refuse(result)
            return
        chosen = self._link.source.filter
        chosen.clear()
        chosen.put_object({SESSION_FILTER: result.id})
        ticks = TICKS_AT_1970 + int(result.locked_until * TICKS_PER_SECOND)
        self._link.properties = {LOCKED_UNTIL: ticks}
        self._link.open()

    def _on_timeout(self) -> None:
        self._timeout = None
        self._queue.stop_waiting(self)
        if self.connection.is_open:
            self._broker.interceptor.count("accept", ErrorCondition.TIMEOUT.short_name)
            self._refuse(AmqpError(ErrorCondition.TIMEOUT, "No session became available in time"))

    def _refuse(self, refusal: AmqpError) -> None:
        # Nothing can be refused on a connection that is gone, and its Proton objects are freed.
        if self.connection.is_open:
            refuse_link(self._link, refusal)
            self.connection.request_flush()

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


def has_session_filter(link: Sender) -> bool:
    """Whether the client asks for a session, by name or (a null filter) for any."""
    return SESSION_FILTER in read_filters(link)


def read_filters(link: Sender) -> dict[str, object]:
    """The filter set of a link's source; some clients describe the values, some do not."""
    data = link.remote_source.filter
    data.rewind()
    given = data.get_object() if data.next() is not None else None
    filters = given if isinstance(given, dict) else {}
    return {str(key): getattr(value, "value", value) for key, value in filters.items()}
