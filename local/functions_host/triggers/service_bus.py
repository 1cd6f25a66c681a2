"""The Service Bus trigger: sessions in parallel, one message of a session at a time.

Honoured: a queue with sessions, cardinality one. A message is completed when the function returns
and abandoned when it fails; then the same message comes again, first in its session.
"""

import asyncio
import logging

from local.functions_host.amqp.address import NamespaceAddress
from local.functions_host.amqp.errors import ConnectionLost, RequestRefused, SessionLockLost
from local.functions_host.amqp.namespace import SessionQueue
from local.functions_host.amqp.session import ReceivedMessage, Session
from local.functions_host.function import Binding, Function
from local.functions_host.settings import AppSettings
from local.functions_host.triggers.invocation import report
from local.functions_host.triggers.listener import HostContext
from local.functions_host.triggers.lock_keeper import LockKeeper
from local.functions_host.triggers.service_bus_payload import payload

log = logging.getLogger(__name__)

ACCEPT_SECONDS = 60.0
LOST_PAUSE_SECONDS = 0.1
REFUSED_PAUSE_SECONDS = 2.0
HONOURED = (
    "connection",
    "queueName",
    "isSessionsEnabled",
    "cardinality",
    "accessRights",
    "autoCompleteMessages",
)


class ServiceBusListener:
    """Visits sessions of one queue, as many at a time as host.json allows."""

    def __init__(self, function: Function, context: HostContext) -> None:
        check(function.trigger)
        self._function = function
        self._worker = context.worker
        self._options = context.limits.service_bus
        self._is_binary = function.trigger.text("dataType", "STRING").upper() == "BINARY"
        address = address_of(function.trigger, context.settings)
        queue = function.trigger.text("queueName")
        self._queue = SessionQueue(address, queue, self._options.prefetch_count)
        self._slots: list[asyncio.Task[None]] = []
        self._busy: set[asyncio.Task[None] | None] = set()
        self._is_stopping = False
        self._refusal = ""

    async def start(self) -> None:
        """Begin to visit sessions; a namespace that is down is tried on."""
        count = self._options.max_concurrent_sessions
        self._slots = [asyncio.create_task(self._visit_sessions()) for _ in range(count)]

    async def stop(self, drain_seconds: float) -> None:
        """Accept nothing new, let running invocations settle within the limit, release the rest.

        What is cut off is not settled: its message returns to the queue with its session.
        """
        self._is_stopping = True
        for slot in self._slots:
            if slot not in self._busy:
                slot.cancel()
        if self._slots:
            _, late = await asyncio.wait(self._slots, timeout=drain_seconds)
            for slot in late:
                log.warning("still running: cut off", extra={"function": self._function.name})
                slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        await self._queue.close()

    async def _visit_sessions(self) -> None:
        while not self._is_stopping:
            try:
                session = await self._queue.accept_next(ACCEPT_SECONDS)
                if session is not None:
                    self._refusal = ""
                    await self._visit(session)
            except ConnectionLost:  # the queue says it and connects again
                await asyncio.sleep(LOST_PAUSE_SECONDS)
            except RequestRefused as error:
                self._say_refused(str(error))
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)
            except Exception:  # a message of a kind never seen must not end the listener
                log.exception("a visit broke", extra={"function": self._function.name})
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)

    async def _visit(self, session: Session) -> None:
        keeper = LockKeeper(session, self._options.max_auto_lock_renewal_seconds)
        try:
            while not self._is_stopping:
                message = await session.receive(self._options.session_idle_seconds)
                if message is None:
                    return
                keeper.message_arrived()
                await self._process(session, message)
        except (ConnectionLost, SessionLockLost) as error:
            log.warning(
                "session %s ended early: %s",
                session.id,
                error,
                extra={"function": self._function.name},
            )
        finally:
            keeper.stop()
            session.release()

    async def _process(self, session: Session, message: ReceivedMessage) -> None:
        function, slot = self._function, asyncio.current_task()
        self._busy.add(slot)
        try:
            content = payload(message, session.id, function.name, self._is_binary)
            inputs = {function.trigger.name: content.data}
            outcome = await self._worker.invoke(
                function.id, function.name, inputs, content.metadata
            )
            if report(function.name, outcome):
                await session.complete(message)
            else:
                await session.abandon(message)
        finally:
            self._busy.discard(slot)

    def _say_refused(self, refusal: str) -> None:
        """Say it once, not for each slot and each attempt."""
        if refusal != self._refusal:
            self._refusal = refusal
            log.error("the queue refuses: %s", refusal, extra={"function": self._function.name})


def check(binding: Binding) -> None:
    """Refuse what this listener does not honour."""
    binding.only(*HONOURED)
    if not binding.flag("isSessionsEnabled", False):
        raise binding.refused("only sessions are honoured: set is_sessions_enabled")
    if binding.text("cardinality", "ONE").upper() != "ONE":
        raise binding.refused("only cardinality one is honoured")
    if not binding.flag("autoCompleteMessages", True):
        raise binding.refused("autoCompleteMessages false is not honoured")
    if binding.text("dataType", "STRING").upper() not in ("STRING", "BINARY", "UNDEFINED"):
        raise binding.refused("dataType must be string or binary")


def address_of(binding: Binding, settings: AppSettings) -> NamespaceAddress:
    """Read the namespace's address from the setting the binding names."""
    name = binding.text("connection")
    try:
        return NamespaceAddress.parse(settings.connection(name, binding.function))
    except ValueError as error:
        raise binding.refused(f"setting {name}: {error}") from error
