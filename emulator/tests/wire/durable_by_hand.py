"""A worker of the Durable backend whose every step is taken by the test."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import grpc  # type: ignore[import-untyped]
from durabletask.client import TaskHubGrpcClient
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal import orchestrator_service_pb2_grpc as stubs
from google.protobuf.wrappers_pb2 import StringValue  # type: ignore[import-untyped]

from local.durable.backend import DurableBackend

ITEM_SECONDS = 60.0


class ByHand:
    """A worker whose every step is taken by the test."""

    def __init__(self, channel: grpc.Channel, worker_id: str = "") -> None:
        self.stub = stubs.TaskHubSidecarServiceStub(channel)  # type: ignore[no-untyped-call]
        request = pb.GetWorkItemsRequest(worker_instance_id=worker_id)
        self._stream = self.stub.GetWorkItems(request, timeout=ITEM_SECONDS)

    def next(self) -> pb.WorkItem:
        """The next item; a failure of the stream if none comes in time."""
        item: pb.WorkItem = next(self._stream)
        return item

    def wait_until_there(self) -> None:
        """Return when the backend knows of the stream."""
        self._stream.initial_metadata()

    def leave(self) -> None:
        """Close the stream."""
        self._stream.cancel()

    def schedule(self, item: pb.WorkItem, *activities: str) -> None:
        """Answer an orchestrator's turn: call these activities."""
        numbers = count(1)
        self.decide(
            item,
            *(
                pb.OrchestratorAction(
                    id=next(numbers), scheduleTask=pb.ScheduleTaskAction(name=name)
                )
                for name in activities
            ),
        )

    def finish(self, item: pb.WorkItem, output: str) -> None:
        """Answer an orchestrator's turn: it is done."""
        done = pb.CompleteOrchestrationAction(
            orchestrationStatus=pb.ORCHESTRATION_STATUS_COMPLETED,
            result=StringValue(value=json.dumps(output)),
        )
        self.decide(item, pb.OrchestratorAction(id=99, completeOrchestration=done))

    def answer(self, item: pb.WorkItem, result: str) -> None:
        """Answer an activity."""
        request = item.activityRequest
        self.stub.CompleteActivityTask(
            pb.ActivityResponse(
                instanceId=request.orchestrationInstance.instanceId,
                taskId=request.taskId,
                result=StringValue(value=json.dumps(result)),
                completionToken=item.completionToken,
            )
        )

    def decide(self, item: pb.WorkItem, *actions: pb.OrchestratorAction) -> None:
        self.stub.CompleteOrchestratorTask(
            pb.OrchestratorResponse(
                instanceId=item.orchestratorRequest.instanceId,
                actions=actions,
                completionToken=item.completionToken,
            )
        )


@contextmanager
def worker(backend: DurableBackend, worker_id: str = "") -> Iterator[ByHand]:
    """A worker of the backend, with a connection of its own."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(backend.address, options=options) as channel:
        yield ByHand(channel, worker_id)


def results_of(item: pb.WorkItem) -> list[str]:
    """The results of activities that are new in a turn."""
    return [
        json.loads(event.taskCompleted.result.value)
        for event in item.orchestratorRequest.newEvents
        if event.HasField("taskCompleted")
    ]


def output_of(client: TaskHubGrpcClient, instance: str) -> Any:
    """An instance's output once it is over."""
    state = client.wait_for_orchestration_completion(instance, timeout=60)
    assert state is not None
    return json.loads(state.serialized_output or "null")
