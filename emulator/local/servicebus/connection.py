"""One client's connection: Proton speaks AMQP, asyncio carries the bytes.

Proton's protocol engine is used without its reactor, whose `select` is limited to 1,024 sockets and
looks at every connection for every event. Its events call methods with the names that Proton's own
handlers have (`on_link_flow`), but each with its subject instead of a `proton.Event`: making that
object wraps the transport, connection, session and link anew, 25 microseconds for each event, and
two thirds of all events only report that there are bytes to write.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from cproton import (  # type: ignore[import-untyped]
    isnull,
    pn_collector_peek,
    pn_decref,
    pn_event_connection,
    pn_event_delivery,
    pn_event_link,
    pn_event_session,
    pn_event_type,
    pn_incref,
)
from proton import (
    Collector,
    Connection,
    Delivery,
    Endpoint,
    Event,
    Link,
    ProtonException,
    Receiver,
    Sender,
    Session,
    Transport,
)

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.amqp.frames import FRAME_BYTES_MAX, FrameReader, write_close
from local.servicebus.amqp.opening import HttpOpened, Opening, OpeningRefused
from local.servicebus.amqp.wire import Wire
from local.servicebus.broker import Broker
from local.servicebus.config import QueueConfig
from local.servicebus.entities.catalog import EntityCatalog
from local.servicebus.entities.entity import MessagingEntity
from local.servicebus.entities.plain_queue import PlainQueue
from local.servicebus.entities.session_queue import SessionQueue
from local.servicebus.entities.topic import Topic
from local.servicebus.links.attach import (
    SESSION_FILTER,
    answer_attach,
    path_of_node,
    read_filters,
)
from local.servicebus.links.endpoint import LinkEndpoint, refuse_link, write_condition
from local.servicebus.links.incoming import MessageIncomingLink
from local.servicebus.links.outgoing import PlainOutgoingLink, SessionOutgoingLink
from local.servicebus.links.request_response import (
    HandleRequest,
    RequestLink,
    ResponseLink,
    ResponseLinks,
)
from local.servicebus.nodes.authorization import KEY, KEY_NAME, SasAuthorization
from local.servicebus.nodes.management import ManagementNode

CBS = "$cbs"
# What becomes of a link where the client allows itself fewer handles than it uses.
UNANSWERABLE = AmqpError(ErrorCondition.NOT_ALLOWED, "The client's own limits leave no answer")
ENDING = Endpoint.LOCAL_CLOSED | Endpoint.REMOTE_CLOSED
LINK_OPEN = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE
EVENTS: dict[Any, tuple[Any, Any]] = {  # those handled, what each is about, how to get that
    Event.CONNECTION_REMOTE_OPEN: (Connection, pn_event_connection),
    Event.CONNECTION_REMOTE_CLOSE: (Connection, pn_event_connection),
    Event.SESSION_REMOTE_OPEN: (Session, pn_event_session),
    Event.SESSION_REMOTE_CLOSE: (Session, pn_event_session),
    Event.LINK_REMOTE_OPEN: (Link, pn_event_link),
    Event.LINK_FLOW: (Link, pn_event_link),
    Event.LINK_REMOTE_CLOSE: (Link, pn_event_link),
    Event.LINK_REMOTE_DETACH: (Link, pn_event_link),
    Event.DELIVERY: (Delivery, pn_event_delivery),
}
HANDLERS: dict[int, tuple[str, Any, Any]] = {  # method, and how to get and wrap its argument
    kind.number: (kind.method, get_subject, subject.wrap)
    for kind, (subject, get_subject) in EVENTS.items()
}


class BrokerConnection(asyncio.Protocol):
    def __init__(
        self,
        broker: Broker,
        catalog: EntityCatalog,
        connected: set["BrokerConnection"],
        serve_http: Callable[[], asyncio.Protocol],
    ) -> None:
        """The connection stays in `connected` until its socket closes or turns out to be HTTP's.

        `serve_http` makes what takes over then.
        """
        self._serve_http = serve_http
        self._broker = broker
        self._catalog = catalog
        self._authorization = SasAuthorization(broker, catalog)
        self._responses: ResponseLinks = {}
        self._connected = connected
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._socket: asyncio.Transport | None = None

        def seconds_under_way() -> float:
            return broker.interceptor.link_seconds

        self._from_client = Wire(seconds_under_way)
        self._to_client = Wire(seconds_under_way)
        self._collector = Collector()
        self._connection = Connection()
        self._connection.collect(self._collector)
        self._transport = Transport(Transport.SERVER)
        self._transport.max_frame_size = FRAME_BYTES_MAX
        self._transport.bind(self._connection)
        self._opening: Opening | None = Opening(KEY_NAME, KEY)
        self._frames = FrameReader()
        self._refusal: AmqpError | None = None  # of the connection, which Proton does not write
        self.is_reading_batch = False
        self._endpoints: dict[Link, LinkEndpoint] = {}
        self._ended: list[Session] = []  # by the client, and not freed yet
        self._heartbeat: asyncio.TimerHandle | None = None

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._socket = transport
        self._connected.add(self)

    def data_received(self, data: bytes, *, has_arrived: bool = False) -> None:
        """Do all that the bytes ask for in one transaction."""
        if not has_arrived and self._is_far(self._from_client):
            self._from_client.carry(lambda: self.data_received(data, has_arrived=True))
            return
        if self._opening is not None:
            first = self._read_opening(self._opening, data)
            if first is None:
                return
            self._opening, data = None, first
        with self._broker.transaction():
            self.request_flush()
            for frames, is_batch in self._frames.read(data):
                self.is_reading_batch = is_batch
                self._push(frames)

    def connection_lost(self, exc: Exception | None, *, has_arrived: bool = False) -> None:
        """Free the sessions that were held over the socket, which is gone.

        Not so when the whole namespace is down: then it does not notice that its clients go, and
        their locks must expire.
        """
        if not has_arrived and self._is_far(self._from_client):
            self._from_client.carry(lambda: self.connection_lost(exc, has_arrived=True))
            return
        self._socket = None
        if self._broker.interceptor.is_down:
            self._endpoints.clear()
        with self._broker.transaction():
            self._close_links()
        self._connected.discard(self)
        self.lost.set_result(None)
        # These are not used again. Reference cycles over this object would keep them, and their
        # buffers outside Python, until the garbage collector runs.
        del self._responses, self._ended, self._collector, self._connection, self._transport

    def _is_far(self, wire: Wire) -> bool:
        """Return whether a fault makes the way long, or something is still under way over it."""
        return bool(wire.under_way) or self._broker.interceptor.link_seconds > 0

    def _write(self, data: bytes | None) -> None:
        """Send bytes to the client; None closes the socket behind them."""
        socket = self._socket
        if socket is None:
            return
        send = socket.close if data is None else partial(socket.write, data)
        if self._is_far(self._to_client):
            self._to_client.carry(send)
        else:
            send()

    def _read_opening(self, opening: Opening, data: bytes) -> bytes | None:
        """The first bytes of AMQP, if the client has come so far."""
        if self._socket is None:
            return None
        try:
            reply, first = opening.read(data)
        except OpeningRefused as refusal:
            self._write(refusal.reply)
            self._write(None)
            return None
        except HttpOpened as opened:
            self._hand_over(self._socket, opened.first)
            return None
        self._write(reply)
        if opening.has_key:
            self._authorization.grant_all()
        return first

    def _hand_over(self, socket: asyncio.Transport, first: bytes) -> None:
        """Let HTTP have the socket, with what the client has sent already."""
        self._connected.discard(self)
        self.lost.set_result(None)
        handler = self._serve_http()
        socket.set_protocol(handler)
        handler.connection_made(socket)
        handler.data_received(first)

    def _push(self, data: bytes) -> None:
        """Let Proton read, and handle its events."""
        while data and (capacity := self._transport.capacity()) > 0:
            self._transport.push(data[:capacity])
            data = data[capacity:]
            while not isnull(event := pn_collector_peek(self._collector._impl)):
                handler = HANDLERS.get(pn_event_type(event))
                if handler is not None:
                    method, get_subject, wrap = handler
                    getattr(self, method)(wrap(get_subject(event)))
                self._collector.pop()
            self._free_ended()
        is_ending = self._transport.condition or self._connection.state & ENDING
        if self._transport.capacity() < 0 and not is_ending:
            # Proton reads no more, and neither says why nor lets us close with a condition.
            if self._connection.state & Endpoint.LOCAL_UNINIT:
                self.on_connection_remote_open(self._connection)
            self._refusal = AmqpError(ErrorCondition.DECODE_ERROR, "A frame cannot be read")

    def _free_ended(self) -> None:
        """Free the sessions that have ended, or Proton keeps them as long as the connection.

        Not while anything here holds a link or a delivery of one, as an operation that a fault
        delays does: letting go of it last, Proton would free its memory twice.
        """
        ended, self._ended = self._ended, []
        for session in ended:
            if pn_decref(pn_incref(session._impl)) > 1:  # the references there are, ours among them
                self._ended.append(session)
            else:
                session.free()

    # Called by links and the listener

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def request_flush(self) -> None:
        self._broker.flush_after_commit(self)

    def abort(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.abort()

    def close(self) -> None:
        stopping = AmqpError(ErrorCondition.CONNECTION_FORCED, "The service is stopping")
        self._connection.condition = write_condition(stopping)
        self._connection.close()
        self.flush()
        self._write(None)

    def refuse_links(self, refuse: Callable[[str], None]) -> None:
        """Detach the links to each path for which `refuse` raises an AmqpError."""
        for link in [one for one in self._endpoints if not one.state & Endpoint.LOCAL_CLOSED]:
            try:
                refuse(path_of_node(link))
            except AmqpError as refusal:
                refuse_link(link, refusal)
                self.request_flush()

    def flush(self) -> None:
        """Write what Proton has to send, now and whenever a heartbeat is due."""
        if self._socket is None:
            return
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        try:
            # A client may ask for empty frames while nothing else is sent (part 2, section 2.4.5).
            loop = asyncio.get_running_loop()
            deadline = self._transport.tick(loop.time())
            if deadline > 0:
                self._heartbeat = loop.call_at(deadline, self.flush)
            while (pending := self._transport.pending()) > 0:
                pushed = bytes(self._transport.peek(pending) or b"")
                self._write(self._frames.write(pushed))
                self._transport.pop(pending)
        except ProtonException:
            pending = -1
        is_over = pending < 0 or self._connection.state & Endpoint.REMOTE_CLOSED
        if is_over or self._refusal is not None:
            if not self._frames.is_closed:  # Proton gives up without a word
                refusal = self._refusal or UNANSWERABLE
                self._write(write_close(refusal.condition.value, refusal.description))
            self._write(None)

    # Called for Proton's events

    def on_connection_remote_open(self, connection: Connection) -> None:
        connection.container = "local-servicebus"
        connection.open()

    def on_connection_remote_close(self, connection: Connection) -> None:
        self._close_links()
        connection.close()

    def on_session_remote_open(self, session: Session) -> None:
        session.open()

    def on_session_remote_close(self, session: Session) -> None:
        for link in [link for link in self._endpoints if link.session == session]:
            self._endpoints.pop(link).on_link_closed()
        session.close()
        self._ended.append(session)

    def on_link_remote_open(self, link: Link) -> None:
        try:
            answer_attach(link)
            endpoint = self._attach(link)
        except AmqpError as refusal:
            refuse_link(link, refusal)
        else:
            self._endpoints[link] = endpoint
            endpoint.open()

    def on_link_remote_close(self, link: Link) -> None:
        endpoint = self._endpoints.pop(link, None)
        if endpoint is not None:
            endpoint.on_link_closed()
        link.close()
        link.free()  # or Proton keeps it as long as the connection

    on_link_remote_detach = on_link_remote_close

    def on_link_flow(self, link: Link) -> None:
        endpoint = self._endpoints.get(link)
        if endpoint is not None and link.state == LINK_OPEN:
            endpoint.on_link_flow()

    def on_delivery(self, delivery: Delivery) -> None:
        # A delivery on a link that the broker has detached is not answered: azure-servicebus would
        # take the answer for that to a request it has sent since, and asks again over the
        # management link anyway. If it is the client that has detached, what it sent before counts.
        link = delivery.link
        endpoint = self._endpoints.get(link)
        if endpoint is not None and link.state & Endpoint.LOCAL_ACTIVE:
            endpoint.on_delivery(delivery)

    def _attach(self, link: Link) -> LinkEndpoint:
        """The endpoint for a link; refused when there is no such node, or it cannot do that."""
        path = path_of_node(link)
        if path.lower() == CBS:
            return self._attach_request_link(link, self._authorization.handle_request)
        self._authorization.check(path)
        self._broker.interceptor.refuse_dead(path)
        entity, is_management = self._catalog.find_node(path)
        if is_management:
            management = ManagementNode(entity, self._broker, self)
            return self._attach_request_link(link, management.handle_request)
        if link.is_sender:
            return self._attach_outgoing(cast(Sender, link), entity)
        if not entity.takes_messages:
            description = f"Nothing can be sent to {entity.kind.value}"
            raise AmqpError(ErrorCondition.NOT_ALLOWED, description)
        return MessageIncomingLink(cast(Receiver, link), entity, self._broker, self)

    def _attach_request_link(self, link: Link, handle_request: HandleRequest) -> LinkEndpoint:
        if link.is_sender:
            return ResponseLink(cast(Sender, link), self._responses)
        return RequestLink(cast(Receiver, link), handle_request, self._responses)

    def _attach_outgoing(self, link: Sender, entity: MessagingEntity) -> LinkEndpoint:
        # A session is asked for by name or, by a null filter, any one.
        match entity, SESSION_FILTER in read_filters(link):
            case PlainQueue(config=QueueConfig(forward_to=str())), _:
                reason = "Nothing can be received from an entity with auto-forwarding enabled"
            case SessionQueue() as queue, True:
                return SessionOutgoingLink(link, queue, self._broker, self)
            case PlainQueue() as queue, False:
                return PlainOutgoingLink(link, queue, self._broker, self)
            case Topic(), _:
                reason = "A topic cannot be received from, but its subscriptions"
            case SessionQueue() as queue, False:
                reason = f"{queue.name} requires sessions: a receiver must ask for one"
            case _:
                reason = "There are no sessions in this entity"
        raise AmqpError(ErrorCondition.NOT_ALLOWED, reason)

    def _close_links(self) -> None:
        endpoints, self._endpoints = self._endpoints, {}
        for endpoint in endpoints.values():
            endpoint.on_link_closed()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
