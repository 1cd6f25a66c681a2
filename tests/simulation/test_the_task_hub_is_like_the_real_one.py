"""The stand-in for durabletask's worker asks for what the real one asked for on real hosts."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.json_format import Parse  # type: ignore[import-untyped]
from google.protobuf.timestamp_pb2 import Timestamp  # type: ignore[import-untyped]

from proof.simulation.world.replay import (
    EventRaised,
    ExecutionStarted,
    HistoryEvent,
    OrchestratorStarted,
    ScheduledAction,
    TaskCompleted,
    TaskFailed,
    TaskScheduled,
    TimerCreated,
    TimerFired,
    replay,
)
from shared.testkit.memory_store import EPOCH_SECONDS
from tests.unit.functions.record_saga_histories import HISTORIES

KEPT: dict[str | None, Callable[[pb.HistoryEvent], HistoryEvent]] = {
    "orchestratorStarted": lambda e: OrchestratorStarted(seconds(e.timestamp)),
    "executionStarted": lambda e: ExecutionStarted(e.executionStarted.input.value),
    "taskScheduled": lambda e: TaskScheduled(
        e.eventId, e.taskScheduled.name, in_order(e.taskScheduled.input.value)
    ),
    "timerCreated": lambda e: TimerCreated(e.eventId, seconds(e.timerCreated.fireAt)),
    "taskCompleted": lambda e: TaskCompleted(
        e.taskCompleted.taskScheduledId, e.taskCompleted.result.value
    ),
    "taskFailed": lambda e: TaskFailed(e.taskFailed.taskScheduledId, "it failed"),
    "timerFired": lambda e: TimerFired(e.timerFired.timerId),
    "eventRaised": lambda e: EventRaised(e.eventRaised.name),
}
COURSES = sorted(path.stem for path in HISTORIES.glob("*.json"))


def recorded(course: str) -> list[HistoryEvent]:
    """A history of a real host, as the simulated task hub keeps one."""
    text = (HISTORIES / f"{course}.json").read_text()
    events = Parse(text, pb.OrchestratorRequest()).pastEvents
    return [kept for event in events if (kept := as_kept(event)) is not None]


def as_kept(event: pb.HistoryEvent) -> HistoryEvent | None:
    """One event of a real history."""
    kind = event.WhichOneof("eventType")
    return KEPT[kind](event) if kind in KEPT else None


def seconds(at: Timestamp) -> float:
    """A time as virtual seconds; a history keeps microseconds."""
    found: float = at.ToDatetime(tzinfo=UTC).timestamp()
    return round(found - EPOCH_SECONDS, 6)


def in_order(work: str) -> str:
    """An input with its names in order."""
    return json.dumps(json.loads(work), sort_keys=True)


def turns(
    history: list[HistoryEvent],
) -> Iterator[tuple[list[HistoryEvent], list[ScheduledAction]]]:
    """Each turn: everything up to what was new in it, and what was asked for in it."""
    starts = [n for n, event in enumerate(history) if isinstance(event, OrchestratorStarted)]
    for begin, end in zip(starts, [*starts[1:], len(history)], strict=True):
        scheduled: list[ScheduledAction] = [
            e for e in history[begin:end] if isinstance(e, TaskScheduled | TimerCreated)
        ]
        yield [event for event in history[:end] if event not in scheduled], scheduled


@pytest.mark.parametrize("course", COURSES)
def test_turn_by_turn_it_asks_for_what_was_asked_for(course: str) -> None:
    history = recorded(course)
    before: list[HistoryEvent] = []
    for shown, scheduled in turns(history):
        news = [event for event in shown if event not in before]
        result = replay([*before, *news])

        assert result.failed is None
        assert [comparable(one) for one in result.scheduled] == [
            comparable(one) for one in scheduled
        ]
        before += [*news, *result.scheduled]


def comparable(scheduled: ScheduledAction) -> ScheduledAction:
    """What was asked for, at a time as exact as a history keeps it."""
    match scheduled:
        case TimerCreated(number, at):
            return TimerCreated(number, round(at, 3))
        case _:
            return scheduled


@pytest.mark.parametrize("course", COURSES)
def test_it_ends_as_the_saga_did(course: str) -> None:
    result = replay(rewritten(recorded(course)))

    assert result.failed is None
    assert result.ended == result.status


def rewritten(history: list[HistoryEvent]) -> list[HistoryEvent]:
    """The history with the times that the stand-in gives to timers, to the last bit."""
    found: list[HistoryEvent] = []
    for shown, _ in turns(history):
        found += [event for event in shown if event not in found]
        found += replay(found).scheduled
    return found


def test_a_replay_that_asks_for_something_else_has_failed() -> None:
    history = rewritten(recorded("completed"))
    place, scheduled = next((n, e) for n, e in enumerate(history) if isinstance(e, TaskScheduled))
    for other in (
        TaskScheduled(scheduled.number, "saga_look", scheduled.input),
        TaskScheduled(scheduled.number, scheduled.name, "{}"),
        TimerCreated(scheduled.number, 0.0),
    ):
        result = replay([*history[:place], other, *history[place + 1 :]])

        assert result.failed is not None
        assert result.failed.startswith("NonDeterminismError")
        assert result.scheduled == ()
