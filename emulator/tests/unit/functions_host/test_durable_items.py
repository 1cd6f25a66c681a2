"""Durable work items, and the answer to the task hub when a function fails as a whole."""

import base64
import json

import pytest
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.wrappers_pb2 import StringValue  # type: ignore[import-untyped]

from local.functions_host.durable.extension import client_input
from local.functions_host.durable.kinds import DurableKind
from local.functions_host.durable.work_items import read_item
from local.functions_host.protos import TypedData
from local.functions_host.worker.invocations import InvocationFailed, InvocationSucceeded

FAILURE = InvocationFailed("ValueError: no such flight: N1", "line 1")


def orchestrator() -> pb.WorkItem:
    started = helpers.new_execution_started_event("saga", "one", None)
    request = pb.OrchestratorRequest(instanceId="one", newEvents=[started])
    return pb.WorkItem(orchestratorRequest=request, completionToken="7")


def activity(text: str | None) -> pb.WorkItem:
    request = pb.ActivityRequest(
        name="pay",
        taskId=3,
        input=None if text is None else StringValue(value=text),
        orchestrationInstance=pb.OrchestrationInstance(instanceId="one"),
    )
    return pb.WorkItem(activityRequest=request, completionToken="8")


def entity() -> pb.WorkItem:
    called = pb.EntityOperationCalledEvent(
        requestId="r1", operation="add", parentInstanceId=StringValue(value="one")
    )
    request = pb.EntityRequest(
        instanceId="@counter@key",
        entityState=StringValue(value="5"),
        operationRequests=[pb.HistoryEvent(entityOperationCalled=called)],
    )
    return pb.WorkItem(entityRequestV2=request, completionToken="9")


@pytest.mark.parametrize(
    ("item", "kind", "name"),
    [
        (orchestrator(), DurableKind.ORCHESTRATION, "saga"),
        (activity("1"), DurableKind.ACTIVITY, "pay"),
        (entity(), DurableKind.ENTITY, "counter"),
    ],
)
def test_an_item_names_its_function(item: pb.WorkItem, kind: DurableKind, name: str) -> None:
    read = read_item(item)

    assert (read.kind, read.name) == (kind, name)


def test_an_item_of_another_kind_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="healthPing"):
        read_item(pb.WorkItem(healthPing=pb.HealthPing()))


def test_an_orchestrator_is_given_its_request_in_base64() -> None:
    item = orchestrator()

    given = base64.b64decode(read_item(item).input().string)

    assert pb.OrchestratorRequest.FromString(given) == item.orchestratorRequest


@pytest.mark.parametrize(("sent", "given"), [('{"n": 1}', '{"n": 1}'), (None, "null")])
def test_an_activity_is_given_json(sent: str | None, given: str) -> None:
    assert read_item(activity(sent)).input().string == given


def test_an_activity_answers_with_json_under_its_token() -> None:
    answer = read_item(activity("1")).answer(InvocationSucceeded(TypedData(json='"paid"')))

    assert answer == pb.ActivityResponse(
        instanceId="one", taskId=3, completionToken="8", result=StringValue(value='"paid"')
    )


def test_a_failed_activity_tells_type_and_message_apart() -> None:
    details = read_item(activity("1")).answer(FAILURE).failureDetails

    assert (details.errorType, details.errorMessage) == ("ValueError", "no such flight: N1")
    assert details.stackTrace.value == "line 1"


def test_a_failure_without_words_is_a_failure_all_the_same() -> None:
    details = read_item(activity("1")).answer(InvocationFailed("")).failureDetails

    assert (details.errorType, details.errorMessage) == ("Exception", "no reason given")


def test_an_orchestrator_that_fails_as_a_whole_ends_its_instance() -> None:
    answer = read_item(orchestrator()).answer(FAILURE)

    (action,) = answer.actions
    end = action.completeOrchestration
    assert (answer.instanceId, answer.completionToken) == ("one", "7")
    assert end.orchestrationStatus == pb.ORCHESTRATION_STATUS_FAILED
    assert end.failureDetails.errorMessage == "no such flight: N1"


def test_an_entity_that_fails_as_a_whole_keeps_its_state_and_tells_its_callers() -> None:
    answer = read_item(entity()).answer(FAILURE)

    (result,), (operation,) = answer.results, answer.operationInfos
    assert answer.entityState.value == "5"
    assert result.failure.failureDetails.errorMessage == "no such flight: N1"
    assert (operation.requestId, operation.responseDestination.instanceId) == ("r1", "one")


def test_a_client_learns_where_hub_and_management_are() -> None:
    document = json.loads(
        client_input("127.0.0.1:4001", "hub", "http://127.0.0.1:7071", "k").string
    )

    assert document["rpcBaseUrl"] == "http://127.0.0.1:4001"
    assert document["taskHubName"] == "hub"
    assert document["httpBaseUrl"] == "http://127.0.0.1:7071/runtime/webhooks/durabletask"
    assert "code=k" in document["requiredQueryStringParameters"]
