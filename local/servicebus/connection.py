"""One client's connection: Proton speaks AMQP, asyncio carries the bytes.

Proton's protocol engine is used without its reactor, whose `select` is limited to 1,024 sockets and
looks at every connection for every event.
"""

import asyncio
from collections.abc import Callable

from proton import (
    Collector,
    Delivery,
    Endpoint,
    Event,
    EventType,
    Link,
    ProtonException,
    Session,
    Transport,
)
from proton import Condition as AmqpCondition
from proton import Connection as AmqpConnection

from local.servicebus.attachment import Attaching, LinkEnd
from local.servicebus.broker import Broker
from local.servicebus.directory import Directory
from local.servicebus.events import Subject, events
from local.servicebus.outlet import refuse
from local.servicebus.refusal import Condition, Refused

FRAME_BYTES_MAX = 65_536
LINK_OPEN = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE


class Connection(asyncio.Protocol):
    """Translates Proton's events into calls on the connection's links."""

    def __init__(
        self,
        broker: Broker,
        directory: Directory,
        *,
        opened: Callable[["Connection"], None],
        closed: Callable[["Connection"], None],
    ) -> None:
        self._broker = broker
        self._attaching = Attaching(directory, broker, self)
        self._opened = opened
        self._closed = closed
        self._socket: asyncio.Transport | None = None
        self._collector = Collector()
        self._connection = AmqpConnection()
        self._connection.collect(self._collector)
        self._transport = Transport(Transport.SERVER)
        self._transport.max_frame_size = FRAME_BYTES_MAX
        self._transport.sasl().allowed_mechs("ANONYMOUS")
        self._transport.bind(self._connection)
        self._ends: dict[Link, LinkEnd] = {}
        self._heartbeat: asyncio.TimerHandle | None = None

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        if isinstance(transport, asyncio.Transport):
            self._socket = transport
        self._opened(self)

    def data_received(self, data: bytes) -> None:
        """The client has sent bytes: one turn."""
        self._broker.turn(lambda: self._read(data))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The socket is gone: the sessions held over it are free again.

        Not so when the whole service is down: then nobody notices, and their locks must run out.
        """
        self._socket = None
        if self._broker.gate.is_down:
            self._ends.clear()
        self._broker.turn(self._let_go)
        self._closed(self)
        # Nobody asks for these again. What refers to this object in a circle would keep them, and
        # their buffers outside Python, until the garbage collector comes by.
        del self._attaching, self._collector, self._connection, self._transport

    # What links and the server call

    @property
    def is_open(self) -> bool:
        """Whether anything can still be said to the client."""
        return self._socket is not None

    def touch(self) -> None:
        """There is something to write; it goes out at the end of the turn."""
        self._broker.touched(self)

    def hang_up(self) -> None:
        """Drop the connection abruptly."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.abort()

    def say_goodbye(self) -> None:
        """Close in an orderly way: the service is stopping."""
        self._connection.condition = AmqpCondition(
            Condition.CONNECTION_FORCED.value, "The service is stopping"
        )
        self._connection.close()
        self.write_out()
        if self._socket is not None:
            self._socket.close()

    def write_out(self) -> None:
        """Write what Proton has to say."""
        if self._socket is None:
            return
        try:
            self._keep_alive()
            while (pending := self._transport.pending()) > 0:
                self._socket.write(bytes(self._transport.peek(pending) or b""))
                self._transport.pop(pending)
        except ProtonException:
            pending = -1
        if pending < 0:
            self._socket.close()

    # Inside

    def _read(self, data: bytes) -> None:
        self.touch()
        while data:
            capacity = self._transport.capacity()
            if capacity <= 0:
                self._transport.close_head()
                return
            self._transport.push(data[:capacity])
            data = data[capacity:]
            self._handle_events()

    def _handle_events(self) -> None:
        for kind, subject in events(self._collector):
            self._handle(kind, subject)

    def _handle(self, kind: EventType, subject: Subject) -> None:
        match kind, subject:
            case Event.DELIVERY, Delivery():
                self._on_delivery(subject)
            case Event.LINK_FLOW, Link():
                self._on_flow(subject)
            case Event.LINK_REMOTE_OPEN, Link():
                self._on_attach(subject)
            case ((Event.LINK_REMOTE_CLOSE | Event.LINK_REMOTE_DETACH), Link()):
                self._on_detach(subject)
            case Event.SESSION_REMOTE_OPEN, Session():
                subject.open()
            case Event.SESSION_REMOTE_CLOSE, Session():
                self._on_end(subject)
            case Event.CONNECTION_REMOTE_OPEN, None:
                self._connection.container = "local-servicebus"
                self._connection.open()
            case Event.CONNECTION_REMOTE_CLOSE, None:
                self._let_go()
                self._connection.close()

    def _on_delivery(self, delivery: Delivery) -> None:
        # What concerns a link that we have detached gets no answer: azure-servicebus takes one for
        # the answer to a request it has sent since, and asks again over the management link anyway.
        # The client's own detaching may have been read already: what it said before still counts.
        link = delivery.link
        end = self._ends.get(link)
        if end is not None and link.state & Endpoint.LOCAL_ACTIVE:
            end.on_delivery(delivery)

    def _on_flow(self, link: Link) -> None:
        end = self._ends.get(link)
        if end is not None and link.state == LINK_OPEN:
            end.on_flow()

    def _on_attach(self, link: Link) -> None:
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        try:
            end = self._attaching.attach(link)
        except Refused as refusal:
            refuse(link, refusal)
            return
        self._ends[link] = end
        end.open()

    def _on_detach(self, link: Link) -> None:
        end = self._ends.pop(link, None)
        if end is not None:
            end.on_closed()
        link.close()
        link.free()  # or Proton keeps it as long as the connection

    def _on_end(self, session: Session) -> None:
        for link in [link for link in self._ends if link.session == session]:
            self._ends.pop(link).on_closed()
        session.close()
        session.free()

    def _let_go(self) -> None:
        ends, self._ends = self._ends, {}
        for end in ends.values():
            end.on_closed()
        if self._heartbeat is not None:
            self._heartbeat.cancel()

    def _keep_alive(self) -> None:
        # A client may ask for empty frames while nothing else is said (part 2, section 2.4.5).
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        loop = asyncio.get_running_loop()
        deadline = self._transport.tick(loop.time())
        if deadline > 0:
            self._heartbeat = loop.call_at(deadline, self.write_out)
