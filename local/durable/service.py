"""The hub on the wire: durabletask's gRPC service on an event loop.

Every call passes the interceptor, which counts it and injects faults. Calls that only touch the hub
run on a few threads. Those that wait, for work or for the end of an instance, wait on the loop and
cost no thread, so no number of them can keep the rest out.
"""

import asyncio
import re
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]
from durabletask.internal import orchestrator_service_pb2 as pb

from local.counters import Counters
from local.durable.hub import LeasingTaskHub
from local.durable.timing import OVER
from local.faults import Action, Fault, Faults, Target

COMPONENT = "durable"  # all task hubs; one is durable.REGION
HONOURED = frozenset({Action.DOWN, Action.DELAY, Action.STATUS, Action.DROP_ANSWER})
CODES = {
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
HAND_OUT = "hand-out"  # an item given to a worker: only counted
INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")

type StatusTest = Callable[[pb.OrchestrationStatus], bool]


class CallAborted(Exception):
    """A call ends with this status instead of an answer."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


def hub_down() -> CallAborted:
    """How every call ends while the hub is down."""
    return CallAborted(grpc.StatusCode.UNAVAILABLE, "the task hub is down")


class AbortContext:
    """What the hub's methods ask of a gRPC context: to end the call with a status."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise CallAborted(code, details)

    def set_code(self, code: grpc.StatusCode) -> NoReturn:
        """Only methods that the backend does not implement set a code."""
        raise CallAborted(code, "the method is not honoured")


ABORT_CONTEXT: Any = AbortContext()


class CallInterceptor:
    """Counts calls and injects faults; statuses 408, 429 and 503 have codes of their own."""

    def __init__(self, component: str, faults: Faults, counters: Counters) -> None:
        self._component = component
        self._faults = faults
        self._counters = counters

    @property
    def is_down(self) -> bool:
        return self._faults.is_down(self._component)

    def count(self, operation: str, status: str = "ok") -> None:
        self._counters.add(self._component, operation, status)

    async def run(self, operation: str, perform: Callable[[], Awaitable[Any]], context: Any) -> Any:
        """Do what is asked and return the answer, or end the call with a status."""
        try:
            answer = await self._perform(operation, perform)
        except CallAborted as end:
            self.count(operation, end.code.name.lower().replace("_", "-"))
            return await context.abort(end.code, end.details)
        self.count(operation)
        return answer

    async def _perform(self, operation: str, perform: Callable[[], Awaitable[Any]]) -> Any:
        match self._faults.inject(self._component, operation, actions=HONOURED):
            case Fault(action=Action.DOWN):
                raise hub_down()
            case Fault(action=Action.STATUS, status=status):
                code = CODES.get(status, grpc.StatusCode.INTERNAL)
                raise CallAborted(code, f"refused with {status}")
            case Fault(action=Action.DELAY, seconds=seconds):
                await asyncio.sleep(seconds)
            case Fault():
                await perform()
                raise CallAborted(grpc.StatusCode.UNAVAILABLE, "the answer was dropped")
        return await perform()


class TaskHubService:
    """Answers the methods of `TaskHubSidecarService`; lives on the loop that makes it."""

    def __init__(self, interceptor: CallInterceptor, threads: ThreadPoolExecutor) -> None:
        self._loop = asyncio.get_running_loop()
        self._interceptor = interceptor
        self._threads = threads
        self._streams: set[asyncio.Event] = set()
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._hub: LeasingTaskHub

    def serve(self, hub: LeasingTaskHub) -> None:
        """Set the hub whose methods these are; before the first call."""
        self._hub = hub

    def __getattr__(self, name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        """Every method that is not here is the hub's own."""
        method = getattr(self._hub, name)

        async def answer(request: Any, context: Any) -> Any:
            return await self._interceptor.run(
                operation_of(name), lambda: self._call(method, request, ABORT_CONTEXT), context
            )

        return answer

    async def StreamInstanceHistory(self, request: Any, context: Any) -> None:  # noqa: N802
        """Write an instance's history in pieces."""

        def history() -> list[pb.HistoryChunk]:
            return list(self._hub.StreamInstanceHistory(request, ABORT_CONTEXT))

        pieces = await self._interceptor.run(
            "stream-instance-history", lambda: self._call(history), context
        )
        for piece in pieces:
            await context.write(piece)

    async def GetWorkItems(self, request: pb.GetWorkItemsRequest, context: Any) -> None:  # noqa: N802
        """Write items as they come up; what is unanswered at the end goes to others.

        Streams with one `worker_instance_id` are one worker: it is there while one is open.
        """
        holder = request.worker_instance_id or str(uuid.uuid4())
        await self._interceptor.run(
            "get-work-items", lambda: self._call(self._hub.add_worker_stream, holder), context
        )
        work_available = asyncio.Event()
        self._streams.add(work_available)
        try:
            await context.send_initial_metadata(())
            while not self._interceptor.is_down:
                work_available.clear()
                while (item := await self._call(self._hub.take, request, holder)) is not None:
                    self._interceptor.count(HAND_OUT)
                    await context.write(item)
                await work_available.wait()
            await context.abort(hub_down().code, hub_down().details)
        finally:
            self._streams.discard(work_available)
            with suppress(RuntimeError):  # the threads have ended: the whole hub stops
                self._threads.submit(self._hub.remove_worker_stream, holder)

    async def WaitForInstanceStart(self, request: pb.GetInstanceRequest, context: Any) -> Any:  # noqa: N802
        """Answer when the instance has had its first turn."""

        def is_started(status: pb.OrchestrationStatus) -> bool:
            return status != pb.ORCHESTRATION_STATUS_PENDING

        return await self._interceptor.run(
            "wait-for-instance-start", lambda: self._wait(request, context, is_started), context
        )

    async def WaitForInstanceCompletion(self, request: pb.GetInstanceRequest, context: Any) -> Any:  # noqa: N802
        return await self._interceptor.run(
            "wait-for-instance-completion",
            lambda: self._wait(request, context, OVER.__contains__),
            context,
        )

    def on_work(self) -> None:
        """Look for work in every stream, soon; from any thread."""
        self._loop.call_soon_threadsafe(set_all, self._streams)

    def on_change(self, instance_id: str) -> None:
        """Look at an instance for those who wait for it, soon; from any thread."""
        if instance_id in self._waiting:
            self._loop.call_soon_threadsafe(set_all, self._waiting.get(instance_id, ()))

    def on_fault(self) -> None:
        """End the calls that wait, soon, if the hub is down now; from any thread."""
        self._loop.call_soon_threadsafe(self._wake_all)

    async def _wait(
        self, request: pb.GetInstanceRequest, context: Any, is_reached: StatusTest
    ) -> pb.GetInstanceResponse:
        """Answer once a status is reached, at once for an unknown instance."""
        changed = asyncio.Event()
        waiting = self._waiting[request.instanceId]
        waiting.add(changed)
        try:
            async with asyncio.timeout(context.time_remaining()):
                while not self._interceptor.is_down:
                    changed.clear()
                    found = await self._call(self._hub.GetInstance, request, ABORT_CONTEXT)
                    if not found.exists or is_reached(found.orchestrationState.orchestrationStatus):
                        return found
                    await changed.wait()
                raise hub_down()
        except TimeoutError as error:
            late = f"instance {request.instanceId} is not there yet"
            raise CallAborted(grpc.StatusCode.DEADLINE_EXCEEDED, late) from error
        finally:
            waiting.discard(changed)
            if not waiting:
                self._waiting.pop(request.instanceId, None)

    async def _call[*A, R](self, method: Callable[[*A], R], *arguments: *A) -> R:
        return await self._loop.run_in_executor(self._threads, method, *arguments)

    def _wake_all(self) -> None:
        for events in (self._streams, *self._waiting.values()):
            set_all(events)


def set_all(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()


def operation_of(method: str) -> str:
    """The name of a method as it is counted: `start-instance` for `StartInstance`."""
    return INNER_CAPITAL.sub("-", method).lower()


def target_of(component: str) -> Target:
    """What faults can hit in a region's hub: the methods of its service."""
    methods = pb.DESCRIPTOR.services_by_name["TaskHubSidecarService"].methods
    operations = {operation_of(method.name): HONOURED for method in methods}
    return Target(component, {**operations, HAND_OUT: frozenset()})
