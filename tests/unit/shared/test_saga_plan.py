"""A plan is checked before anything is begun, and walked: requests out, answers in."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from shared.domain.saga.plan import (
    Command,
    Direction,
    Plan,
    SagaState,
    Stage,
    Step,
    Wait,
    instance_of,
    key_of,
    longest_time,
    pauses_between,
    session_of,
    step_id,
    step_message,
)
from shared.domain.saga.walk import (
    INSISTENT_TRIES,
    Activity,
    ActivityCall,
    CallAll,
    OutOfReach,
    StartedSaga,
    orchestrate,
)


def step(name: str, **fields: object) -> Step:
    """A step whose command says little, which nothing undoes."""
    command = Command(session=f"place:{name}", type="place.do", body={"b": 1, "a": 2})
    return Step.model_validate({"name": name, "do": command, **fields})


def stage(*names: str, is_final: bool = False) -> Stage:
    """Steps side by side."""
    return Stage(steps=tuple(map(step, names)), is_final=is_final)


WAIT = Wait(name="approval", onward=("approved",), back=("rejected",), seconds=60)


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ((), "at least 1"),
        ((WAIT,), "there is no step"),
        ((stage("a"), stage("a")), "two parts are named 'a'"),
        ((stage("a"), WAIT, WAIT), "two parts are named 'approval'"),
        ((stage("a", is_final=True), stage("b", is_final=True)), "two stages are final"),
        ((stage("a", is_final=True), WAIT, stage("b")), "a wait comes after the last stage"),
        ((stage("a"), WAIT), "a wait comes after the last stage"),
        ((WAIT.model_copy(update={"seconds": 4e5}), stage("a")), "over 259200"),
    ],
)
def test_what_could_not_be_carried_out_is_refused(parts: tuple[Stage, ...], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Plan(parts=parts)


@pytest.mark.parametrize(
    ("events", "decision"),
    [
        ([], None),
        (["other", "timeout:other"], None),
        (["approved"], "approved"),
        (["rejected", "approved"], "rejected"),
        (["timeout:approval", "approved"], "timeout:approval"),
        (["other", "cancelled"], "cancelled"),
    ],
)
def test_the_first_event_that_counts_decides_a_wait(
    events: list[str], decision: str | None
) -> None:
    assert WAIT.decision(events) == decision


def test_a_steps_ids_follow_from_saga_step_and_direction_alone() -> None:
    ids = {
        step_id(key, name, direction)
        for key in ("k", "k-1")
        for name in ("a", "b")
        for direction in Direction
    }

    assert len(ids) == 8
    assert step_id("k", "a", Direction.DO) == "31c4ab73e5efb2a6557977244c9facb1"


def test_a_steps_message_has_the_time_of_the_start_and_a_body_in_one_order() -> None:
    message = step_message("k", "2026-01-01T00:00:00+00:00", step("a"), Direction.DO)

    assert (message.session, message.type, message.time) == (
        "place:a",
        "place.do",
        "2026-01-01T00:00:00+00:00",
    )
    assert message.body == b'{"a":2,"b":1}'
    with pytest.raises(ValueError, match="nothing that undoes it"):
        step_message("k", "2026-01-01T00:00:00+00:00", step("a"), Direction.UNDO)


def test_tries_are_paused_longer_and_longer_up_to_a_minute() -> None:
    assert list(pauses_between(1)) == []
    assert list(pauses_between(9)) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert longest_time(step("a", tries=3, seconds=10)) == 33


def test_a_sagas_session_and_instance_follow_from_its_key() -> None:
    assert key_of(session_of("o-1")) == "o-1"
    assert key_of("order:o-1") is None
    assert key_of("saga:") is None
    assert instance_of("o-1") == instance_of("o-1") != instance_of("o-2")


# When a plan is walked, one thing is asked for after the other.

DONE = {"outcome": "done"}
REFUSED = {"outcome": "refused", "reason": "no"}


def undoable(name: str) -> Stage:
    """A step that can be undone and is tried three times."""
    undo = Command(session=f"place:{name}", type="undo")
    return Stage(steps=(step(name, undo=undo, tries=3),))


def calls_of(parts: Sequence[Stage | Wait], *answers: Any) -> list[ActivityCall]:
    """The activities that a walk calls when it is given these answers; a report wants None."""
    at = "2026-01-01T00:00:00+00:00"
    walk = orchestrate(StartedSaga(key="k", at=at, plan=Plan(parts=tuple(parts)), events=()))
    requests = [walk.send(answer) for answer in (None, None, *answers)]
    return [call for one in requests if isinstance(one, CallAll) for call in one.calls]


def test_what_nothing_undoes_is_passed_over() -> None:
    *steps, end = calls_of((stage("a"), undoable("b")), [DONE], [REFUSED], None)

    assert [call.work["direction"] for call in steps] == ["do", "do"]
    assert end.work["state"] == SagaState.COMPENSATED


def test_one_waking_up_may_tell_of_two_waits() -> None:
    second = Wait(name="second", onward=("paid",), seconds=60)
    told = {"event": "approved", "events": ["approved", "paid"]}

    called = calls_of((WAIT, second, undoable("a")), True, [told])

    assert [call.activity for call in called] == [Activity.DECIDE, Activity.STEP]


def test_a_saga_whose_own_journal_never_answers_is_not_said_to_be_over() -> None:
    with pytest.raises(OutOfReach, match=f"saga_end of saga 'k' failed {INSISTENT_TRIES} times"):
        calls_of((undoable("a"),), [DONE], [None])


def test_steps_are_tried_as_often_as_they_say_and_what_must_be_known_for_days() -> None:
    called = calls_of((undoable("a"), undoable("b")), [DONE], [REFUSED], None)

    assert [call.tries for call in called] == [3, 3, INSISTENT_TRIES]
