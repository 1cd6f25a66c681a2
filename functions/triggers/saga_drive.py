"""The work of Durable Functions for a saga's walk."""

from collections.abc import Generator, Iterable
from datetime import timedelta
from typing import Any

from durabletask import task
from durabletask.task import OrchestrationContext, RetryPolicy, TaskFailedError

from shared.domain.saga.plan import SagaState
from shared.domain.saga.walk import (
    ActivityCall,
    AwaitChange,
    CallAll,
    Pause,
    ReportState,
    Walk,
    WalkRequest,
)

# Raised in every region's instance when the saga's journal has changed.
CHANGED = "changed"

type DurableSteps[T] = Generator[Any, Any, T]


class ChangeListener:
    """The events that an instance waits for: each call of it wakes it once."""

    def __init__(self, context: OrchestrationContext) -> None:
        self.context = context
        self.timers: dict[str, task.TimerTask] = {}
        # A wait that a timer ended leaves this task open, and the next wait uses it again: with two
        # of them an event would go to the first, which nobody waits for any more.
        self.change: task.CancellableTask[Any] | None = None

    def wait(self, name: str, seconds: float) -> DurableSteps[bool]:
        """Return whether the instance was woken before the time of this name was up."""
        if name not in self.timers:
            self.timers[name] = self.context.create_timer(timedelta(seconds=seconds))
        if self.change is None:
            self.change = self.context.wait_for_external_event(CHANGED)
        yield task.when_any([self.change, self.timers[name]])
        is_woken = self.change.is_complete
        if is_woken:
            self.change = None
        return is_woken


def drive(context: OrchestrationContext, walk: Walk[SagaState]) -> DurableSteps[str]:
    """Perform a walk's requests with Durable's means; the answer is the saga's end."""
    listener = ChangeListener(context)
    answer: Any = None
    while True:
        try:
            request = walk.send(answer)
        except StopIteration as stopped:
            return SagaState(stopped.value).value
        answer = yield from perform(context, request, listener)


def perform(
    context: OrchestrationContext, request: WalkRequest, listener: ChangeListener
) -> DurableSteps[Any]:
    match request:
        case CallAll(calls):
            return (yield from call_activities(context, calls))
        case AwaitChange(name, seconds):
            return (yield from listener.wait(name, seconds))
        case Pause(seconds):
            yield context.create_timer(timedelta(seconds=seconds))
        case ReportState(state):
            context.set_custom_status(state.value)
    return None


def call_activities(
    context: OrchestrationContext, calls: Iterable[ActivityCall]
) -> DurableSteps[list[Any]]:
    """The answers of activities that run side by side; None for one whose tries all failed."""
    running: list[task.CompletableTask[Any]] = [
        context.call_activity(
            call.activity.value, input=call.work, retry_policy=retry_policy_of(call)
        )
        for call in calls
    ]
    answers = []
    for one in running:
        try:
            answers.append((yield one))
        except TaskFailedError:
            answers.append(None)
    return answers


def retry_policy_of(call: ActivityCall) -> RetryPolicy:
    """Return how a call is tried again: twice as long after every time."""
    return RetryPolicy(
        first_retry_interval=timedelta(seconds=call.pause_seconds),
        max_number_of_attempts=call.tries,
        backoff_coefficient=2.0,
        max_retry_interval=timedelta(seconds=call.pause_seconds_max),
    )
