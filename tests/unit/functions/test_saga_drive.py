"""A walk's requests as Durable Functions performs them, turn by turn, without a host."""

import json
from collections.abc import Generator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.durable_functions import Orchestrator
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb

from functions.triggers import saga_instances
from functions.triggers.saga_drive import CHANGED, NOT_OURS, await_answer, retry_policy_of
from shared.domain.saga.plan import Command, Plan, Stage, Step, Wait
from shared.domain.saga.walk import (
    INSISTENT_PAUSE_SECONDS_MAX,
    INSISTENT_TRIES,
    Activity,
    ActivityCall,
    StartedSaga,
)
from tests.unit.functions.test_sagas_under_way import perform

START = datetime(2026, 1, 1, tzinfo=UTC)
DONE = {"outcome": "done", "reason": None}


def wait(name: str) -> Wait:
    return Wait(name=name, onward=(f"{name}-yes",), seconds=60)


def step(name: str) -> Step:
    return Step(name=name, do=Command(session=f"place:{name}", type="do"), tries=2)


class Instance:
    """An instance whose every event comes from the test."""

    def __init__(self, *parts: Stage | Wait) -> None:
        saga = StartedSaga(key="k", at=START.isoformat(), plan=Plan(parts=parts))
        work = {"saga": saga.model_dump(mode="json"), "stand_by_seconds": 0}
        begun = helpers.new_execution_started_event("saga", "i", json.dumps(work))
        self.orchestrator = Orchestrator.create(saga_instances.saga)
        self.past: list[pb.HistoryEvent] = []
        self.first: list[pb.HistoryEvent] = [begun]
        self.now = START

    def turn(self, *events: pb.HistoryEvent) -> list[str]:
        """Give the instance events; what it asks for."""
        self.now += timedelta(seconds=1)
        new = [helpers.new_orchestrator_started_event(self.now), *self.first, *events]
        request = pb.OrchestratorRequest(instanceId="i", pastEvents=self.past, newEvents=new)
        actions = perform(self.orchestrator, request).actions
        self.past += [*new, *map(self.noted, actions)]
        self.first = []
        return list(map(words, actions))

    def noted(self, action: pb.OrchestratorAction) -> pb.HistoryEvent:
        """What the history keeps of an action."""
        if action.HasField("createTimer"):
            fire_at = action.createTimer.fireAt.ToDatetime(tzinfo=UTC)
            return helpers.new_timer_created_event(action.id, fire_at)
        task = action.scheduleTask
        return helpers.new_task_scheduled_event(action.id, task.name, task.input.value)


def words(action: pb.OrchestratorAction) -> str:
    """What an instance asks for, in a few words."""
    match action.WhichOneof("orchestratorActionType"):
        case "scheduleTask":
            return f"{action.id} {action.scheduleTask.name}"
        case "createTimer":
            return f"{action.id} timer"
        case other:
            return f"{action.id} {other} {action.completeOrchestration.result.value}"


def completed(task: int, answer: Any) -> pb.HistoryEvent:
    return helpers.new_task_completed_event(task, json.dumps(answer))


def failed(task: int) -> pb.HistoryEvent:
    return helpers.new_task_failed_event(task, RuntimeError("no answer"))


def woken() -> pb.HistoryEvent:
    return helpers.new_event_raised_event(CHANGED, None)


def fired(timer: int, instance: Instance) -> pb.HistoryEvent:
    return helpers.new_timer_fired_event(timer, instance.now)


def decided(task: int, event: str | None, *events: str) -> pb.HistoryEvent:
    return completed(task, {"event": event, "events": events})


def test_a_woken_instance_asks_the_journal_and_listens_on_if_it_is_undecided() -> None:
    instance = Instance(wait("first"), Stage(steps=(step("a"),)))

    assert instance.turn() == ["1 timer"]
    assert instance.turn(woken()) == ["2 saga_decide"]
    assert instance.turn(decided(2, None, "other")) == []
    assert instance.turn(woken()) == ["3 saga_decide"]
    assert instance.turn(decided(3, "first-yes", "first-yes")) == ["4 saga_step"]
    assert instance.turn(completed(4, DONE)) == ["5 saga_end"]


def test_what_woke_it_between_two_waits_is_not_lost() -> None:
    for is_early in (True, False):
        instance = Instance(wait("first"), wait("second"), Stage(steps=(step("a"),)))
        assert instance.turn() == ["1 timer"]
        # Time is up just as the event is recorded: nobody heard of it, and it decides all the same.
        assert instance.turn(fired(1, instance)) == ["2 saga_decide"]
        answered = decided(2, "first-yes", "first-yes")

        if is_early:
            assert instance.turn(woken()) == []
            assert instance.turn(answered) == ["3 timer", "4 saga_decide"]
        else:
            assert instance.turn(answered) == ["3 timer"]
            assert instance.turn(woken()) == ["4 saga_decide"]


def test_steps_run_side_by_side_and_one_that_keeps_failing_is_given_up() -> None:
    instance = Instance(Stage(steps=(step("a"), step("b"))))

    assert instance.turn() == ["1 saga_step", "2 saga_step"]
    assert instance.turn(completed(2, DONE), failed(1)) == ["3 timer"]
    instance.now += timedelta(seconds=2)
    assert instance.turn(fired(3, instance)) == ["1 saga_step"]
    assert instance.turn(failed(1)) == ["4 saga_give_up"]
    assert instance.turn(completed(4, DONE)) == ["5 saga_end"]


def test_a_step_that_another_application_took_is_asked_for_again_without_a_try() -> None:
    instance = Instance(Stage(steps=(step("a"), step("b"))))

    assert instance.turn() == ["1 saga_step", "2 saga_step"]
    assert instance.turn(completed(2, DONE), completed(1, NOT_OURS)) == ["3 timer"]
    assert instance.turn(fired(3, instance)) == ["4 saga_step"]
    assert instance.turn(failed(4)) == ["5 timer"]
    instance.now += timedelta(seconds=2)
    assert instance.turn(fired(5, instance)) == ["4 saga_step"]
    assert instance.turn(completed(4, DONE)) == ["6 saga_end"]


def test_other_applications_are_asked_ever_less_often_and_not_for_ever() -> None:
    pauses: list[float] = []
    asked: list[str] = ["first"]
    answers: list[Any] = []
    context: Any = SimpleNamespace(create_timer=lambda pause: pauses.append(pause.total_seconds()))

    def ask() -> Any:
        asked.append("again")
        return "again"

    def asking() -> Generator[Any, Any]:
        answers.append((yield from await_answer(context, ask, cast("Any", "first"))))

    asks = asking()
    awaited = [next(asks)]
    with suppress(StopIteration):
        while True:
            awaited.append(asks.send(NOT_OURS if awaited[-1] else None))

    assert answers == [None]
    assert [one for one in awaited if one] == asked
    assert len(asked) == INSISTENT_TRIES == len(pauses) + 1
    assert pauses[:4] == [1, 2, 4, 8]
    assert set(pauses[12:]) == {INSISTENT_PAUSE_SECONDS_MAX}


@pytest.mark.parametrize(("tries", "pause_max"), [(5, 60.0), (200, 3600.0)])
def test_pauses_double_up_to_the_longest(tries: int, pause_max: float) -> None:
    found = retry_policy_of(ActivityCall(Activity.STEP, {}, tries, pause_seconds_max=pause_max))

    assert found.max_number_of_attempts == tries
    assert found.first_retry_interval == timedelta(seconds=1)
    assert found.backoff_coefficient == 2
    assert found.max_retry_interval == timedelta(seconds=pause_max)
