"""The way to a namespace: one connection, made when needed and again after it broke."""

import asyncio
import logging
from itertools import count

from local.functions_host.amqp.address import NamespaceAddress
from local.functions_host.amqp.connection import AmqpConnection
from local.functions_host.amqp.errors import ConnectionLost, RequestRefused
from local.functions_host.amqp.plain import PlainReceiver
from local.functions_host.amqp.requests import RequestNode
from local.functions_host.amqp.session import Session

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0


class Entity:
    """A queue or subscription as one receiver host sees it; safe for many tasks at once."""

    def __init__(self, address: NamespaceAddress, entity: str, prefetch: int) -> None:
        self._address = address
        self._entity = entity
        self._prefetch = prefetch
        self._connecting = asyncio.Lock()
        self._connection: AmqpConnection | None = None
        self._management: RequestNode | None = None
        self._links = count(1)
        self._is_down = False

    async def accept_next(self, wait_seconds: float) -> Session | None:
        """Take the next free session; None if none came free in time.

        While the namespace is down this waits and tries again, without end. A queue that refuses
        raises RequestRefused; a connection that breaks meanwhile raises ConnectionLost.
        """
        connection, management = await self._connected()
        name = f"receiver-{next(self._links)}"
        session = Session(connection, management, self._entity, name, self._prefetch)
        try:
            accepted = await session.accept_next(wait_seconds)
        except asyncio.CancelledError:
            session.release()
            raise
        return session if accepted else None

    async def open_plain(self) -> PlainReceiver:
        """Begin to receive without sessions; waits and raises as `accept_next` does."""
        connection, management = await self._connected()
        name = f"receiver-{next(self._links)}"
        receiver = PlainReceiver(connection, management, self._entity, name, self._prefetch)
        await receiver.attach()
        return receiver

    async def close(self) -> None:
        """Close the connection, and with it every session still held."""
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self) -> tuple[AmqpConnection, RequestNode]:
        async with self._connecting:
            pause = FIRST_PAUSE_SECONDS
            while True:
                if self._connection and self._connection.is_open:
                    return self._connection, self._manage(self._connection)
                try:
                    await self._connect()
                except (ConnectionLost, RequestRefused) as error:
                    self._say_down(error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _connect(self) -> None:
        address = self._address
        connection = await AmqpConnection.open(address.host, address.port)
        try:
            await self._put_token(connection)
        except (ConnectionLost, RequestRefused):
            await connection.close()
            raise
        self._connection, self._management = connection, None
        self._is_down = False
        log.info("connected to %s:%d", address.host, address.port)

    def _manage(self, connection: AmqpConnection) -> RequestNode:
        """The way to renew locks; a namespace may close it when it lies idle for long."""
        if self._management is None or not self._management.is_open:
            self._management = RequestNode(connection, f"{self._entity}/$management")
        return self._management

    async def _put_token(self, connection: AmqpConnection) -> None:
        properties = {
            "operation": "put-token",
            "name": self._address.audience(self._entity),
            "type": "servicebus.windows.net:sastoken",
        }
        tokens = RequestNode(connection, "$cbs")
        await tokens.ask(properties, self._address.token(self._entity))
        tokens.close()

    def _say_down(self, error: Exception) -> None:
        if not self._is_down:
            self._is_down = True
            log.warning("the namespace is down, trying on: %s", error)
