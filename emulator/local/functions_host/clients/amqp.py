"""One AMQP 1.0 connection on the running event loop, and requests over it.

Proton's engine (Connection, Transport, Collector) carries the protocol and does no I/O of its own,
so it runs as an asyncio protocol: no thread, and as many links as wanted over one socket.
"""

import asyncio
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any, cast

import cproton  # type: ignore[import-untyped]
import proton

END_OF_STREAM = -1
CLOSE_SECONDS = 0.5
RESPONSE_SECONDS = 10.0


class ConnectionLost(Exception):
    """The namespace cannot be reached, or the connection to it broke."""


class RequestRefused(Exception):
    """The namespace answered with an error condition."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition


class LockLost(Exception):
    """The session, or the lock of one of its messages, is no longer ours."""


class LinkListener:
    """The calls when something happens to one link, on the event loop; they must not block."""

    def on_attached(self) -> None:
        """The peer attached its side."""

    def on_detached(self, condition: str, description: str) -> None:
        """The link is gone, by the peer's will or with the connection."""

    def on_message(self, delivery: proton.Delivery, content: bytes) -> None:
        """A whole message arrived on a receiver."""

    def on_settled(self, delivery: proton.Delivery) -> None:
        """The peer settled a delivery; its outcome is in `delivery.remote`."""

    def on_flow(self) -> None:
        """The peer sent the state of the link's credit."""


class AmqpClient(asyncio.Protocol, proton.Handler):
    """A client connection; once it broke, everyone who uses it gets ConnectionLost.

    The `on_...` methods are called by Proton's event dispatch, which finds them by name.
    """

    def __init__(self, hostname: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._collector = proton.Collector()
        self._connection = proton.Connection()
        self._connection.container = f"functions-host-{uuid.uuid4()}"
        self._connection.hostname = hostname
        self._connection.collect(self._collector)
        self._engine = proton.Transport()
        self._engine.sasl().allowed_mechs("ANONYMOUS")
        self._engine.bind(self._connection)
        self._connection.open()
        self._session = self._connection.session()
        self._session.open()
        self._listeners: dict[str, LinkListener] = {}
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._socket: asyncio.Transport | None = None
        self._dropped = asyncio.Event()
        self._is_flush_due = False
        self._ticker: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, host: str, port: int, timeout_seconds: float = 5.0) -> "AmqpClient":
        """Connect and shake hands; raises ConnectionLost when that fails or takes too long."""
        client = cls(host)
        try:
            async with asyncio.timeout(timeout_seconds):
                await client._loop.create_connection(lambda: client, host, port)
                await client._opened
        except OSError as error:
            reason = f"{host}:{port}: {error}" if str(error) else f"{host}:{port}: no answer"
            client._drop(reason)
            raise ConnectionLost(reason) from error
        return client

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def receiver(self, name: str, listener: LinkListener) -> proton.Receiver:
        """Make a receiving link; the caller sets its termini and opens it."""
        self._add_link(name, listener)
        return self._session.receiver(name)

    def sender(self, name: str, listener: LinkListener) -> proton.Sender:
        """Make a sending link; the caller sets its termini and opens it."""
        self._add_link(name, listener)
        return self._session.sender(name)

    def _add_link(self, name: str, listener: LinkListener) -> None:
        if self._socket is None:
            raise ConnectionLost("the connection is gone")
        self._listeners[name] = listener

    def detach(self, link: proton.Link) -> None:
        """Detach a link; its listener is not called any more."""
        self._listeners.pop(link.name, None)
        if self.is_open:
            link.close()
            self.flush()

    def flush(self) -> None:
        """Send what links and deliveries have changed, once this turn of the loop is over."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._write)

    async def close(self) -> None:
        """Close in order, as far as the peer plays along; after that just close."""
        if self._socket is None:
            return
        self._connection.close()
        self.flush()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._dropped.wait(), CLOSE_SECONDS)
        self._drop("closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._tick()

    def data_received(self, data: bytes) -> None:
        try:
            while data:
                capacity = self._engine.capacity()
                if capacity <= 0:
                    break
                self._engine.push(data[:capacity])
                data = data[capacity:]
                self._dispatch()
        except proton.ProtonException as error:
            self._drop(f"protocol error: {error}")
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop(str(exc or "the namespace closed the connection"))

    def on_connection_remote_open(self, event: Any) -> None:  # noqa: ARG002 - Proton's form
        if not self._opened.done():
            self._opened.set_result(None)

    def on_connection_remote_close(self, event: Any) -> None:
        """The peer closes: close this side, too, and drop the socket when that is written."""
        condition = event.connection.remote_condition
        event.connection.close()
        self._loop.call_soon(self._drop, f"closed by the namespace: {condition or 'no reason'}")

    def on_link_remote_open(self, event: Any) -> None:
        if (listener := self._listeners.get(event.link.name)) is not None:
            listener.on_attached()

    def on_link_remote_close(self, event: Any) -> None:
        link, condition = event.link, event.link.remote_condition
        listener = self._listeners.pop(link.name, None)
        link.close()
        link.free()
        if listener is not None:
            listener.on_detached(*texts_of(condition))

    on_link_remote_detach = on_link_remote_close

    def on_link_flow(self, event: Any) -> None:
        if (listener := self._listeners.get(event.link.name)) is not None:
            listener.on_flow()

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        listener = self._listeners.get(link.name)
        if link.is_receiver and delivery.readable and not delivery.partial:
            content = link.recv(delivery.pending) or b""
            link.advance()
            if listener is not None:
                listener.on_message(delivery, content)
        if delivery.settled:
            if listener is not None:
                listener.on_settled(delivery)
            delivery.settle()

    def _dispatch(self) -> None:
        while (event := self._collector.peek()) is not None:
            event.dispatch(self)
            self._collector.pop()

    def _write(self) -> None:
        """Hand the engine's output to the socket, and handle the events that makes."""
        self._is_flush_due = False
        self._dispatch()
        while self._socket is not None and (size := self._engine.pending()) > 0:
            content = self._engine.peek(size) or b""
            self._engine.pop(size)
            self._socket.write(content)
            self._dispatch()
        if self._socket is not None and self._engine.pending() == END_OF_STREAM:
            self._socket.close()

    def _tick(self) -> None:
        """Let the engine send heartbeats and notice a silent peer."""
        if self._socket is None:
            return
        now = time.monotonic()
        deadline = self._engine.tick(now)
        self.flush()
        delay = max(deadline - now, 0.1) if deadline else 1.0
        self._ticker = self._loop.call_later(delay, self._tick)

    def _drop(self, reason: str) -> None:
        """Close the socket and call every listener; a second call does nothing."""
        if self._socket is None:
            return
        socket, self._socket = self._socket, None
        socket.close()
        self._dropped.set()
        if self._ticker is not None:
            self._ticker.cancel()
        if not self._opened.done():
            self._opened.set_exception(ConnectionLost(reason))
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener.on_detached("", reason)


def texts_of(condition: proton.Condition | None) -> tuple[str, str]:
    return (condition.name, condition.description or "") if condition else ("", "")


def tag_of(delivery: proton.Delivery) -> bytes:
    """The tag of a delivery, which Service Bus makes the lock token.

    This reaches below Proton's public classes: their only way to it, `Delivery.tag`, decodes every
    tag as UTF-8, and the 16 bytes of a UUID are none.
    """
    tag: bytes = cproton.bytes2pybytes(cproton.lib.pn_delivery_tag(delivery._impl))
    return tag


class RequestClient(LinkListener):
    """A pair of links to one node: requests go out, responses come back by correlation id.

    The nodes are `$cbs` for tokens and `<entity>/$management` for locks.
    """

    def __init__(self, client: AmqpClient, node: str) -> None:
        reply_to = f"{node}-{uuid.uuid4()}"
        self._client = client
        self._reply_to = reply_to
        self._ids = count(1)
        self._waiting: dict[str, asyncio.Future[proton.Message]] = {}
        self.is_open = True
        self._sender = client.sender(f"{reply_to}-out", self)
        self._sender.source.address = reply_to
        self._sender.target.address = node
        self._receiver = client.receiver(f"{reply_to}-in", self)
        self._receiver.source.address = node
        self._receiver.target.address = reply_to
        self._sender.open()
        self._receiver.open()
        self._receiver.flow(100)
        client.flush()

    async def request(self, properties: Mapping[str, Any], body: Any) -> Any:
        """Send one request and return the body of its response.

        Raises RequestRefused on a status outside 200..299, ConnectionLost when no response comes.
        """
        if not self.is_open:
            raise ConnectionLost("the links to the node are gone")
        request_id = str(next(self._ids))
        response = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        sent = dict(properties)
        request = proton.Message(id=request_id, reply_to=self._reply_to, properties=sent, body=body)
        self._sender.send(request)  # the engine keeps it until the link is attached and has credit
        self._client.flush()
        try:
            return body_of(await asyncio.wait_for(response, RESPONSE_SECONDS))
        except TimeoutError as error:
            raise ConnectionLost(f"no answer to {properties['operation']}") from error
        finally:
            self._waiting.pop(request_id, None)

    def close(self) -> None:
        self.is_open = False
        self._client.detach(self._sender)
        self._client.detach(self._receiver)

    def on_detached(self, condition: str, description: str) -> None:
        self.is_open = False
        for response in self._waiting.values():
            if not response.done():
                response.set_exception(ConnectionLost(f"{condition} {description}".strip()))

    def on_message(self, delivery: proton.Delivery, content: bytes) -> None:
        response = proton.Message()
        response.decode(content)
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
        self._receiver.flow(1)
        waiting = self._waiting.get(str(response.correlation_id))
        if waiting is not None and not waiting.done():
            waiting.set_result(response)


def body_of(response: proton.Message) -> Any:
    """Return a response's body, or raise RequestRefused.

    The status has one name at `$cbs` and another at `$management`.
    """
    properties: dict[str, Any] = dict(response.properties or {})
    status = int(properties.get("statusCode", properties.get("status-code", 500)))
    if not 200 <= status < 300:
        description = properties.get("statusDescription", properties.get("status-description"))
        condition = properties.get("errorCondition", properties.get("error-condition", status))
        raise RequestRefused(str(condition), str(description))
    return response.body
