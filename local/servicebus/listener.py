"""The listener of a namespace: its socket, everybody connected, and its clock, on one loop."""

import asyncio
import sqlite3
from contextlib import suppress

from local.counters import Counters
from local.faults import Faults
from local.loopback import PortTaken
from local.servicebus.broker import Broker
from local.servicebus.config import NamespaceConfig
from local.servicebus.entities.catalog import EntityCatalog
from local.servicebus.entities.store import MessageStore
from local.servicebus.protocol.connection import BrokerConnection

TICK_SECONDS = 0.05  # how late an expiry, a schedule or a fault may be noticed
CLOSE_SECONDS_MAX = 0.5  # how long clients may take to notice that the service stops


class AmqpListener:
    """Used on its loop's thread only."""

    def __init__(
        self, config: NamespaceConfig, faults: Faults, counters: Counters, store: MessageStore
    ) -> None:
        """Open every declared entity with what the store has of it."""
        self._name = f"servicebus.{config.name}"
        self._store = store
        self._broker = Broker(self._name, faults=faults, counters=counters, store=store)
        interceptor = self._broker.interceptor
        self.catalog = EntityCatalog(config, store, lambda: interceptor.count("expire-lock"))
        self._connections: set[BrokerConnection] = set()
        self._server: asyncio.Server | None = None
        self._address = ("", 0)
        self._clock: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int) -> int:
        """Let clients in; returns the port. Raises PortTaken."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: BrokerConnection(self._broker, self.catalog, self._connections), host, port
            )
        except OSError as error:
            raise PortTaken(port, self._name) from error
        self._address = self._server.sockets[0].getsockname()[:2]
        if self._clock is None:
            self._clock = asyncio.create_task(self._run_clock())
        return self._address[1]

    async def _run_clock(self) -> None:
        """Run timers, and follow faults that take the namespace down, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                with self._broker.transaction():
                    now = self._broker.now()
                    for entity in self.catalog.entities:
                        if entity.run_timers(now):
                            entity.dispatch(now)
            except (OSError, sqlite3.Error) as error:  # a full disk: the next tick tries again
                loop.call_exception_handler({"message": self._name, "exception": error})
            is_down = self._broker.interceptor.is_down
            if is_down and self._server is not None:
                self._go_down(self._server)
            elif not is_down and self._server is None:
                with suppress(PortTaken):  # taken meanwhile: the next tick tries again
                    await self.listen(*self._address)

    async def close(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            lost = [connection.lost for connection in self._connections]
            await asyncio.wait(lost, timeout=CLOSE_SECONDS_MAX)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)
        self._store.close()

    def _go_down(self, server: asyncio.Server) -> None:
        server.close()
        self._server = None
        for entity in self.catalog.entities:
            entity.remove_waiting_links()
        for connection in list(self._connections):
            connection.abort()
