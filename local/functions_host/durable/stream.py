"""The stream of work items from the task hub, and the answers to it.

An item counts as held by this host while the host has a stream open. So a host that stops opens a
second one, that asks for nothing, before it closes the first: what runs keeps its leases.
"""

import asyncio
import logging
from contextlib import suppress

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal import orchestrator_service_pb2_grpc as stubs
from google.protobuf.message import Message  # type: ignore[import-untyped]

from local.functions_host.durable.functions import DurableFunctions, Kind
from local.functions_host.durable.items import Item, read_item
from local.functions_host.host_json import DurableOptions
from local.functions_host.triggers.invocation import report
from local.functions_host.worker import Failed, Worker

log = logging.getLogger(__name__)

COMPLETE = {
    Kind.ORCHESTRATION: "CompleteOrchestratorTask",
    Kind.ACTIVITY: "CompleteActivityTask",
    Kind.ENTITY: "CompleteEntityTask",
}
ABANDON = {
    Kind.ORCHESTRATION: "AbandonTaskOrchestratorWorkItem",
    Kind.ACTIVITY: "AbandonTaskActivityWorkItem",
    Kind.ENTITY: "AbandonTaskEntityWorkItem",
}
RETRY_SECONDS = 0.5
ANSWER_SECONDS = 1.0
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class WorkStream:
    """Takes items as long as it runs; each is invoked on its own, up to the limits per kind."""

    def __init__(
        self,
        address: str,
        name: str,
        functions: DurableFunctions,
        options: DurableOptions,
        worker: Worker,
    ) -> None:
        self._functions = functions
        self._worker = worker
        self._request = request_for(name, functions, options)
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._stub = stubs.TaskHubSidecarServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._running: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None
        self._is_down = False

    def start(self) -> None:
        """Begin to take items."""
        self._reader = asyncio.create_task(self._read())

    async def stop(self, drain_seconds: float) -> None:
        """Take nothing new, let what runs end within the limit; the rest goes to other hosts."""
        keeping = await self._keep_leases()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=drain_seconds)
            for task in late:
                log.warning("durable work still running: cut off")
                task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        keeping.cancel()
        await self._channel.close()

    async def _keep_leases(self) -> grpc.aio.UnaryStreamCall:
        """Open a stream that is handed nothing; it keeps nothing if the hub is down."""
        request = pb.GetWorkItemsRequest(worker_instance_id=self._request.worker_instance_id)
        request.workItemFilters.SetInParent()
        call = self._stub.GetWorkItems(request)
        with suppress(TimeoutError, grpc.aio.AioRpcError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await call.initial_metadata()
        return call

    async def _read(self) -> None:
        while True:
            try:
                async for item in self._stub.GetWorkItems(self._request):
                    self._begin(item)
            except grpc.aio.AioRpcError as error:
                self._say_down(error)
            await asyncio.sleep(RETRY_SECONDS)

    def _begin(self, item: pb.WorkItem) -> None:
        self._is_down = False
        task = asyncio.create_task(self._work(item))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _work(self, item: pb.WorkItem) -> None:
        try:
            await self._run(read_item(item))
        except grpc.aio.AioRpcError as error:
            log.warning("the task hub took no answer, the item comes again: %s", error.details())
        except Exception:  # an item of a kind never seen must not end the host's other work
            log.exception("a work item broke; it comes again when its lease ends")

    async def _run(self, item: Item) -> None:
        function = self._functions.find(item.kind, item.name)
        inputs = {function.trigger.name: item.input()}
        outcome = await self._worker.invoke(function.id, function.name, inputs)
        report(function.name, outcome)
        if isinstance(outcome, Failed) and outcome.is_timeout:  # the platform's doing: run again
            await self._call(ABANDON[item.kind], item.refusal())
        else:
            await self._call(COMPLETE[item.kind], item.answer(outcome))

    async def _call(self, method: str, request: Message) -> None:
        """Tell the hub; one that is not there is told when it is back, if it still wants it."""
        while True:
            try:
                await getattr(self._stub, method)(request)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                self._say_down(error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _say_down(self, error: grpc.aio.AioRpcError) -> None:
        if not self._is_down:
            self._is_down = True
            log.warning("the task hub is down, trying on: %s", error.details())


def request_for(
    name: str, functions: DurableFunctions, options: DurableOptions
) -> pb.GetWorkItemsRequest:
    """Ask for the work of the app's own functions, within its limits."""
    filters = pb.WorkItemFilters(
        orchestrations=[
            pb.OrchestrationFilter(name=one) for one in functions.names(Kind.ORCHESTRATION)
        ],
        activities=[pb.ActivityFilter(name=one) for one in functions.names(Kind.ACTIVITY)],
        entities=[pb.EntityFilter(name=one) for one in functions.names(Kind.ENTITY)],
    )
    return pb.GetWorkItemsRequest(
        worker_instance_id=name,
        maxConcurrentOrchestrationWorkItems=options.max_orchestrators,
        maxConcurrentActivityWorkItems=options.max_activities,
        maxConcurrentEntityWorkItems=options.max_entities,
        workItemFilters=filters,
    )
