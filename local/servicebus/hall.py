"""The hall of a namespace: its entities, its listener and everybody connected, on one loop."""

import asyncio
import sqlite3
from contextlib import suppress

from local.counters import Counters
from local.faults import Faults
from local.loopback import PortTaken
from local.servicebus.broker import Broker
from local.servicebus.config import NamespaceConfig
from local.servicebus.connection import Connection
from local.servicebus.directory import Directory
from local.servicebus.inbox import Inbox
from local.servicebus.ledger import Ledger
from local.servicebus.opening import Opening

BEAT_SECONDS = 0.05  # how late an expiry, a schedule or a fault may be noticed
GOODBYE_SECONDS_MAX = 0.5  # how long clients may take to notice that the service stops


class Hall:
    """Used on its loop's thread only."""

    def __init__(
        self, config: NamespaceConfig, faults: Faults, counters: Counters, ledger: Ledger
    ) -> None:
        """Open every declared entity with what the ledger kept of it."""
        self._name = f"servicebus.{config.name}"
        self._ledger = ledger
        self._broker = Broker(self._name, faults=faults, counters=counters, ledger=ledger)
        self._entities = Opening(self._broker.gate, ledger).entities(config)
        self._directory = Directory(self._entities)
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self._address = ("", 0)
        self._empty: asyncio.Future[None] | None = None  # awaited while closing

    def store(self, name: str) -> Inbox:
        """What the entity of that name holds; raises KeyError if there is none."""
        for entity in self._entities:
            if entity.name.lower() == name.lower():
                return entity.store
        raise KeyError(name)

    async def listen(self, host: str, port: int) -> int:
        """Let clients in; returns the port. Raises PortTaken."""
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(self._connection, host, port)
        except OSError as error:
            raise PortTaken(port, self._name) from error
        self._address = self._listener.sockets[0].getsockname()[:2]
        return self._address[1]

    async def beat(self) -> None:
        """Let time pass, and follow the faults, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                self._broker.turn(self._advance)
            except (OSError, sqlite3.Error) as error:  # a full disk: the next beat tries again
                loop.call_exception_handler({"message": self._name, "exception": error})
            if self._broker.gate.is_down != (self._listener is None):
                await self._follow_fault()

    async def close(self) -> None:
        """Say goodbye to everybody and keep what there is to keep."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.say_goodbye()
        loop = asyncio.get_running_loop()
        self._empty = loop.create_future()
        self._leave_if_empty()
        await asyncio.wait([self._empty], timeout=GOODBYE_SECONDS_MAX)
        for connection in list(self._connections):
            connection.hang_up()
        await asyncio.sleep(0)
        self._ledger.close()

    async def _follow_fault(self) -> None:
        if self._listener is None:
            with suppress(PortTaken):  # by somebody who asked for its number: the next beat tries
                await self.listen(*self._address)
            return
        self._listener.close()
        self._listener = None
        for entity in self._entities:
            entity.forget_waiting()
        for connection in list(self._connections):
            connection.hang_up()

    def _advance(self) -> None:
        now = self._broker.now()
        for entity in self._entities:
            entity.advance(now)

    def _connection(self) -> Connection:
        return Connection(
            self._broker,
            self._directory,
            opened=self._connections.add,
            closed=self._on_closed,
        )

    def _on_closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._leave_if_empty()

    def _leave_if_empty(self) -> None:
        if self._empty is not None and not self._connections and not self._empty.done():
            self._empty.set_result(None)
