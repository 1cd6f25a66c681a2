"""The Service Bus trigger: queues and subscriptions, with sessions or without, one or many.

Cardinality one: up to `maxConcurrentSessions` sessions, or `maxConcurrentCalls` messages without
sessions, in parallel, with locks renewed. Cardinality many: one batch at a time, with sessions of
one session only, and no lock renewed. Messages are completed when the function returns. When it
fails, all it was given are abandoned; they come again, first in their session.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from local.functions_host.clients.amqp import ConnectionLost, LockLost, RequestRefused
from local.functions_host.clients.receivers import (
    MessageLock,
    PlainReceiver,
    ReceivedMessage,
    Receiver,
    SessionReceiver,
)
from local.functions_host.clients.service_bus import EntityClient, NamespaceAddress
from local.functions_host.config.functions import AppFunction
from local.functions_host.triggers.listener import HostContext, Listener
from local.functions_host.triggers.service_bus_payload import (
    BodyNotBound,
    batch_payload,
    message_payload,
)
from local.functions_host.worker.invocations import InvocationFailed, log_result
from local.servicebus.amqp.message_format import Undecodable

log = logging.getLogger(__name__)

ACCEPT_SECONDS = 60.0
LOST_PAUSE_SECONDS = 0.1
REFUSED_PAUSE_SECONDS = 2.0
LEAST_RENEWAL_SECONDS = 0.2
HONOURED = (
    "connection",
    "queueName",
    "topicName",
    "subscriptionName",
    "isSessionsEnabled",
    "cardinality",
    "accessRights",
    "autoCompleteMessages",
)


class ServiceBusListener(Listener):
    def __init__(self, function: AppFunction, context: HostContext) -> None:
        binding = function.trigger
        binding.only(*HONOURED)
        if not binding.flag("autoCompleteMessages", True):
            raise binding.unsupported("autoCompleteMessages false is not honoured")
        self._function = function
        self._worker = context.worker
        self._options = context.limits.service_bus
        self._has_sessions = binding.flag("isSessionsEnabled", False)
        self._is_batch = binding.word("cardinality", "ONE", "MANY") == "MANY"
        self._is_binary = binding.word("dataType", "STRING", "BINARY", "UNDEFINED") == "BINARY"
        connection = binding.text("connection")
        try:
            address = NamespaceAddress.parse(context.settings.connection(connection, function.name))
        except ValueError as error:
            raise binding.unsupported(f"setting {connection}: {error}") from error
        if "topicName" in binding.properties:
            subscription = binding.text("subscriptionName")
            entity = f"{binding.text('topicName')}/Subscriptions/{subscription}"
        else:
            entity = binding.text("queueName")
        self._entity = EntityClient(address, entity, self._options.prefetch_count)
        self._loops = ReceiveLoops(function.name)

    async def start(self) -> None:
        """Begin to receive; a namespace that is down is tried again."""
        if self._has_sessions:
            count, receive = self._options.max_concurrent_sessions, self._serve_session
        else:
            count, receive = self._options.max_concurrent_calls, self._serve_without_sessions
        self._loops.start(1 if self._is_batch else count, receive)

    async def stop(self, drain_seconds: float) -> None:
        """Accept nothing new, let running invocations settle within the limit, release the rest.

        What is cut off is not settled: its message returns to the queue when its lock ends.
        """
        await self._loops.stop(drain_seconds)
        await self._entity.close()

    async def _serve_session(self) -> None:
        """Accept one session and process it until it stays empty or is lost."""
        session = await self._entity.accept_next_session(ACCEPT_SECONDS)
        if session is None:
            return
        renewer = None if self._is_batch else self._renew(session)
        count = 1 if self._is_batch else self._options.max_calls_per_session
        try:
            if count == 1:
                await self._call_in_session(session, renewer)
            else:
                calls = [
                    self._call_in_session(session, renewer, session.take_back_credit)
                    for _ in range(count)
                ]
                await self._loops.run_calls(calls, session.fail_when_lost())
        except (ConnectionLost, LockLost) as error:
            self._warn(f"session {session.id} ended early: {error}")
        finally:
            if renewer is not None:
                renewer.stop()
            session.detach()

    async def _call_in_session(
        self,
        session: SessionReceiver,
        renewer: "LockRenewer | None",
        end_idle: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Process one message, or batch, after another until none comes in time."""
        while not self._loops.is_stopping:
            messages = await self._receive(session, self._options.session_idle_seconds)
            if not messages:
                if end_idle is not None:
                    await end_idle()
                return
            if renewer is not None:
                renewer.message_arrived()
            with self._loops.busy():
                await self._process(session, messages, session.id)

    async def _serve_without_sessions(self) -> None:
        receiver = await self._entity.open_receiver()
        try:
            while not self._loops.is_stopping:
                messages = await self._receive(receiver, None)
                with self._loops.busy():
                    await self._process_plain(receiver, messages)
        finally:
            await receiver.return_prefetched()
            receiver.detach()

    async def _process_plain(
        self, receiver: PlainReceiver, messages: Sequence[ReceivedMessage]
    ) -> None:
        renewers: list[LockRenewer] = []
        try:
            if not self._is_batch:
                with suppress(Undecodable):  # it is given back at once
                    renewers = [self._renew(MessageLock(receiver, one)) for one in messages]
            await self._process(receiver, messages, None)
        except LockLost as error:
            self._warn(f"not settled, it comes again: {error}")
        finally:
            for renewer in renewers:
                renewer.stop()

    async def _receive(
        self, receiver: Receiver, idle_seconds: float | None
    ) -> Sequence[ReceivedMessage]:
        """The next message, or batch; nothing if none comes in time."""
        if self._is_batch:
            options = self._options
            return await receiver.receive_batch(
                options.min_batch, options.max_batch, idle_seconds, options.max_batch_wait_seconds
            )
        message = await receiver.receive(idle_seconds)
        return [] if message is None else [message]

    async def _process(
        self, receiver: Receiver, messages: Sequence[ReceivedMessage], session_id: str | None
    ) -> None:
        function, is_binary = self._function, self._is_binary
        try:
            if self._is_batch:
                payload = batch_payload(messages, session_id, function.name, is_binary)
            else:
                payload = message_payload(messages[0], session_id, function.name, is_binary)
        except (BodyNotBound, Undecodable) as error:
            # The function is never called, so nothing in it can slow this down.
            name = function.trigger.name
            self._warn(f"failed: Exception binding parameter {name!r}: {error}")
            await receiver.abandon(messages)
            return
        inputs = {function.trigger.name: payload.data}
        result = await self._worker.invoke(function.id, function.name, inputs, payload.metadata)
        log_result(function.name, result)
        if isinstance(result, InvocationFailed):
            await receiver.abandon(messages)
        else:
            await receiver.complete(messages)

    def _renew(self, lock: SessionReceiver | MessageLock) -> "LockRenewer":
        return LockRenewer(lock, self._options.max_auto_lock_renewal_seconds)

    def _warn(self, text: str) -> None:
        log.warning("%s", text, extra={"function": self._function.name})


class ReceiveLoops:
    """Tasks that receive again and again until a stop; a refusal is logged once, not each time."""

    def __init__(self, function: str) -> None:
        self._extra = {"function": function}
        self._tasks: list[asyncio.Task[None]] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None] | None] = set()
        self._refusal = ""
        self.is_stopping = False

    def start(self, count: int, receive: Callable[[], Awaitable[None]]) -> None:
        self._tasks = [asyncio.create_task(self._repeat(receive)) for _ in range(count)]

    async def run_calls(
        self, calls: Sequence[Coroutine[Any, Any, None]], loss: Coroutine[Any, Any, None]
    ) -> None:
        """Run calls side by side until all have ended, or one or `loss` raises; then raise that.

        After an error the calls in hand run on, and a stop waits for them; the idle ones end.
        """
        running = {asyncio.create_task(call) for call in calls}
        self._calls |= running
        watcher = asyncio.create_task(loss)
        over = asyncio.get_running_loop().create_future()

        def end(task: asyncio.Task[None]) -> None:
            running.discard(task)
            self._calls.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and task is not watcher:
                log.warning("not settled, it comes again: %s", error, extra=self._extra)
            if over.done():
                return
            if error is not None:
                over.set_exception(error)
            elif not running:
                over.set_result(None)

        # One future that the tasks end: waiting for all that are left, anew after each of many
        # calls, was a twelfth of the time of short sessions.
        for task in (*running, watcher):
            task.add_done_callback(end)
        try:
            with self.busy():
                await over
        finally:
            watcher.cancel()
            for call in running - self._busy:
                call.cancel()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Let a stop wait for the loop while it is inside, instead of cutting it off."""
        task = asyncio.current_task()
        self._busy.add(task)
        try:
            yield
        finally:
            self._busy.discard(task)

    async def stop(self, drain_seconds: float) -> None:
        """End the idle loops now, and the busy ones when they are done or the limit is over."""
        self.is_stopping = True
        tasks = [*self._tasks, *self._calls]
        for task in tasks:
            if task not in self._busy:
                task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=drain_seconds)
            for task in late:
                log.warning("still running: cut off", extra=self._extra)
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, receive: Callable[[], Awaitable[None]]) -> None:
        while not self.is_stopping:
            try:
                await receive()
            except ConnectionLost:  # the entity's client logs it, and connects again
                await asyncio.sleep(LOST_PAUSE_SECONDS)
            except RequestRefused as error:
                if self._refusal != str(error):
                    self._refusal = str(error)
                    log.error("the queue refuses: %s", error, extra=self._extra)
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)
            except Exception:  # a message of a kind never seen must not end the listener
                log.exception("receiving failed", extra=self._extra)
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)


class LockRenewer:
    """Renews a lock each time half of what is left of it has passed.

    A message that takes longer than the limit is renewed no more; its lock is then lost in time.
    Most sessions are over before their first renewal, so waiting for it costs a timer and no task.
    """

    def __init__(self, lock: SessionReceiver | MessageLock, limit_seconds: float) -> None:
        self._lock = lock
        self._limit_seconds = limit_seconds
        self._since = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._has_given_up = False
        self._schedule()

    def message_arrived(self) -> None:
        """Begin to count the limit for the message now in hand."""
        self._since = time.monotonic()
        if self._has_given_up:
            self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()

    def _schedule(self) -> None:
        self._has_given_up = False
        left = (self._lock.locked_until - datetime.now(UTC)).total_seconds()
        pause = max(left / 2, LEAST_RENEWAL_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(pause, self._on_due)

    def _on_due(self) -> None:
        if time.monotonic() - self._since < self._limit_seconds:
            self._renewal = asyncio.create_task(self._renew())
        else:
            self._has_given_up = True

    async def _renew(self) -> None:
        try:
            await self._lock.renew()
        except (LockLost, ConnectionLost) as error:
            log.warning("%s: lock not renewed: %s", self._lock.id, error)
            return
        self._schedule()
