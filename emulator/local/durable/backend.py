"""Durable Functions' storage on one machine: durabletask's in-memory backend over gRPC.

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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal import orchestrator_service_pb2_grpc as stubs

from local.counters import Counters
from local.durable import POLLING_METADATA
from local.durable.hub import LeasingTaskHub
from local.durable.timing import OVER, Timers
from local.faults import Action, Fault, Faults, Target
from local.loopback import HOST, LoopThread, PortTaken

COMPONENT = "durable"  # all task hubs; one is durable.REGION
HONOURED = frozenset({Action.DOWN, Action.DELAY, Action.STATUS, Action.DROP_ANSWER})
CODES = {
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
HAND_OUT = "hand-out"  # an item given to a worker: only counted
INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
LEASE_SECONDS = 300.0
THREADS = 8
STOP_SECONDS = 0.2
OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A worker that is stopped but not dead keeps its connection and answers no ping.
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.ping_timeout_ms", 2000),
)

type StatusTest = Callable[[pb.OrchestrationStatus], bool]


class CallAborted(Exception):
    """A call ends with this status instead of an answer."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


def hub_down() -> CallAborted:
    """Return the error that ends every call while the hub is down."""
    return CallAborted(grpc.StatusCode.UNAVAILABLE, "the task hub is down")


class AbortContext:
    """The part of a gRPC context that the hub's methods use: to end the call with a status."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise CallAborted(code, details)

    def set_code(self, code: grpc.StatusCode) -> NoReturn:
        """End the call: only methods that the backend does not implement set a code."""
        raise CallAborted(code, "the method is not honoured")


ABORT_CONTEXT: Any = AbortContext()


@dataclass(frozen=True, slots=True)
class CallInterceptor:
    """Counts calls and injects faults; statuses 408, 429 and 503 have codes of their own."""

    component: str
    faults: Faults
    counters: Counters

    @property
    def is_down(self) -> bool:
        return self.faults.is_down(self.component)

    def count(self, operation: str, status: str = "ok") -> None:
        self.counters.add(self.component, operation, status)

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
        match self.faults.inject(self.component, operation, actions=HONOURED):
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
        self.hub: LeasingTaskHub  # whose methods these are; set before the first call

    def __getattr__(self, name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return the hub's own method, for every method that is not defined here."""
        method = getattr(self.hub, name)

        async def answer(request: Any, context: Any) -> Any:
            return await self._interceptor.run(
                operation_of(name), lambda: self._call(method, request, ABORT_CONTEXT), context
            )

        return answer

    async def StreamInstanceHistory(self, request: Any, context: Any) -> None:  # noqa: N802
        def read_history() -> list[pb.HistoryChunk]:
            return list(self.hub.StreamInstanceHistory(request, ABORT_CONTEXT))

        for piece in await self._interceptor.run(
            "stream-instance-history", lambda: self._call(read_history), context
        ):
            await context.write(piece)

    async def GetWorkItems(self, request: pb.GetWorkItemsRequest, context: Any) -> None:  # noqa: N802
        """Write items as they come up; what is unanswered at the end goes to others.

        Streams with one `worker_instance_id` are one worker: it is there while one is open.
        """
        holder = request.worker_instance_id or str(uuid.uuid4())
        said = dict(context.invocation_metadata() or ())
        if POLLING_METADATA in said:
            await self._call(self.hub.set_polling, float(said[POLLING_METADATA]))
        await self._interceptor.run(
            "get-work-items", lambda: self._call(self.hub.add_worker_stream, holder), context
        )
        work_available = asyncio.Event()
        self._streams.add(work_available)
        try:
            await context.send_initial_metadata(())
            while not self._interceptor.is_down:
                work_available.clear()
                while (item := await self._call(self.hub.take, request, holder)) is not None:
                    self._interceptor.count(HAND_OUT)
                    await context.write(item)
                await work_available.wait()
            await context.abort(hub_down().code, hub_down().details)
        finally:
            self._streams.discard(work_available)
            with suppress(RuntimeError):  # the threads have ended: the whole hub stops
                self._threads.submit(self.hub.remove_worker_stream, holder)

    async def WaitForInstanceStart(self, request: pb.GetInstanceRequest, context: Any) -> Any:  # noqa: N802
        return await self._interceptor.run(
            "wait-for-instance-start",
            lambda: self._wait(request, context, pb.ORCHESTRATION_STATUS_PENDING.__ne__),
            context,
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
        self._loop.call_soon_threadsafe(
            lambda: set_all(chain(self._streams, *self._waiting.values()))
        )

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
                    found = await self._call(self.hub.GetInstance, request, ABORT_CONTEXT)
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


def set_all(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()


def operation_of(method: str) -> str:
    """The name of a method as it is counted: `start-instance` for `StartInstance`."""
    return INNER_CAPITAL.sub("-", method).lower()


def target_of(component: str) -> Target:
    """Return what faults can hit in a region's hub: the methods of its service."""
    methods = pb.DESCRIPTOR.services_by_name["TaskHubSidecarService"].methods
    operations = {operation_of(method.name): HONOURED for method in methods}
    return Target(component, {**operations, HAND_OUT: frozenset()})


class DurableBackend:
    """A region's task hub on 127.0.0.1, never beyond; its state is in memory and ends with `stop`.

    An item that a worker took comes back when the worker's connection breaks, when it answers no
    ping for about four seconds, or after `lease_seconds`, whichever is first.
    """

    def __init__(
        self,
        region: str,
        *,
        port: int = 0,
        faults: Faults | None = None,
        counters: Counters | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._component = f"{COMPONENT}.{region}"
        self.port = port
        self._faults = faults or Faults()
        self._interceptor = CallInterceptor(self._component, self._faults, counters or Counters())
        self._lease_seconds = lease_seconds
        self._running = ExitStack()
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def targets(self) -> list[Target]:
        return [target_of(self._component)]

    def start(self) -> None:
        """Listen; raises PortTaken when the port cannot be had."""
        with ExitStack() as starting:
            thread = LoopThread(self._component)
            timers = Timers(thread.loop)
            starting.callback(timers.close)  # after the loop's end, which sets off no more of them
            starting.callback(thread.end)
            threads = ThreadPoolExecutor(THREADS, thread_name_prefix=self._component)
            starting.callback(threads.shutdown)
            server, service = thread.run(self._listen(timers, threads))
            self._server = server
            starting.callback(lambda: thread.run(server.stop(STOP_SECONDS)))
            starting.callback(self._faults.watch(service.on_fault))
            self._running = starting.pop_all()

    def stop(self) -> None:
        """Cut off every call and end the threads; a second call does nothing."""
        self._running.close()
        self._server = None  # not before the loop has ended: its sockets go with it

    async def _listen(
        self, timers: Timers, threads: ThreadPoolExecutor
    ) -> tuple[grpc.aio.Server, TaskHubService]:
        server = grpc.aio.server(threads, options=OPTIONS)
        service = TaskHubService(self._interceptor, threads)
        call_backs = service.on_work, service.on_change
        service.hub = LeasingTaskHub(self._lease_seconds, timers, *call_backs)
        stubs.add_TaskHubSidecarServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
        try:
            self.port = server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise PortTaken(self.port, self._component) from error
        await server.start()
        return server, service
