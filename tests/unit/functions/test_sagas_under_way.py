"""Sagas that were under way when the code changed: recorded histories replay with the code of now.

Every turn of a history is given to the orchestrator again, and what it asks for is held against
what it asked for then: the activities with their inputs, the timers, the end. How they were
recorded is in `record_saga_histories`.
"""

import base64
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from azure.durable_functions import Orchestrator
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.json_format import Parse  # type: ignore[import-untyped]

from functions.triggers import saga_instances
from shared.domain.saga import walk as saga_walk
from shared.domain.saga.plan import SagaState, StepOutcome
from shared.domain.saga.walk import ActivityCall, Pause, StartedSaga, Walk, WalkProgress
from tests.unit.functions.record_saga_histories import HISTORIES

COURSES = {
    "completed": SagaState.COMPLETED,
    "sold_out": SagaState.COMPENSATED,
    "timed_out": SagaState.COMPENSATED,
    "adopted": SagaState.COMPLETED,
}

type Asked = tuple[str, Any]


def perform(
    orchestrator: Callable[[Any], str], request: pb.OrchestratorRequest
) -> pb.OrchestratorResponse:
    """What an orchestrator answers, when it is handed over what the host hands over."""
    handed = SimpleNamespace(body=base64.b64encode(request.SerializeToString()).decode())
    response = pb.OrchestratorResponse()
    response.ParseFromString(base64.b64decode(orchestrator(handed)))
    return response


def history(course: str) -> list[pb.HistoryEvent]:
    """The recorded events of a saga."""
    text = (HISTORIES / f"{course}.json").read_text()
    return list(Parse(text, pb.OrchestratorRequest()).pastEvents)


def turns(events: list[pb.HistoryEvent]) -> Iterator[tuple[pb.OrchestratorRequest, list[Asked]]]:
    """Every turn: what the orchestrator was given, and what it asked for."""
    starts = [n for n, event in enumerate(events) if event.HasField("orchestratorStarted")]
    for begin, end in zip(starts, [*starts[1:], len(events)], strict=True):
        turn = events[begin:end]
        asked = [told for event in turn if (told := asked_by(event)) is not None]
        given = [
            event
            for event in turn
            if asked_by(event) is None and not event.HasField("orchestratorCompleted")
        ]
        yield pb.OrchestratorRequest(pastEvents=events[:begin], newEvents=given), asked


def asked_by(event: pb.HistoryEvent) -> Asked | None:
    """What an event says that the orchestrator asked for."""
    match event.WhichOneof("eventType"):
        case "taskScheduled":
            return event.taskScheduled.name, json.loads(event.taskScheduled.input.value)
        case "timerCreated":
            return "timer", event.timerCreated.fireAt.ToJsonString()
        case "executionCompleted":
            return "end", json.loads(event.executionCompleted.result.value)
    return None


def asks(action: pb.OrchestratorAction) -> Asked:
    """What an orchestrator asks for now."""
    match action.WhichOneof("orchestratorActionType"):
        case "scheduleTask":
            return action.scheduleTask.name, json.loads(action.scheduleTask.input.value)
        case "createTimer":
            return "timer", action.createTimer.fireAt.ToJsonString()
        case "completeOrchestration":
            done = action.completeOrchestration
            return "end", json.loads(done.result.value) if done.result.value else str(done)
        case other:
            raise AssertionError(f"a saga never asks for {other}")


def keeps_to(recorded: Any, now: Any) -> bool:
    """Whether everything that was said then is said now; more may be."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        return all(k in now and keeps_to(value, now[k]) for k, value in recorded.items())
    if isinstance(recorded, list) and isinstance(now, list):
        return len(recorded) == len(now) and all(map(keeps_to, recorded, now))
    return bool(recorded == now)


def differences(course: str) -> list[str]:
    """Where the code of now does not do what was recorded."""
    found = []
    replay = Orchestrator.create(saga_instances.saga)
    for number, (request, recorded) in enumerate(turns(history(course))):
        request.instanceId = course
        now = [asks(action) for action in perform(replay, request).actions]
        if not keeps_to([list(one) for one in recorded], [list(one) for one in now]):
            found.append(f"turn {number} asked for {recorded}, and now for {now}")
    return found


@pytest.mark.parametrize("course", COURSES)
def test_a_recorded_saga_goes_on_as_it_began(course: str) -> None:
    assert differences(course) == []
    (_, ending) = list(turns(history(course)))[-1]
    assert ending == [("end", COURSES[course])]


@pytest.mark.parametrize("course", ["completed", "sold_out", "timed_out"])
def test_on_a_real_host_actions_are_at_most_1_and_2_a_step(course: str) -> None:
    events = history(course)
    begun = next(e.executionStarted for e in events if e.HasField("executionStarted"))
    plan = StartedSaga.model_validate(json.loads(begun.input.value)["saga"]).plan

    actions = sum(e.HasField("taskScheduled") or e.HasField("timerCreated") for e in events)

    assert 0 < actions <= 1 + 2 * (len(plan.steps) + len(plan.waits))


def paused(before: Callable[..., Walk[SagaState]]) -> Callable[..., Walk[SagaState]]:
    """A walk that does something first that it did not do before."""

    def walk(*arguments: Any) -> Walk[SagaState]:
        yield Pause(1.0)
        return (yield from before(*arguments))

    return walk


def end_without_outcomes(
    before: Callable[..., Walk[SagaState]],
) -> Callable[..., Walk[SagaState]]:
    """An end that does not say what became of the steps."""

    def record_end(progress: WalkProgress, state: SagaState) -> Walk[SagaState]:
        progress.outcomes = {"all": StepOutcome.DONE}
        return (yield from before(progress, state))

    return record_end


def give_up_at_once(_: Any) -> Callable[..., ActivityCall]:
    """Another activity where there was a step."""
    return lambda saga, step, *_, **__: saga_walk.give_up_call(saga, step)


@pytest.mark.parametrize(
    ("name", "change"),
    [("walk", paused), ("step_call", give_up_at_once), ("record_end", end_without_outcomes)],
)
def test_a_change_that_would_break_sagas_under_way_is_found(
    name: str, change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saga_walk, name, change(getattr(saga_walk, name)))

    assert differences("completed") != []
