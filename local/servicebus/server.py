"""A Service Bus namespace on one TCP port, for the real SDKs to connect to.

Promised: with `data_dir`, what was acknowledged to a client (a send, a settlement, a session's
state, a rule) is there again after a stop or a kill of the process; locks are not. Without it, the
content ends with `stop`.

Not promised: secrecy (the one key is known to everybody), transactions, SQL filters, forwarding.
"""

from contextlib import ExitStack
from pathlib import Path

from local.counters import Counters
from local.faults import Faults, Target
from local.loopback import HOST, LoopThread, held_port
from local.servicebus.broker import OPERATIONS
from local.servicebus.config import NamespaceConfig
from local.servicebus.entities.sqlite_store import SqliteMessageStore
from local.servicebus.entities.store import MessageStore
from local.servicebus.listener import AmqpListener
from local.servicebus.protocol.authorization import KEY, KEY_NAME


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
        """What the SDKs take."""
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
        return [Target(self._name, OPERATIONS)]

    def depth(self, entity: str) -> dict[str, int]:
        """Messages by state; raises KeyError for an unknown entity.

        An entity is a queue, a topic (its scheduled messages), or `topic/Subscriptions/name`.
        The keys are active, scheduled, locked, deferred and dead_lettered. May be called from any
        thread while the namespace runs.
        """
        if self._thread is None:
            raise RuntimeError(f"namespace {self.config.name} is not running")
        return self._thread.run(self._count_messages(entity))

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

    async def _count_messages(self, entity: str) -> dict[str, int]:
        return self._listener.catalog.find(entity).depth()
