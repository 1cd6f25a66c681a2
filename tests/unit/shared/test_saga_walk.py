"""The orchestrator alone: requests out, answers in, and nothing else."""

from collections.abc import Iterable
from typing import Any

import pytest

from shared.domain.saga.plan import Command, Plan, SagaState, Stage, Step, Wait
from shared.domain.saga.walk import (
    INSISTENT_TRIES,
    Activity,
    ActivityCall,
    AwaitChange,
    CallAll,
    OutOfReach,
    ReportState,
    StartedSaga,
    WalkRequest,
    orchestrate,
)
from tests.unit.shared.test_saga_plan import WAIT
from tests.unit.shared.test_saga_plan import step as plain_step

DONE = {"outcome": "done"}
REFUSED = {"outcome": "refused", "reason": "no"}
UNKNOWN = {"outcome": "unknown", "reason": "too old"}


def step(name: str, **fields: object) -> Step:
    """A step that can be undone and is tried three times."""
    undo = Command(session=f"place:{name}", type="undo")
    return plain_step(name, **{"undo": undo, "tries": 3} | fields)


def stage(*names: str) -> Stage:
    return Stage(steps=tuple(map(step, names)))


def started(*parts: Stage | Wait) -> StartedSaga:
    return StartedSaga(key="k", at="2026-01-01T00:00:00+00:00", plan=Plan(parts=parts), events=())


def asked(saga: StartedSaga, answers: Iterable[Any]) -> list[str]:
    """What a walk asks for, in words, when it is given these answers; the end is the last word."""
    walk, given = orchestrate(saga), iter(answers)
    said: list[str] = []
    answer: Any = None
    while True:
        try:
            request = walk.send(answer)
        except StopIteration as stopped:
            return [*said, stopped.value]
        if isinstance(request, ReportState):
            answer = None
            continue
        said.append(words(request))
        answer = next(given)


def words(request: WalkRequest) -> str:
    """A request in a few words."""
    match request:
        case CallAll(calls):
            return " + ".join(map(call_words, calls))
        case AwaitChange(name, _):
            return f"listen {name}"
        case other:
            raise AssertionError(f"nobody expects {other}")


def call_words(call: ActivityCall) -> str:
    """A call in a few words."""
    match call.activity:
        case Activity.STEP:
            return f"{call.work['direction']} {call.work['step']['name']}"
        case Activity.GIVE_UP:
            return f"give up {call.work['step']['name']}"
        case Activity.END:
            return f"end {call.work['state']}"
        case activity:
            return activity.value


def end(state: SagaState) -> list[Any]:
    return [{"ended": state.value}]


WALKS: dict[str, tuple[StartedSaga, list[Any], list[str]]] = {
    "what nothing undoes is passed over": (
        started(Stage(steps=(plain_step("a"),)), stage("b")),
        [[DONE], [REFUSED], end(SagaState.COMPENSATED)],
        ["do a", "do b", "end compensated", "compensated"],
    ),
    "one waking up may tell of two waits": (
        started(WAIT, Wait(name="second", onward=("paid",), seconds=60), stage("a")),
        [
            True,
            [{"event": "approved", "events": ["approved", "paid"]}],
            [DONE],
            end(SagaState.COMPLETED),
        ],
        ["listen approval", "saga_decide", "do a", "end completed", "completed"],
    ),
    "a step without an answer that may have been done is a failure": (
        started(stage("a", "b"), stage("c")),
        [[None, DONE], [UNKNOWN], [DONE], end(SagaState.COMPENSATION_FAILED)],
        ["do a + do b", "give up a", "undo b", "end compensation-failed", "compensation-failed"],
    ),
}


@pytest.mark.parametrize("course", WALKS)
def test_a_walk_asks_for_one_thing_after_the_other(course: str) -> None:
    saga, answers, said = WALKS[course]

    assert asked(saga, answers) == said


def test_a_saga_whose_own_journal_never_answers_is_not_said_to_be_over() -> None:
    with pytest.raises(OutOfReach, match=f"saga_end of saga 'k' failed {INSISTENT_TRIES} times"):
        asked(started(stage("a")), [[DONE], [None]])


def test_steps_are_tried_as_often_as_they_say_and_what_must_be_known_for_days() -> None:
    walk = orchestrate(started(stage("a"), stage("b")))
    requests = [walk.send(None), walk.send(None), walk.send([DONE]), walk.send([REFUSED])]
    requests.append(walk.send(None))

    tries = [call.tries for one in requests if isinstance(one, CallAll) for call in one.calls]
    assert tries == [3, 3, INSISTENT_TRIES]
