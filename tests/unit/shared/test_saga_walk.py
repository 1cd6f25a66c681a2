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
    Pause,
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
COMPENSATED = ["end compensated", "compensated"]


def step(name: str, **fields: object) -> Step:
    """A step that can be undone and is tried three times."""
    undo = Command(session=f"place:{name}", type="undo")
    return plain_step(name, **{"undo": undo, "tries": 3} | fields)


def stage(*names: str, is_final: bool = False) -> Stage:
    return Stage(steps=tuple(map(step, names)), is_final=is_final)


def started(*parts: Stage | Wait, events: tuple[str, ...] = ()) -> StartedSaga:
    return StartedSaga(
        key="k", at="2026-01-01T00:00:00+00:00", plan=Plan(parts=parts), events=events
    )


def asked(saga: StartedSaga, answers: Iterable[Any], stand_by: float = 0.0) -> list[str]:
    """What a walk asks for, in words, when it is given these answers; the end is the last word."""
    walk, given = orchestrate(saga, stand_by), iter(answers)
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
        case Pause(seconds):
            return f"pause {seconds:g}"
        case ReportState(state):
            return f"tell {state}"


def call_words(call: ActivityCall) -> str:
    """A call in a few words."""
    match call.activity:
        case Activity.STEP:
            return f"{call.work['direction']} {call.work['step']['name']}"
        case Activity.GIVE_UP:
            return f"give up {call.work['step']['name']}"
        case Activity.END:
            return f"end {call.work['state']}"
        case Activity.DECIDE:
            return f"decide {'late' if call.work['is_over'] else 'now'}"
        case Activity.LOOK:
            return "look"


def decided(event: str | None, *others: str) -> dict[str, Any]:
    return {"event": event, "events": [event, *others] if event else []}


def end(state: SagaState) -> list[Any]:
    return [{"ended": state.value}]


WALKS: dict[str, tuple[StartedSaga, list[Any], list[str]]] = {
    "stages follow each other and their steps go side by side": (
        started(stage("a"), stage("b", "c")),
        [[DONE], [DONE, DONE], end(SagaState.COMPLETED)],
        ["do a", "do b + do c", "end completed", "completed"],
    ),
    "what nothing undoes is passed over": (
        started(Stage(steps=(plain_step("a"),)), stage("b")),
        [[DONE], [REFUSED], end(SagaState.COMPENSATED)],
        ["do a", "do b", *COMPENSATED],
    ),
    "one waking up may tell of two waits": (
        started(WAIT, Wait(name="second", onward=("paid",), seconds=60), stage("a")),
        [True, [decided("approved", "paid")], [DONE], end(SagaState.COMPLETED)],
        ["listen approval", "decide now", "do a", "end completed", "completed"],
    ),
    **{
        f"a wait that was decided before is not listened to: {event}": (
            started(stage("a"), WAIT, stage("b"), events=("other", event, "approved")),
            [[DONE], [DONE], end(SagaState.COMPENSATED)],
            ["do a", "undo a", *COMPENSATED],
        )
        for event in ("rejected", "timeout:approval", "cancelled")
    },
    "the end is the one that was recorded first": (
        started(stage("a")),
        [[DONE], end(SagaState.COMPENSATED)],
        ["do a", "end completed", "compensated"],
    ),
}


@pytest.mark.parametrize("course", WALKS)
def test_a_walk_asks_for_one_thing_after_the_other(course: str) -> None:
    saga, answers, said = WALKS[course]

    assert asked(saga, answers) == said


@pytest.mark.parametrize(
    ("settled", "then"),
    [
        (DONE, ["do c", "end completed"]),
        (REFUSED, ["undo b", "end compensated"]),
        (UNKNOWN, ["undo b", "end compensation-failed"]),
    ],
)
def test_a_silent_step_is_given_up_and_may_have_been_done(settled: Any, then: list[str]) -> None:
    ending = end(SagaState(then[-1].removeprefix("end ")))
    answers = [[None, DONE], [settled], [DONE], ending]

    assert asked(started(stage("a", "b"), stage("c")), answers)[:-1] == [
        "do a + do b",
        "give up a",
        *then,
    ]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([True, [decided("approved")]], ["listen approval", "decide now"]),
        (
            [True, [decided(None)], False, [decided("approved")]],
            ["listen approval", "decide now", "listen approval", "decide late"],
        ),
    ],
)
def test_a_wait_listens_until_the_journal_has_decided(answers: list[Any], said: list[str]) -> None:
    whole = asked(started(WAIT, stage("a")), [*answers, [DONE], end(SagaState.COMPLETED)])

    assert whole == [*said, "do a", "end completed", SagaState.COMPLETED]


def test_a_saga_whose_own_journal_never_answers_is_not_said_to_be_over() -> None:
    with pytest.raises(OutOfReach, match=f"saga_end of saga 'k' failed {INSISTENT_TRIES} times"):
        asked(started(stage("a")), [[DONE], [None]])


def test_steps_are_tried_as_often_as_they_say_and_what_must_be_known_for_days() -> None:
    walk = orchestrate(started(stage("a"), stage("b")))
    requests = [walk.send(None), walk.send(None), walk.send([DONE]), walk.send([REFUSED])]
    requests.append(walk.send(None))

    tries = [call.tries for one in requests if isinstance(one, CallAll) for call in one.calls]
    assert tries == [3, 3, INSISTENT_TRIES]
