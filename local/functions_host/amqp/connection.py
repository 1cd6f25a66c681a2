"""One AMQP 1.0 connection on the running event loop.

Proton's engine carries the protocol and does no I/O of its own, so it runs as an asyncio protocol:
no thread, and as many links as wanted over one socket.
"""

import asyncio
import time
import uuid
from contextlib import suppress
from typing import Any, Protocol, cast

import cproton  # type: ignore[import-untyped]
import proton

from local.functions_host.amqp.errors import ConnectionLost

END_OF_STREAM = -1
CLOSE_SECONDS = 0.5
# Proton's own wrappers carry no types.
WRAP_DELIVERY: Any = proton.Delivery.wrap
WRAP_EVENT: Any = proton.Event.wrap


class LinkOwner(Protocol):
    """Is told what happens to one link; calls come on the event loop and must not block."""

    def on_attached(self) -> None:
        """The peer attached its side."""

    def on_detached(self, condition: str, description: str) -> None:
        """The link is gone, by the peer's will or with the connection."""

    def on_message(self, delivery: proton.Delivery, content: bytes) -> None:
        """A whole message arrived on a receiver."""

    def on_settled(self, delivery: proton.Delivery) -> None:
        """The peer settled a delivery; its outcome is in `delivery.remote`."""

    def on_flow(self) -> None:
        """The peer told of the link's credit."""


class AmqpConnection(asyncio.Protocol):
    """A client connection; ConnectionLost is what everyone gets once it broke."""

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
        self._owners: dict[str, LinkOwner] = {}
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._socket: asyncio.Transport | None = None
        self._gone = asyncio.Event()
        self._is_flush_due = False
        self._ticker: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, host: str, port: int, timeout_seconds: float = 5.0) -> "AmqpConnection":
        """Connect and shake hands; raises ConnectionLost when that fails or takes too long."""
        loop = asyncio.get_running_loop()
        connection = cls(host)
        try:
            async with asyncio.timeout(timeout_seconds):
                await loop.create_connection(lambda: connection, host, port)
                await connection._opened
        except OSError as error:
            reason = f"{host}:{port}: {error}" if str(error) else f"{host}:{port}: no answer"
            connection._drop(reason)
            raise ConnectionLost(reason) from error
        return connection

    @property
    def is_open(self) -> bool:
        """Whether links can still be attached."""
        return self._socket is not None

    def receiver(self, name: str, owner: LinkOwner) -> proton.Receiver:
        """Make a receiving link; the owner sets its termini and opens it."""
        self._require_open()
        self._owners[name] = owner
        return self._session.receiver(name)

    def sender(self, name: str, owner: LinkOwner) -> proton.Sender:
        """Make a sending link; the owner sets its termini and opens it."""
        self._require_open()
        self._owners[name] = owner
        return self._session.sender(name)

    def forget(self, link: proton.Link) -> None:
        """Detach a link without telling its owner of the end."""
        self._owners.pop(link.name, None)
        if self.is_open:
            link.close()
            self.flush()

    def flush(self) -> None:
        """Send what links and deliveries have changed, once this turn of the loop is over."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._pump)

    async def close(self) -> None:
        """Close in order, as far as the peer plays along; after that just close."""
        if self._socket is None:
            return
        self._connection.close()
        self.flush()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._gone.wait()
        self._drop("closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio connected the socket."""
        self._socket = cast(asyncio.Transport, transport)
        self._tick()

    def data_received(self, data: bytes) -> None:
        """asyncio read from the socket."""
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
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio lost the socket."""
        self._drop(str(exc or "the namespace closed the connection"))

    def on_connection_remote_open(self, event: Any) -> None:  # noqa: ARG002 - Proton's form
        """The peer opened its side."""
        if not self._opened.done():
            self._opened.set_result(None)

    def on_connection_remote_close(self, event: Any) -> None:
        """The peer closes; answer, and be done."""
        condition = event.connection.remote_condition
        event.connection.close()
        self._loop.call_soon(self._drop, f"closed by the namespace: {condition or 'no reason'}")

    def on_link_remote_open(self, event: Any) -> None:
        """The peer attached a link."""
        owner = self._owners.get(event.link.name)
        if owner is not None:
            owner.on_attached()

    def on_link_remote_close(self, event: Any) -> None:
        """The peer detached a link for good."""
        link, condition = event.link, event.link.remote_condition
        owner = self._owners.pop(link.name, None)
        link.close()
        link.free()
        if owner is not None:
            name = condition.name if condition else ""
            owner.on_detached(name, (condition.description or "") if condition else "")

    on_link_remote_detach = on_link_remote_close

    def on_link_flow(self, event: Any) -> None:
        """The peer told how much credit is left, or that it has drained it."""
        owner = self._owners.get(event.link.name)
        if owner is not None:
            owner.on_flow()

    def on_delivery(self, delivery: proton.Delivery) -> None:
        """A message arrived, or the peer changed the state of one."""
        link = delivery.link
        owner = self._owners.get(link.name)
        if link.is_receiver and delivery.readable and not delivery.partial:
            content = link.recv(delivery.pending) or b""
            link.advance()
            if owner is not None:
                owner.on_message(delivery, content)
        if delivery.settled:
            if owner is not None:
                owner.on_settled(delivery)
            delivery.settle()

    def _require_open(self) -> None:
        if self._socket is None:
            raise ConnectionLost("the connection is gone")

    def _dispatch(self) -> None:
        """Handle events; most are deliveries, which go without Proton's costly event objects."""
        while not cproton.isnull(event := cproton.pn_collector_peek(self._collector._impl)):
            if cproton.pn_event_type(event) == cproton.PN_DELIVERY:
                self.on_delivery(WRAP_DELIVERY(cproton.pn_event_delivery(event)))
            else:
                WRAP_EVENT(event).dispatch(self)
            self._collector.pop()

    def _pump(self) -> None:
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
        moment = time.monotonic()
        deadline = self._engine.tick(moment)
        self.flush()
        delay = max(deadline - moment, 0.1) if deadline else 1.0
        self._ticker = self._loop.call_later(delay, self._tick)

    def _drop(self, reason: str) -> None:
        if self._socket is None:
            return
        socket, self._socket = self._socket, None
        socket.close()
        self._gone.set()
        if self._ticker is not None:
            self._ticker.cancel()
        if not self._opened.done():
            self._opened.set_exception(ConnectionLost(reason))
        owners, self._owners = self._owners, {}
        for owner in owners.values():
            owner.on_detached("", reason)


def condition_of(delivery: proton.Delivery) -> tuple[str, str]:
    """The error condition with which the peer rejected a delivery; empty if it names none."""
    condition: Any = delivery.remote.condition
    return (condition.name, condition.description or "") if condition else ("", "")


def tag_of(delivery: proton.Delivery) -> bytes:
    """The tag of a delivery; Proton's own property takes every tag for UTF-8."""
    tag: bytes = cproton.bytes2pybytes(cproton.lib.pn_delivery_tag(delivery._impl))
    return tag
