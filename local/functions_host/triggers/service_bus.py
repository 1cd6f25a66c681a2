"""The Service Bus trigger: queues and subscriptions, with sessions or without, one or many.

Cardinality one: up to `maxConcurrentSessions` sessions, or `maxConcurrentCalls` messages without
sessions, in parallel, with locks renewed. Cardinality many: one batch at a time, with sessions of
one session only, and no lock renewed. Messages are completed when the function returns. When it
fails, all it was given are abandoned; they come again, first in their session.
"""

import logging
from collections.abc import Sequence

from local.functions_host.amqp.errors import ConnectionLost, LockLost
from local.functions_host.amqp.namespace import Entity
from local.functions_host.amqp.plain import MessageLock, PlainReceiver
from local.functions_host.amqp.receiver import ReceivedMessage, Receiver
from local.functions_host.amqp.session import Session
from local.functions_host.function import Function
from local.functions_host.triggers.invocation import report
from local.functions_host.triggers.listener import HostContext
from local.functions_host.triggers.lock_keeper import LockKeeper
from local.functions_host.triggers.service_bus_batch import batch_payload
from local.functions_host.triggers.service_bus_binding import read_binding
from local.functions_host.triggers.service_bus_payload import payload
from local.functions_host.triggers.slots import Slots

log = logging.getLogger(__name__)

ACCEPT_SECONDS = 60.0


class ServiceBusListener:
    """Serves one function from one queue or subscription."""

    def __init__(self, function: Function, context: HostContext) -> None:
        self._function = function
        self._worker = context.worker
        self._options = context.limits.service_bus
        self._binding = read_binding(function.trigger, context.settings)
        self._entity = Entity(
            self._binding.address, self._binding.entity, self._options.prefetch_count
        )
        self._slots = Slots(function.name)

    async def start(self) -> None:
        """Begin to visit; a namespace that is down is tried on."""
        visit = self._visit_session if self._binding.has_sessions else self._visit_plain
        self._slots.start(self._slot_count(), visit)

    async def stop(self, drain_seconds: float) -> None:
        """Accept nothing new, let running invocations settle within the limit, release the rest.

        What is cut off is not settled: its message returns to the queue when its lock ends.
        """
        await self._slots.stop(drain_seconds)
        await self._entity.close()

    def _slot_count(self) -> int:
        if self._binding.is_batch:
            return 1
        if self._binding.has_sessions:
            return self._options.max_concurrent_sessions
        return self._options.max_concurrent_calls

    async def _visit_session(self) -> None:
        session = await self._entity.accept_next(ACCEPT_SECONDS)
        if session is None:
            return
        keeper = None if self._binding.is_batch else self._keeper(session)
        try:
            await self._empty_session(session, keeper)
        except (ConnectionLost, LockLost) as error:
            self._warn(f"session {session.id} ended early: {error}")
        finally:
            if keeper is not None:
                keeper.stop()
            session.release()

    async def _empty_session(self, session: Session, keeper: LockKeeper | None) -> None:
        while not self._slots.is_stopping:
            messages = await self._take(session, self._options.session_idle_seconds)
            if not messages:
                return
            if keeper is not None:
                keeper.message_arrived()
            with self._slots.busy():
                await self._process(session, messages, session.id)

    async def _visit_plain(self) -> None:
        receiver = await self._entity.open_plain()
        try:
            while not self._slots.is_stopping:
                messages = await self._take(receiver, None)
                with self._slots.busy():
                    await self._process_plain(receiver, messages)
        finally:
            await receiver.let_go()

    async def _process_plain(
        self, receiver: PlainReceiver, messages: Sequence[ReceivedMessage]
    ) -> None:
        locks = [] if self._binding.is_batch else [MessageLock(receiver, one) for one in messages]
        keepers = [self._keeper(lock) for lock in locks]
        try:
            await self._process(receiver, messages, None)
        except LockLost as error:
            self._warn(f"not settled, it comes again: {error}")
        finally:
            for keeper in keepers:
                keeper.stop()

    async def _take(
        self, receiver: Receiver, idle_seconds: float | None
    ) -> Sequence[ReceivedMessage]:
        """The next message, or batch; nothing if none comes in time."""
        if self._binding.is_batch:
            options = self._options
            return await receiver.receive_batch(
                options.min_batch, options.max_batch, idle_seconds, options.max_batch_wait_seconds
            )
        message = await receiver.receive(idle_seconds)
        return [message] if message is not None else []

    async def _process(
        self, receiver: Receiver, messages: Sequence[ReceivedMessage], session_id: str | None
    ) -> None:
        function, is_binary = self._function, self._binding.is_binary
        if self._binding.is_batch:
            content = batch_payload(messages, session_id, function.name, is_binary)
        else:
            content = payload(messages[0], session_id, function.name, is_binary)
        inputs = {function.trigger.name: content.data}
        outcome = await self._worker.invoke(function.id, function.name, inputs, content.metadata)
        if report(function.name, outcome):
            await receiver.complete(messages)
        else:
            await receiver.abandon(messages)

    def _keeper(self, lock: Session | MessageLock) -> LockKeeper:
        return LockKeeper(lock, self._options.max_auto_lock_renewal_seconds)

    def _warn(self, words: str) -> None:
        log.warning("%s", words, extra={"function": self._function.name})
