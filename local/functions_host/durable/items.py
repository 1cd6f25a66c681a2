"""Work items: what a function is given for one, and what the task hub is told of its outcome.

Orchestrators and entities get the protobuf request in base64 and give the response so; activities
get and give JSON.
"""

import base64
import re
from dataclasses import dataclass
from typing import Protocol

from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.message import Message  # type: ignore[import-untyped]
from google.protobuf.wrappers_pb2 import StringValue  # type: ignore[import-untyped]

from local.functions_host.durable.functions import Kind
from local.functions_host.protos import TypedData
from local.functions_host.worker import Failed, Outcome, Succeeded

NAMED_ERROR = re.compile(r"(?P<type>[A-Za-z_][\w.]*): (?P<message>.+)", re.DOTALL)


class Item(Protocol):
    """One work item; `name` is the function's."""

    @property
    def kind(self) -> Kind:
        """Which kind of function it is for."""

    @property
    def name(self) -> str:
        """The name of the function."""

    def input(self) -> TypedData:
        """What the function is given."""

    def answer(self, outcome: Outcome) -> Message:
        """The message that completes the item."""

    def refusal(self) -> Message:
        """The message that gives the item back."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An orchestrator's turn: its history and the events that are new."""

    request: pb.OrchestratorRequest
    token: str
    kind: Kind = Kind.ORCHESTRATION

    @property
    def name(self) -> str:
        """The name under which the instance last started."""
        events = (*self.request.pastEvents, *self.request.newEvents)
        starts = [one.executionStarted for one in events if one.HasField("executionStarted")]
        return str(starts[-1].name)

    def input(self) -> TypedData:
        """The request, encoded."""
        return encoded(self.request)

    def answer(self, outcome: Outcome) -> pb.OrchestratorResponse:
        """The orchestrator's decisions; a failure outside the library fails the instance."""
        response = pb.OrchestratorResponse()
        match outcome:
            case Succeeded(value):
                response.ParseFromString(decoded(value))
            case Failed():
                end = pb.CompleteOrchestrationAction(
                    orchestrationStatus=pb.ORCHESTRATION_STATUS_FAILED,
                    failureDetails=details_of(outcome),
                )
                response.actions.append(pb.OrchestratorAction(id=-1, completeOrchestration=end))
        response.instanceId, response.completionToken = self.request.instanceId, self.token
        return response

    def refusal(self) -> pb.AbandonOrchestrationTaskRequest:
        """Give the turn back."""
        return pb.AbandonOrchestrationTaskRequest(completionToken=self.token)


@dataclass(frozen=True, slots=True)
class Activity:
    """One call of an activity."""

    request: pb.ActivityRequest
    token: str
    kind: Kind = Kind.ACTIVITY

    @property
    def name(self) -> str:
        """The name in the call."""
        return str(self.request.name)

    def input(self) -> TypedData:
        """JSON text as the orchestrator wrote it."""
        request = self.request
        return TypedData(string=request.input.value if request.HasField("input") else "null")

    def answer(self, outcome: Outcome) -> pb.ActivityResponse:
        """The result as JSON text, or why there is none."""
        response = pb.ActivityResponse(
            instanceId=self.request.orchestrationInstance.instanceId,
            taskId=self.request.taskId,
            completionToken=self.token,
        )
        match outcome:
            case Succeeded(value):
                response.result.CopyFrom(StringValue(value=text_of(value)))
            case Failed():
                response.failureDetails.CopyFrom(details_of(outcome))
        return response

    def refusal(self) -> pb.AbandonActivityTaskRequest:
        """Give the call back."""
        return pb.AbandonActivityTaskRequest(completionToken=self.token)


@dataclass(frozen=True, slots=True)
class Batch:
    """An entity's state and the operations on it that are due."""

    request: pb.EntityRequest
    token: str
    kind: Kind = Kind.ENTITY

    @property
    def name(self) -> str:
        """The name in the entity's id, `@name@key`."""
        return str(self.request.instanceId).split("@")[1]

    def input(self) -> TypedData:
        """The request in its older form, which is the one the library takes, encoded."""
        batch, _ = helpers.convert_to_entity_batch_request(self.request)
        return encoded(batch)

    def answer(self, outcome: Outcome) -> pb.EntityBatchResult:
        """The results; if the function failed as a whole, all operations did, without effect."""
        _, operations = helpers.convert_to_entity_batch_request(self.request)
        result = pb.EntityBatchResult()
        match outcome:
            case Succeeded(value):
                result.ParseFromString(decoded(value))
            case Failed():
                failure = pb.OperationResultFailure(failureDetails=details_of(outcome))
                result.results.extend(pb.OperationResult(failure=failure) for _ in operations)
                result.entityState.CopyFrom(self.request.entityState)
        del result.operationInfos[:]
        result.operationInfos.extend(operations)
        result.completionToken = self.token
        return result

    def refusal(self) -> pb.AbandonEntityTaskRequest:
        """Give the batch back."""
        return pb.AbandonEntityTaskRequest(completionToken=self.token)


def read_item(item: pb.WorkItem) -> Item:
    """Tell the kinds apart; one never seen raises ValueError."""
    match item.WhichOneof("request"):
        case "orchestratorRequest":
            return Turn(item.orchestratorRequest, item.completionToken)
        case "activityRequest":
            return Activity(item.activityRequest, item.completionToken)
        case "entityRequestV2":
            return Batch(item.entityRequestV2, item.completionToken)
        case other:
            raise ValueError(f"a work item of the kind {other}")


def encoded(message: Message) -> TypedData:
    """A message as base64 text."""
    return TypedData(string=base64.b64encode(message.SerializeToString()).decode())


def decoded(value: TypedData | None) -> bytes:
    """The bytes of base64 text."""
    return base64.b64decode(text_of(value))


def text_of(value: TypedData | None) -> str:
    """The text a function gave back; nothing is JSON's null."""
    return "null" if value is None or value.value is None else str(value.value)


def details_of(failure: Failed) -> pb.TaskFailureDetails:
    """A failure with the type of the exception told apart from its message."""
    match = NAMED_ERROR.fullmatch(failure.reason)
    return pb.TaskFailureDetails(
        errorType=match["type"] if match else "Exception",
        errorMessage=match["message"] if match else failure.reason or "no reason given",
        stackTrace=StringValue(value=failure.stack),
    )
