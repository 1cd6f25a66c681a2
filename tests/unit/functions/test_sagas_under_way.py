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
from shared.domain.saga.plan import SagaState, Stage, StepOutcome
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


def compensate_onward(progress: WalkProgress) -> Walk[SagaState]:
    """Compensation that begins with what was done first."""
    progress.done.reverse()
    return (yield from COMPENSATE(progress))


def take_one_by_one(progress: WalkProgress, stage: Stage, *, can_turn: bool) -> Walk[bool]:
    """A stage whose steps are applied one after another."""
    for step in stage.steps:
        alone = Stage(steps=(step,), is_final=stage.is_final)
        if not (yield from TAKE(progress, alone, can_turn=can_turn)):
            return False
    return True


def end_without_outcomes(progress: WalkProgress, state: SagaState) -> Walk[SagaState]:
    """An end that does not say what became of the steps."""
    progress.outcomes = {"all": StepOutcome.DONE}
    return (yield from END(progress, state))


def give_up_at_once(saga: Any, step: Any, *_: Any, **__: Any) -> ActivityCall:
    """Another activity where there was a step."""
    return saga_walk.give_up_call(saga, step)


def go_on_at_once(saga: Any, _: float) -> Walk[Any]:
    """Nobody who stands by."""
    yield saga_walk.ReportState(SagaState.RUNNING)
    return saga


COMPENSATE, TAKE, END = saga_walk.compensate, saga_walk.take, saga_walk.record_end
BREAKING: dict[str, tuple[str, Any, str]] = {
    "a new step before the others": ("walk", paused(saga_walk.walk), "completed"),
    "another order of compensation": ("compensate", compensate_onward, "timed_out"),
    "no more side by side": ("take", take_one_by_one, "completed"),
    "another activity": ("step_call", give_up_at_once, "completed"),
    "another end": ("record_end", end_without_outcomes, "completed"),
    "no more standing by": ("stand_by", go_on_at_once, "adopted"),
}


@pytest.mark.parametrize("change", BREAKING)
def test_a_change_that_would_break_sagas_under_way_is_found(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, replacement, course = BREAKING[change]
    monkeypatch.setattr(saga_walk, name, replacement)

    assert differences(course) != []
