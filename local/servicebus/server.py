"""A Service Bus namespace on one TCP port, for the real SDKs to connect to.

Promised: with `data_dir`, what was acknowledged to a client (a send, a settlement, a session's
state, a rule) is there again after a stop or a kill of the process; locks are not. Without it, the
content ends with `stop`.

Not promised: secrecy (the one key is known to everybody), transactions, SQL filters, forwarding.
"""

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path

from local.counters import Counters
from local.faults import Faults
from local.loopback import HOST, held_port
from local.servicebus.broker import OPERATIONS
from local.servicebus.config import NamespaceConfig
from local.servicebus.entities.sqlite_store import SqliteMessageStore
from local.servicebus.entities.store import MessageStore
from local.servicebus.listener import AmqpListener
from local.servicebus.protocol.authorization import KEY, KEY_NAME
from local.targets import Target

STOP_SECONDS_MAX = 30.0
DEPTH_SECONDS_MAX = 30.0


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
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._listener: AmqpListener | None = None

    @property
    def connection_string(self) -> str:
        """What the SDKs take."""
        return (
            f"Endpoint=sb://{self.host}:{self.port};SharedAccessKeyName={KEY_NAME};"
            f"SharedAccessKey={KEY};UseDevelopmentEmulator=true"
        )

    def start(self) -> None:
        """Return when clients can connect; raises PortTaken."""
        if self._thread is not None:
            raise RuntimeError(f"namespace {self.config.name} is already running")
        listening: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(listening)), name=self._name, daemon=True
        )
        self._thread.start()
        try:
            self.port = listening.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            raise

    def stop(self) -> None:
        """Close every connection and the store; a second call does nothing."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None or loop is None or stopping is None:
            return
        loop.call_soon_threadsafe(stopping.set)
        thread.join(STOP_SECONDS_MAX)
        if thread.is_alive():
            raise RuntimeError(f"{self._name} does not stop")
        self._thread = None

    def targets(self) -> list[Target]:
        """What faults can hit."""
        return [Target(self._name, OPERATIONS)]

    def depth(self, entity: str) -> dict[str, int]:
        """Messages by state; raises KeyError for an unknown entity.

        An entity is a queue, a topic (its scheduled messages), or `topic/Subscriptions/name`.
        The keys are active, scheduled, locked, deferred and dead_lettered. May be called from any
        thread while the namespace runs.
        """
        loop, listener = self._loop, self._listener
        if self._thread is None or loop is None or listener is None:
            raise RuntimeError(f"namespace {self.config.name} is not running")
        found = listener.catalog.find_entity(entity)
        depth: Future[dict[str, int]] = Future()
        loop.call_soon_threadsafe(lambda: depth.set_result(found.depth()))
        return depth.result(DEPTH_SECONDS_MAX)

    async def _run(self, listening: Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            # Held, because nobody listens on it while the namespace is down.
            with held_port(self.port, self._name, self.host) as port:
                await self._serve(port, listening, self._stopping)
        except BaseException as error:
            if listening.done():
                raise
            listening.set_exception(error)

    async def _serve(self, port: int, listening: Future[int], stopping: asyncio.Event) -> None:
        store = MessageStore()
        if self._data_dir is not None:
            store = SqliteMessageStore(self._data_dir / f"servicebus-{self.config.name}.sqlite")
        self._listener = AmqpListener(self.config, self._faults, self._counters, store)
        try:
            listening.set_result(await self._listener.listen(self.host, port))
            clock = asyncio.create_task(self._listener.run_clock())
            await stopping.wait()
            clock.cancel()
        finally:
            await self._listener.close()
