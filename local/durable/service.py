"""The hub on the wire: durabletask's gRPC service on an event loop.

Calls that only touch the hub run on a few threads. Those that wait, for work or for the end of an
instance, wait on the loop and cost no thread, so no number of them can keep the rest out.
"""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc  # type: ignore[import-untyped]
from durabletask.internal import orchestrator_service_pb2 as pb

from local.durable.gate import Aborted, Caller, Gate, down
from local.durable.hub import StatusTest, TaskHub
from local.durable.targets import HAND_OUT, operation_of

CALLER = Caller()


class Sidecar:
    """Answers the methods of `TaskHubSidecarService`; lives on the loop that makes it."""

    def __init__(self, gate: Gate, threads: ThreadPoolExecutor) -> None:
        self._loop = asyncio.get_running_loop()
        self._gate = gate
        self._threads = threads
        self._streams: set[asyncio.Event] = set()
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._hub: TaskHub

    def serve(self, hub: TaskHub) -> None:
        """Say whose methods these are; before the first call."""
        self._hub = hub

    def __getattr__(self, name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        """Every method that is not here is the hub's own."""
        method = getattr(self._hub, name)

        async def answer(request: Any, context: Any) -> Any:
            return await self._gate.run(
                operation_of(name), lambda: self._ask(method, request, CALLER), context
            )

        return answer

    async def StreamInstanceHistory(self, request: Any, context: Any) -> None:  # noqa: N802
        """Write an instance's history in pieces."""
        pieces = await self._gate.run(
            "stream-instance-history", lambda: self._ask(self._history, request), context
        )
        for piece in pieces:
            await context.write(piece)

    async def GetWorkItems(self, request: pb.GetWorkItemsRequest, context: Any) -> None:  # noqa: N802
        """Write items as they come up; what is unanswered at the end goes to others.

        Streams with one `worker_instance_id` are one worker: it is there while one is open.
        """
        holder = request.worker_instance_id or str(uuid.uuid4())
        await self._gate.run("get-work-items", lambda: self._ask(self._hub.arrive, holder), context)
        is_work_there = asyncio.Event()
        self._streams.add(is_work_there)
        try:
            await context.send_initial_metadata(())
            while not self._gate.is_down:
                is_work_there.clear()
                await self._hand_out(request, holder, context)
                await is_work_there.wait()
            await context.abort(down().code, down().details)
        finally:
            self._streams.discard(is_work_there)
            with suppress(RuntimeError):  # when all stops, there are no others
                self._threads.submit(self._hub.leave, holder)

    async def WaitForInstanceStart(self, request: pb.GetInstanceRequest, context: Any) -> Any:  # noqa: N802
        """Answer when the instance has had its first turn."""
        return await self._gate.run(
            "wait-for-instance-start",
            lambda: self._wait(request, context, self._hub.is_started),
            context,
        )

    async def WaitForInstanceCompletion(self, request: pb.GetInstanceRequest, context: Any) -> Any:  # noqa: N802
        """Answer when the instance is over."""
        return await self._gate.run(
            "wait-for-instance-completion",
            lambda: self._wait(request, context, self._hub.is_over),
            context,
        )

    def work_is_there(self) -> None:
        """Look for work in every stream, soon; from any thread."""
        self._loop.call_soon_threadsafe(self._wake, self._streams)

    def has_changed(self, instance_id: str) -> None:
        """Look at an instance for those who wait for it, soon; from any thread."""
        if instance_id in self._waiting:
            self._loop.call_soon_threadsafe(self._wake, self._waiting.get(instance_id, set()))

    def faults_have_changed(self) -> None:
        """End the calls that wait, soon, if the hub is down now; from any thread."""
        self._loop.call_soon_threadsafe(self._wake_all)

    async def _hand_out(self, request: pb.GetWorkItemsRequest, holder: str, context: Any) -> None:
        while (item := await self._ask(self._hub.take, request, holder)) is not None:
            self._gate.count(HAND_OUT)
            await context.write(item)

    async def _wait(
        self, request: pb.GetInstanceRequest, context: Any, is_reached: StatusTest
    ) -> pb.GetInstanceResponse:
        """Answer once a status is reached, at once for an unknown instance."""
        has_changed = asyncio.Event()
        waiting = self._waiting[request.instanceId]
        waiting.add(has_changed)
        try:
            async with asyncio.timeout(context.time_remaining()):
                return await self._reached(request, is_reached, has_changed)
        except TimeoutError as error:
            late = f"instance {request.instanceId} is not there yet"
            raise Aborted(grpc.StatusCode.DEADLINE_EXCEEDED, late) from error
        finally:
            waiting.discard(has_changed)
            if not waiting:
                self._waiting.pop(request.instanceId, None)

    async def _reached(
        self, request: pb.GetInstanceRequest, is_reached: StatusTest, has_changed: asyncio.Event
    ) -> pb.GetInstanceResponse:
        while not self._gate.is_down:
            has_changed.clear()
            found = await self._ask(self._hub.state, request, is_reached)
            if found is not None:
                return found
            await has_changed.wait()
        raise down()

    def _history(self, request: Any) -> list[pb.HistoryChunk]:
        return list(self._hub.StreamInstanceHistory(request, CALLER))

    async def _ask[*A, R](self, call: Callable[[*A], R], *arguments: *A) -> R:
        return await self._loop.run_in_executor(self._threads, call, *arguments)

    def _wake_all(self) -> None:
        for sleepers in (self._streams, *self._waiting.values()):
            self._wake(sleepers)

    def _wake(self, sleepers: set[asyncio.Event]) -> None:
        for sleeper in sleepers:
            sleeper.set()
