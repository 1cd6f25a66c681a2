"""A Service Bus namespace on one TCP port, for the real SDKs to connect to.

Promised: with `data_dir`, what was acknowledged to a client (a send, a settlement, a session's
state, a rule) is there again after a stop or a kill of the process; locks are not. Without it, the
content ends with `stop`.

Not promised: secrecy (the one key is known to everybody), transactions, SQL filters.
"""

import asyncio
import sqlite3
from contextlib import ExitStack, suppress
from pathlib import Path

from aiohttp import web

from local.counters import Counters
from local.faults import LINK_ACTIONS, Faults, Target, lies_below
from local.loopback import HOST, LoopThread, PortTaken, held_port
from local.servicebus.admin_api.administration import Administration
from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.amqp.message_format import read_message
from local.servicebus.broker import OPERATIONS, Broker
from local.servicebus.config import NamespaceConfig
from local.servicebus.connection import BrokerConnection
from local.servicebus.entities.catalog import EntityCatalog
from local.servicebus.entities.entity import EntityKind
from local.servicebus.entities.queue import Queue
from local.servicebus.entities.sqlite_store import SqliteMessageStore
from local.servicebus.entities.store import MessageStore
from local.servicebus.message import DEAD_LETTERED
from local.servicebus.nodes.authorization import KEY, KEY_NAME

TICK_SECONDS = 0.05  # how late an expiry, a schedule or a fault may be noticed
CLOSE_SECONDS_MAX = 0.5  # how long clients may take to notice that the service stops


class Namespace:
    """One namespace; it may be started again after it was stopped."""

    def __init__(
        self,
        config: NamespaceConfig,
        *,
        port: int,
        faults: Faults,
        counters: Counters,
        host: str = HOST,
        data_dir: Path | None = None,
    ) -> None:
        """Port 0 picks a free one when it starts. Content is kept in `data_dir`, if given."""
        self.config = config
        self.host = host
        self.port = port
        self._faults = faults
        self._counters = counters
        self._data_dir = data_dir
        self._name = f"servicebus.{config.name}"
        self._thread: LoopThread | None = None
        self._held_port = ExitStack()
        self._listener: AmqpListener

    @property
    def connection_string(self) -> str:
        return (
            f"Endpoint=sb://{self.host}:{self.port};SharedAccessKeyName={KEY_NAME};"
            f"SharedAccessKey={KEY};UseDevelopmentEmulator=true"
        )

    def start(self) -> None:
        """Return when clients can connect; raises PortTaken."""
        if self._thread is not None:
            raise RuntimeError(f"namespace {self.config.name} is already running")
        thread = LoopThread(self._name)
        try:
            self.port = thread.run(self._open())
        except BaseException:
            thread.end()
            raise
        self._thread = thread

    def stop(self) -> None:
        """Close every connection and the store; a second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._close())
            finally:
                thread.end()

    def targets(self) -> list[Target]:
        """Return what faults may hit: the entities are those that the namespace has now.

        Before it runs they are the declared queues and topics.
        """
        declared = [queue.name for queue in self.config.queues]
        declared += [topic.name for topic in self.config.topics]
        held = frozenset(self.entities() if self._thread else declared)
        return [Target(self._name, OPERATIONS, states=LINK_ACTIONS, entities=held)]

    def entities(self) -> list[str]:
        """The paths of all queues, topics and subscriptions."""
        if self._thread is None:
            raise RuntimeError(f"namespace {self.config.name} is not running")
        return self._thread.run(self._list_entities())

    def depth(self, entity: str) -> dict[str, int]:
        """Messages by state; raises KeyError for an unknown entity.

        An entity is a queue, a topic (its scheduled messages), or `topic/Subscriptions/name`.
        The keys are active, scheduled, locked, deferred and dead_lettered. May be called from any
        thread while the namespace runs.
        """
        if self._thread is None:
            raise RuntimeError(f"namespace {self.config.name} is not running")
        return self._thread.run(self._count_messages(entity))

    def contents(self, entity: str) -> list[dict[str, str | int | None]]:
        """Session, id, state and failed deliveries of every message of an entity.

        Raises KeyError for an unknown one. Dead letters come last, in the state dead_lettered.
        Nothing is locked by it, and it may be called from any thread while the namespace runs.
        """
        if self._thread is None:
            raise RuntimeError(f"namespace {self.config.name} is not running")
        return self._thread.run(self._list_messages(entity))

    async def _open(self) -> int:
        store = MessageStore()
        if self._data_dir is not None:
            store = SqliteMessageStore(self._data_dir / f"servicebus-{self.config.name}.sqlite")
        self._listener = AmqpListener(self.config, self._faults, self._counters, store)
        try:
            # Held, because nobody listens on it while the namespace is down.
            port = self._held_port.enter_context(held_port(self.port, self._name, self.host))
            return await self._listener.listen(self.host, port)
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        with self._held_port:
            await self._listener.close()

    async def _list_entities(self) -> list[str]:
        kinds = (EntityKind.QUEUE, EntityKind.TOPIC, EntityKind.SUBSCRIPTION)
        return [one.name for one in self._listener.catalog.entities if one.kind in kinds]

    async def _count_messages(self, entity: str) -> dict[str, int]:
        return self._listener.catalog.find(entity).depth()

    async def _list_messages(self, entity: str) -> list[dict[str, str | int | None]]:
        found = self._listener.catalog.find(entity)
        stored = [(one, one.state.value) for one in found.index.browse(0)]
        if isinstance(found, Queue) and found.dead_letters is not None:
            stored += [(one, DEAD_LETTERED) for one in found.dead_letters.index.browse(0)]
        return [
            {
                "session": one.message.session_id,
                # A message that was stored is kept as the bytes that were sent, and nothing beside.
                "id": read_message(one.message.encoded).message_id,
                "state": state,
                "deliveries": one.delivery_count,
            }
            for one, state in stored
        ]


class AmqpListener:
    """A namespace's socket, everybody connected, and its clock; used on its loop's thread only."""

    def __init__(
        self, config: NamespaceConfig, faults: Faults, counters: Counters, store: MessageStore
    ) -> None:
        self._name = f"servicebus.{config.name}"
        self._store = store
        self._broker = Broker(self._name, faults=faults, counters=counters, store=store)
        interceptor = self._broker.interceptor
        self.catalog = EntityCatalog(
            config,
            store,
            count_expired_lock=lambda: interceptor.count("expire-lock"),
            admit_forwarded=interceptor.admit_forwarded,
        )
        self._connections: set[BrokerConnection] = set()
        self._administration = Administration(config.name, self._broker, self.catalog, self._detach)
        self._http: web.Server | None = None
        self._server: asyncio.Server | None = None
        self._address = ("", 0)
        self._clock: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int) -> int:
        """Let clients in; returns the port. Raises PortTaken."""
        loop = asyncio.get_running_loop()
        http = self._http = self._http or web.Server(self._administration.handle, access_log=None)

        def connect() -> BrokerConnection:
            return BrokerConnection(self._broker, self.catalog, self._connections, http)

        try:
            self._server = await loop.create_server(connect, host, port)
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
                    for connection in self._connections:
                        connection.refuse_links(self._broker.interceptor.refuse_dead)
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
        if self._http is not None:
            self._http.pre_shutdown()
            await self._http.shutdown(timeout=CLOSE_SECONDS_MAX)
        await asyncio.sleep(0)
        self._store.close()

    def _detach(self, name: str) -> None:
        """End the links to an entity that is no more."""

        def refuse(path: str) -> None:
            if lies_below(path, name):
                description = f"The messaging entity {path!r} was removed"
                raise AmqpError(ErrorCondition.NOT_FOUND, description)

        for connection in self._connections:
            connection.refuse_links(refuse)

    def _go_down(self, server: asyncio.Server) -> None:
        server.close()
        self._server = None
        for entity in self.catalog.entities:
            entity.remove_waiting_links()
        for connection in list(self._connections):
            connection.abort()
        for handler in self._http.connections if self._http else ():
            handler.force_close()
