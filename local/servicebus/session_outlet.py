"""A receiver link on a session queue: it waits for a session, then holds it."""

from collections.abc import Callable

from proton import Delivery, Sender, symbol

from local.servicebus.broker import Broker, Timer
from local.servicebus.entity import SessionEntity
from local.servicebus.gate import Attempt, Wire
from local.servicebus.outlet import Outlet, refuse
from local.servicebus.refusal import Condition, Refused
from local.servicebus.session import Session

SESSION_FILTER = symbol("com.microsoft:session-filter")
LOCKED_UNTIL = symbol("com.microsoft:locked-until-utc")
TIMEOUT = symbol("com.microsoft:timeout")  # in milliseconds
WAIT_SECONDS_DEFAULT = 60.0  # when the client does not say how long it will wait
TICKS_AT_1970 = 621_355_968_000_000_000  # .NET counts 100 ns since the year 1
TICKS_PER_SECOND = 10_000_000


class SessionOutlet:
    """Attached only once it has its session; without one in time, refused with a timeout."""

    def __init__(self, link: Sender, entity: SessionEntity, broker: Broker, wire: Wire) -> None:
        self._link = link
        self._entity = entity
        self._broker = broker
        self._wire = wire
        self._outlet = Outlet(link, entity, broker, wire)
        self._patience: Timer | None = None
        self.session_id: str | None = None

    @property
    def wire(self) -> Wire:
        """The connection this link is part of."""
        return self._wire

    def open(self) -> None:
        """Ask for the session the client named, or wait for any."""
        wanted = read_filter(self._link)
        if wanted is not None:
            self._attempt(lambda: self._accept_named(wanted))
            return
        milliseconds = (self._link.remote_properties or {}).get(TIMEOUT)
        seconds = WAIT_SECONDS_DEFAULT if milliseconds is None else milliseconds / 1000
        self._patience = self._broker.later(seconds, self._give_up)
        self._entity.wait(self)
        self._entity.advance(self._broker.now())

    def accept_next(self, now: float) -> None:  # noqa: ARG002 - the attempt may come later
        """A session is ready: take it."""
        self._stop_patience()
        self._attempt(self._accept_any)

    def on_flow(self) -> None:
        """The client gave or took back credit."""
        self._entity.advance(self._broker.now())
        self.deliver()
        if self._link.drain_mode:
            self._link.drained()

    def on_delivery(self, delivery: Delivery) -> None:
        """The client has decided about a delivery."""
        self._outlet.on_delivery(delivery)

    def on_closed(self) -> None:
        """The session is free for others at once; nothing counts as failed."""
        self._stop_patience()
        self._entity.stop_waiting(self)
        self._entity.let_go(self)
        session_id, self.session_id = self.session_id, None
        if session_id is not None:
            now = self._broker.now()
            self._entity.act(now, lambda: self._entity.queue.let_go(session_id, self, now))

    def deliver(self) -> None:
        """Deliver what the session has and credit allows."""
        while self.session_id is not None and self._link.credit > 0 and self._wire.is_open:
            stored = self._entity.queue.receive(self.session_id, self)
            if stored is None:
                return
            self._outlet.send(stored, self._broker.now())
            self._wire.touch()

    def evicted(self) -> None:
        """The lock has run out: detach, saying so."""
        self.session_id = None
        self._refuse(Refused(Condition.SESSION_LOCK_LOST, "The session lock has expired"))

    def _attempt(self, accept: Callable[[], Session]) -> None:
        self._broker.gate.run(Attempt("accept", accept, self._answer, self._wire))

    def _accept_named(self, session_id: str) -> Session:
        now = self._broker.now()
        self._entity.advance(now)
        return self._hold(self._entity.queue.accept(session_id, self, now))

    def _accept_any(self) -> Session:
        session = self._entity.queue.accept_next(self, self._broker.now())
        if session is None:
            raise Refused(Condition.TIMEOUT, "The session that was ready is gone")
        return self._hold(session)

    def _hold(self, session: Session) -> Session:
        self.session_id = session.id
        self._entity.hold(self)
        return session

    def _answer(self, result: Session | Refused) -> None:
        if isinstance(result, Refused):
            self._refuse(result)
            return
        chosen = self._link.source.filter
        chosen.clear()
        chosen.put_object({SESSION_FILTER: result.id})
        ticks = TICKS_AT_1970 + int(result.locked_until * TICKS_PER_SECOND)
        self._link.properties = {LOCKED_UNTIL: ticks}
        self._link.open()
        self._wire.touch()

    def _give_up(self) -> None:
        self._patience = None
        self._entity.stop_waiting(self)
        if not self._wire.is_open:
            return
        self._broker.gate.count("accept", Condition.TIMEOUT.short_name)
        self._refuse(Refused(Condition.TIMEOUT, "No session became available in time"))

    def _refuse(self, refusal: Refused) -> None:
        refuse(self._link, refusal)
        self._wire.touch()

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def has_filter(link: Sender) -> bool:
    """Whether the client asks for a session, named or any."""
    return SESSION_FILTER in filters(link)


def read_filter(link: Sender) -> str | None:
    """The session the client names; None for any."""
    wanted = filters(link)[SESSION_FILTER]
    return None if wanted is None else str(wanted)


def filters(link: Sender) -> dict[str, object]:
    """The filter set of a link's source; some clients describe the values, some do not."""
    data = link.remote_source.filter
    data.rewind()
    given = data.get_object() if data.next() is not None else None
    found = given if isinstance(given, dict) else {}
    return {str(key): getattr(value, "value", value) for key, value in found.items()}
