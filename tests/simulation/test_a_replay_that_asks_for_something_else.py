"""A simulated instance goes on as it began, or has failed: names, inputs and times are compared."""

import json
from datetime import UTC, datetime

import pytest
from durabletask.internal import helpers
from durabletask.internal.orchestrator_service_pb2 import HistoryEvent

from proof.simulation.world.replay import note_action, replay
from shared.domain.saga.plan import Command, Plan, Stage, Step, Wait
from shared.domain.saga.walk import StartedSaga

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
STAGE = Stage(steps=(Step(name="a", do=Command(session="place:a", type="do")),))
WAIT = Wait(name="w", onward=("yes",), seconds=60)


def first_turn(*parts: Stage | Wait) -> list[HistoryEvent]:
    """The history of an instance after its first turn, in which it asks for one thing."""
    saga = StartedSaga(key="k", at=BEGAN.isoformat(), plan=Plan(parts=parts))
    work = json.dumps({"saga": saga.model_dump(mode="json"), "stand_by_seconds": 0})
    begun = [
        helpers.new_orchestrator_started_event(BEGAN),
        helpers.new_execution_started_event("saga", "k", work),
    ]
    (asked,) = replay([], begun).scheduled
    return [*begun, note_action(asked)]


STEPPING, WAITING = first_turn(STAGE), first_turn(WAIT, STAGE)
STEP, TIMER = STEPPING[-1], WAITING[-1]


@pytest.mark.parametrize("history", [STEPPING, WAITING], ids=["a step", "a timer"])
@pytest.mark.parametrize(
    "noted",
    [
        STEP,
        TIMER,
        helpers.new_task_scheduled_event(1, "saga_end", STEP.taskScheduled.input.value),
        helpers.new_task_scheduled_event(1, STEP.taskScheduled.name, "{}"),
        helpers.new_timer_created_event(1, BEGAN),
    ],
    ids=["the step", "the timer", "another activity", "another input", "another time"],
)
def test_what_an_instance_asked_for_must_be_what_its_history_says(
    history: list[HistoryEvent], noted: HistoryEvent
) -> None:
    again = replay([*history[:-1], noted], [helpers.new_orchestrator_started_event(BEGAN)])

    assert again.scheduled == ()
    assert ("NonDeterminismError" in str(again.failed)) is (noted != history[-1])
