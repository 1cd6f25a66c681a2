"""The work of durabletask's worker on an instance: its orchestrator is run again from the start.

A stand-in for the worker's context, with durabletask's own tasks. Each turn goes through the whole
history first; what the orchestrator asks for then must be what the history says that it asked for.
Inputs and times are compared, too, which is more than durabletask does.
"""

import json
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from durabletask import task
from durabletask.internal import orchestrator_service_pb2 as pb

from functions.triggers.saga_instances import saga

# What a task hub keeps of an instance, named as in Durable Functions. Times are virtual seconds,
# inputs and results are JSON, and `number` tells the tasks of an instance apart.


@dataclass(frozen=True, slots=True)
class OrchestratorStarted:
    at: float


@dataclass(frozen=True, slots=True)
class ExecutionStarted:
    input: str


@dataclass(frozen=True, slots=True)
class TaskScheduled:
    number: int
    name: str
    input: str


@dataclass(frozen=True, slots=True)
class TimerCreated:
    number: int
    at: float


@dataclass(frozen=True, slots=True)
class TaskCompleted:
    number: int
    result: str


@dataclass(frozen=True, slots=True)
class TaskFailed:
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    number: int


@dataclass(frozen=True, slots=True)
class EventRaised:
    name: str


type ScheduledAction = TaskScheduled | TimerCreated
type ActivityResult = TaskCompleted | TaskFailed
type NewEvent = ExecutionStarted | ActivityResult | TimerFired | EventRaised
type HistoryEvent = OrchestratorStarted | NewEvent | ScheduledAction

NO_TIME = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn: what the orchestrator asks for next, and how it ended, if it has."""

    scheduled: tuple[ScheduledAction, ...]
    status: str | None
    ended: str | None
    failed: str | None


def replay(events: Iterable[HistoryEvent]) -> TurnResult:
    context = ReplayContext()
    failed = None
    try:
        for event in events:
            context.apply(event)
    except Exception as error:
        # In durabletask, too, an orchestrator that raises ends its instance.
        failed = f"{type(error).__name__}: {error}"
    scheduled = () if failed else tuple(context.scheduled.values())
    return TurnResult(scheduled, context.status, context.ended, failed)


@dataclass
class ReplayContext:
    """One run of the orchestrator. Methods without a docstring are those of OrchestrationContext.

    `scheduled` is what the history does not have yet; `retries` are the activities that are tried
    again, by the number of the timer before it. `now` is in virtual seconds.
    """

    now: float = 0.0
    number: int = 0
    scheduled: dict[int, ScheduledAction] = field(default_factory=dict)
    waiting: dict[int, task.CompletableTask[Any]] = field(default_factory=dict)
    activities: dict[int, TaskScheduled] = field(default_factory=dict)
    retries: dict[int, tuple[TaskScheduled, task.RetryableTask[Any]]] = field(default_factory=dict)
    buffered_events: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    listeners: dict[str, deque[task.CancellableTask[Any]]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    generator: Generator[task.Task[Any], Any, str] | None = None
    awaited: task.Task[Any] | None = None
    status: str | None = None
    ended: str | None = None

    def apply(self, event: HistoryEvent) -> None:
        match event:
            case OrchestratorStarted(at):
                self.now = at
            case ExecutionStarted(given):
                self.begin(json.loads(given))
            case TaskScheduled() | TimerCreated():
                self.compare(event)
            case EventRaised(name):
                self.receive_event(name)
            case TaskCompleted(number, result):
                self.complete(number, json.loads(result))
            case TaskFailed(number, reason):
                self.fail(number, reason)
            case TimerFired(number):
                self.fire(number)

    def begin(self, given: Mapping[str, Any]) -> None:
        self.generator = saga(cast(task.OrchestrationContext, self), given)
        try:
            self.awaited = next(self.generator)
        except StopIteration as stopped:
            self.ended = stopped.value

    def resume(self) -> None:
        while self.ended is None and self.generator and self.awaited and self.awaited.is_complete:
            try:
                if self.awaited.is_failed:
                    self.awaited = self.generator.throw(self.awaited.get_exception())
                else:
                    self.awaited = self.generator.send(self.awaited.get_result())
            except StopIteration as stopped:
                self.ended = stopped.value

    def compare(self, event: ScheduledAction) -> None:
        """Require that the orchestrator asks for what it asked for before."""
        scheduled = self.scheduled.pop(event.number, None)
        if scheduled != event:
            raise task.NonDeterminismError(f"asked for {event}, and now for {scheduled}")

    def complete(self, number: int, result: Any) -> None:
        waiting = self.waiting.pop(number, None)
        if waiting is not None:
            waiting.complete(result)
            self.resume()

    def fail(self, number: int, reason: str) -> None:
        """Schedule a failed activity again after a while, or fail its task."""
        waiting = self.waiting.pop(number, None)
        if not isinstance(waiting, task.RetryableTask):
            return
        delay = waiting.compute_next_delay()
        if delay is None:
            waiting.fail(reason, RuntimeError(reason))
            self.resume()
            return
        waiting.increment_attempt_count()
        self.create_timer(delay)
        self.retries[self.number] = (self.activities[number], waiting)

    def fire(self, number: int) -> None:
        """Complete a timer, or try the activity again that waits for it."""
        if number not in self.retries:
            self.complete(number, None)
        elif self.waiting.pop(number, None) is not None:
            activity, waiting = self.retries[number]
            self.scheduled[activity.number] = activity
            self.waiting[activity.number] = waiting

    def receive_event(self, name: str) -> None:
        if not self.listeners[name]:
            self.buffered_events[name] += 1
            return
        self.listeners[name].popleft().complete(None)
        self.resume()

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def create_timer(self, delay: timedelta) -> task.TimerTask:
        number, timer = self.next_number(), task.TimerTask()
        self.scheduled[number] = TimerCreated(number, self.now + delay.total_seconds())
        self.waiting[number] = timer
        return timer

    def call_activity(
        self,
        name: str,
        *,
        input: Any,  # noqa: A002 - the SDK's name
        retry_policy: task.RetryPolicy,
    ) -> task.CompletableTask[Any]:
        number = self.next_number()
        activity = TaskScheduled(number, name, json.dumps(input, sort_keys=True))
        self.scheduled[number] = self.activities[number] = activity
        # The saga sets no time for all attempts together, so when they began does not matter.
        waiting: task.CompletableTask[Any] = task.RetryableTask(
            retry_policy, pb.OrchestratorAction(), NO_TIME, is_sub_orch=False
        )
        self.waiting[number] = waiting
        return waiting

    def wait_for_external_event(self, name: str) -> task.CancellableTask[Any]:
        event: task.CancellableTask[Any] = task.CancellableTask()
        if self.buffered_events[name]:
            self.buffered_events[name] -= 1
            event.complete(None)
        else:
            self.listeners[name].append(event)
        return event

    def set_custom_status(self, status: str) -> None:
        self.status = status
