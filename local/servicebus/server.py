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
from local.servicebus.authorization import KEY, KEY_NAME
from local.servicebus.config import NamespaceConfig
from local.servicebus.gate import HONOURED
from local.servicebus.hall import Hall
from local.servicebus.ledger import Ledger, NoLedger
from local.servicebus.store import Store
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
        self._hall: Hall | None = None

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
        """Close every connection and the ledger; a second call does nothing."""
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
        return [Target(self._name, HONOURED)]

    def depth(self, entity: str) -> dict[str, int]:
        """Messages by state; raises KeyError for an unknown entity.

        An entity is a queue, a topic (its scheduled messages), or `topic/Subscriptions/name`.
        The keys are active, scheduled, locked, deferred and dead_lettered. May be called from any
        thread while the namespace runs.
        """
        loop, hall = self._loop, self._hall
        if self._thread is None or loop is None or hall is None:
            raise RuntimeError(f"namespace {self.config.name} is not running")
        store = hall.store(entity)
        depth: Future[dict[str, int]] = Future()
        loop.call_soon_threadsafe(lambda: depth.set_result(store.depth()))
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
        hall = self._hall = Hall(self.config, self._faults, self._counters, self._open_ledger())
        try:
            listening.set_result(await hall.listen(self.host, port))
            beating = asyncio.create_task(hall.beat())
            await stopping.wait()
            beating.cancel()
        finally:
            await hall.close()

    def _open_ledger(self) -> Ledger:
        if self._data_dir is None:
            return NoLedger()
        return Store(self._data_dir / f"servicebus-{self.config.name}.sqlite")
