"""The stand-in for durabletask's worker asks for what the real one asked for on real hosts."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC

import pytest
from durabletask.internal import orchestrator_service_pb2 as pb
from google.protobuf.json_format import Parse  # type: ignore[import-untyped]
from google.protobuf.timestamp_pb2 import Timestamp  # type: ignore[import-untyped]

from shared.adapters.memory_store import EPOCH_SECONDS
from simulation.replay import (
    Answered,
    Asked,
    Began,
    Event,
    Failed,
    Fired,
    Raised,
    Scheduled,
    TimerSet,
    TurnBegan,
    replayed,
)
from tests.unit.functions.record_saga_histories import HISTORIES

KEPT: dict[str | None, Callable[[pb.HistoryEvent], Event]] = {
    "orchestratorStarted": lambda e: TurnBegan(seconds(e.timestamp)),
    "executionStarted": lambda e: Began(e.executionStarted.input.value),
    "taskScheduled": lambda e: Scheduled(
        e.eventId, e.taskScheduled.name, in_order(e.taskScheduled.input.value)
    ),
    "timerCreated": lambda e: TimerSet(e.eventId, seconds(e.timerCreated.fireAt)),
    "taskCompleted": lambda e: Answered(
        e.taskCompleted.taskScheduledId, e.taskCompleted.result.value
    ),
    "taskFailed": lambda e: Failed(e.taskFailed.taskScheduledId, "it failed"),
    "timerFired": lambda e: Fired(e.timerFired.timerId),
    "eventRaised": lambda e: Raised(e.eventRaised.name),
}
COURSES = sorted(path.stem for path in HISTORIES.glob("*.json"))


def recorded(course: str) -> list[Event]:
    """A history of a real host, as the simulated task hub keeps one."""
    text = (HISTORIES / f"{course}.json").read_text()
    events = Parse(text, pb.OrchestratorRequest()).pastEvents
    return [kept for event in events if (kept := as_kept(event)) is not None]


def as_kept(event: pb.HistoryEvent) -> Event | None:
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


def turns(history: list[Event]) -> Iterator[tuple[list[Event], list[Asked]]]:
    """Each turn: everything up to what was new in it, and what was asked for in it."""
    starts = [n for n, event in enumerate(history) if isinstance(event, TurnBegan)]
    for begin, end in zip(starts, [*starts[1:], len(history)], strict=True):
        asked: list[Asked] = [e for e in history[begin:end] if isinstance(e, Scheduled | TimerSet)]
        yield [event for event in history[:end] if event not in asked], asked


@pytest.mark.parametrize("course", COURSES)
def test_turn_by_turn_it_asks_for_what_was_asked_for(course: str) -> None:
    history = recorded(course)
    before: list[Event] = []
    for shown, asked in turns(history):
        news = [event for event in shown if event not in before]
        outcome = replayed([*before, *news])

        assert outcome.failed is None
        assert [comparable(one) for one in outcome.asked] == [comparable(one) for one in asked]
        before += [*news, *outcome.asked]


def comparable(asked: Asked) -> Asked:
    """What was asked for, at a time as exact as a history keeps it."""
    match asked:
        case TimerSet(number, at):
            return TimerSet(number, round(at, 3))
        case _:
            return asked


@pytest.mark.parametrize("course", COURSES)
def test_it_ends_as_the_saga_did(course: str) -> None:
    outcome = replayed(rewritten(recorded(course)))

    assert outcome.failed is None
    assert outcome.ended == outcome.status


def rewritten(history: list[Event]) -> list[Event]:
    """The history with the times that the stand-in gives to timers, to the last bit."""
    found: list[Event] = []
    for shown, _ in turns(history):
        found += [event for event in shown if event not in found]
        found += replayed(found).asked
    return found


def test_a_replay_that_asks_for_something_else_has_failed() -> None:
    history = rewritten(recorded("completed"))
    place, asked = next((n, e) for n, e in enumerate(history) if isinstance(e, Scheduled))
    for other in (
        Scheduled(asked.number, "saga_look", asked.work),
        Scheduled(asked.number, asked.name, "{}"),
        TimerSet(asked.number, 0.0),
    ):
        outcome = replayed([*history[:place], other, *history[place + 1 :]])

        assert outcome.failed is not None
        assert outcome.failed.startswith("NonDeterminismError")
        assert outcome.asked == ()
