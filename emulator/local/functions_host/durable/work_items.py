"""The stream of work items from the task hub, the invocations they ask for, and the answers.

Orchestrators and entities get the protobuf request in base64 and give the response so; activities
get and give JSON.

An item counts as held by this host while the host has a stream open. So a host that stops opens a
second one, that asks for nothing, before it closes the first: what runs keeps its leases.
"""

import asyncio
import base64
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal import orchestrator_service_pb2_grpc as stubs
from google.protobuf.message import Message  # type: ignore[import-untyped]
from google.protobuf.wrappers_pb2 import StringValue  # type: ignore[import-untyped]

from local.durable import POLLING_METADATA
from local.functions_host.config.host_json import DurableOptions
from local.functions_host.durable.kinds import DurableKind, FunctionsByName
from local.functions_host.protos import TypedData
from local.functions_host.worker.invocations import InvocationFailed, InvocationResult, log_result
from local.functions_host.worker.process import WorkerProcess

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
STREAM_SECONDS = 1.0
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
NAMED_ERROR = re.compile(r"(?P<type>[A-Za-z_][\w.]*): (?P<message>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OrchestratorItem:
    request: pb.OrchestratorRequest
    token: str
    kind: ClassVar = DurableKind.ORCHESTRATION
    complete_method: ClassVar = "CompleteOrchestratorTask"
    abandon_method: ClassVar = "AbandonTaskOrchestratorWorkItem"
    abandon_request: ClassVar = pb.AbandonOrchestrationTaskRequest

    @property
    def name(self) -> str:
        """The name under which the instance last started."""
        events = (*self.request.pastEvents, *self.request.newEvents)
        starts = [one.executionStarted for one in events if one.HasField("executionStarted")]
        return str(starts[-1].name)

    def input(self) -> TypedData:
        return encode(self.request)

    def answer(self, result: InvocationResult) -> pb.OrchestratorResponse:
        """The orchestrator's decisions; a failure outside the library fails the instance."""
        response = pb.OrchestratorResponse()
        if isinstance(result, InvocationFailed):
            end = pb.CompleteOrchestrationAction(
                orchestrationStatus=pb.ORCHESTRATION_STATUS_FAILED,
                failureDetails=failure_details(result),
            )
            response.actions.append(pb.OrchestratorAction(id=-1, completeOrchestration=end))
        else:
            response.ParseFromString(decode(result.value))
        response.instanceId, response.completionToken = self.request.instanceId, self.token
        return response


@dataclass(frozen=True, slots=True)
class ActivityItem:
    request: pb.ActivityRequest
    token: str
    kind: ClassVar = DurableKind.ACTIVITY
    complete_method: ClassVar = "CompleteActivityTask"
    abandon_method: ClassVar = "AbandonTaskActivityWorkItem"
    abandon_request: ClassVar = pb.AbandonActivityTaskRequest

    @property
    def name(self) -> str:
        return str(self.request.name)

    def input(self) -> TypedData:
        """Return the JSON text as the orchestrator wrote it."""
        request = self.request
        return TypedData(string=request.input.value if request.HasField("input") else "null")

    def answer(self, result: InvocationResult) -> pb.ActivityResponse:
        response = pb.ActivityResponse(
            instanceId=self.request.orchestrationInstance.instanceId,
            taskId=self.request.taskId,
            completionToken=self.token,
        )
        if isinstance(result, InvocationFailed):
            response.failureDetails.CopyFrom(failure_details(result))
        else:
            response.result.CopyFrom(StringValue(value=text_of(result.value)))
        return response


@dataclass(frozen=True, slots=True)
class EntityItem:
    request: pb.EntityRequest
    token: str
    kind: ClassVar = DurableKind.ENTITY
    complete_method: ClassVar = "CompleteEntityTask"
    abandon_method: ClassVar = "AbandonTaskEntityWorkItem"
    abandon_request: ClassVar = pb.AbandonEntityTaskRequest

    @property
    def name(self) -> str:
        """The name in the entity's id, `@name@key`."""
        return str(self.request.instanceId).split("@")[1]

    def input(self) -> TypedData:
        """The request in its older form, which is the one the library takes, encoded."""
        batch, _ = helpers.convert_to_entity_batch_request(self.request)
        return encode(batch)

    def answer(self, result: InvocationResult) -> pb.EntityBatchResult:
        _, operations = helpers.convert_to_entity_batch_request(self.request)
        response = pb.EntityBatchResult()
        if isinstance(result, InvocationFailed):  # as a whole: all operations, without effect
            failure = pb.OperationResultFailure(failureDetails=failure_details(result))
            response.results.extend(pb.OperationResult(failure=failure) for _ in operations)
            response.entityState.CopyFrom(self.request.entityState)
        else:
            response.ParseFromString(decode(result.value))
        del response.operationInfos[:]
        response.operationInfos.extend(operations)
        response.completionToken = self.token
        return response


type DurableItem = OrchestratorItem | ActivityItem | EntityItem


def read_item(item: pb.WorkItem) -> DurableItem:
    """Return the item as one of its kind; a kind never seen raises ValueError."""
    match item.WhichOneof("request"):
        case "orchestratorRequest":
            return OrchestratorItem(item.orchestratorRequest, item.completionToken)
        case "activityRequest":
            return ActivityItem(item.activityRequest, item.completionToken)
        case "entityRequestV2":
            return EntityItem(item.entityRequestV2, item.completionToken)
        case other:
            raise ValueError(f"a work item of the kind {other}")


def encode(message: Message) -> TypedData:
    return TypedData(string=base64.b64encode(message.SerializeToString()).decode())


def decode(value: TypedData | None) -> bytes:
    return base64.b64decode(text_of(value))


def text_of(value: TypedData | None) -> str:
    """The text a function gave back; nothing is JSON's null."""
    return "null" if value is None or value.value is None else str(value.value)


def failure_details(failure: InvocationFailed) -> pb.TaskFailureDetails:
    """A failure with the type of the exception told apart from its message."""
    match = NAMED_ERROR.fullmatch(failure.reason)
    return pb.TaskFailureDetails(
        errorType=match["type"] if match else "Exception",
        errorMessage=match["message"] if match else failure.reason or "no reason given",
        stackTrace=StringValue(value=failure.stack),
    )


class WorkItemStream:
    """Takes items as long as it runs; each is invoked on its own, up to the limits per kind."""

    def __init__(
        self,
        address: str,
        worker_name: str,
        functions: FunctionsByName,
        options: DurableOptions,
        worker: WorkerProcess,
    ) -> None:
        self._functions = functions
        self._worker = worker
        self._polling = ((POLLING_METADATA, str(options.polling_seconds)),)
        self._request = pb.GetWorkItemsRequest(
            worker_instance_id=worker_name,
            maxConcurrentOrchestrationWorkItems=options.max_orchestrators,
            maxConcurrentActivityWorkItems=options.max_activities,
            maxConcurrentEntityWorkItems=options.max_entities,
            workItemFilters=filter_functions(functions),
        )
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._stub = stubs.TaskHubSidecarServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._running: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None
        self._is_down = False

    def start(self) -> None:
        self._reader = asyncio.create_task(self._read())

    async def stop(self, drain_seconds: float) -> None:
        """Take nothing new, let what runs end within the limit; the rest goes to other hosts."""
        second_stream = await self._open_idle_stream()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=drain_seconds)
            for task in late:
                log.warning("durable work still running: cut off")
                task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        second_stream.cancel()
        await self._channel.close()

    async def _open_idle_stream(self) -> grpc.aio.UnaryStreamCall:
        """Open a stream that is handed nothing and keeps this host's leases, if the hub is up."""
        request = pb.GetWorkItemsRequest(worker_instance_id=self._request.worker_instance_id)
        request.workItemFilters.SetInParent()
        call = self._stub.GetWorkItems(request)
        with suppress(TimeoutError, grpc.aio.AioRpcError):
            async with asyncio.timeout(STREAM_SECONDS):
                await call.initial_metadata()
        return call

    async def _read(self) -> None:
        while True:
            try:
                async for item in self._stub.GetWorkItems(self._request, metadata=self._polling):
                    self._is_down = False
                    task = asyncio.create_task(self._work(item))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
            except grpc.aio.AioRpcError as error:
                self._log_down(error)
            await asyncio.sleep(RETRY_SECONDS)

    async def _work(self, work_item: pb.WorkItem) -> None:
        try:
            item = read_item(work_item)
            function = self._functions[item.kind, item.name]
            inputs = {function.trigger.name: item.input()}
            result = await self._worker.invoke(function.id, function.name, inputs)
            log_result(function.name, result)
            if isinstance(result, InvocationFailed) and result.is_process_lost:
                # Nobody answered for the item: it is run again.
                request = item.abandon_request(completionToken=item.token)
                await self._send(item.abandon_method, request)
            else:
                await self._send(item.complete_method, item.answer(result))
        except grpc.aio.AioRpcError as error:
            log.warning("the task hub took no answer, the item comes again: %s", error.details())
        except Exception:  # an item of a kind never seen must not end the host's other work
            log.exception("a work item broke; it comes again when its lease ends")

    async def _send(self, method: str, request: Message) -> None:
        """Answer the hub; one that is unavailable gets the answer when it is back."""
        while True:
            try:
                await getattr(self._stub, method)(request)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                self._log_down(error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _log_down(self, error: grpc.aio.AioRpcError) -> None:
        if not self._is_down:
            self._is_down = True
            log.warning("the task hub is down, trying again: %s", error.details())


def filter_functions(functions: FunctionsByName) -> pb.WorkItemFilters:
    filters = pb.WorkItemFilters()
    for kind, name in functions:
        match kind:
            case DurableKind.ORCHESTRATION:
                filters.orchestrations.add(name=name)
            case DurableKind.ACTIVITY:
                filters.activities.add(name=name)
            case DurableKind.ENTITY:
                filters.entities.add(name=name)
    return filters
