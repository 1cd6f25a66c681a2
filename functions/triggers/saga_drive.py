"""The work of Durable Functions for a saga's walk."""

from collections.abc import Callable, Generator, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

from durabletask import task
from durabletask.task import OrchestrationContext, RetryPolicy, TaskFailedError

from shared.domain.saga.plan import SagaState
from shared.domain.saga.walk import (
    INSISTENT_PAUSE_SECONDS_MAX,
    INSISTENT_TRIES,
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
# The answer of an activity that a worker of another application was given: it has done nothing.
NOT_OURS = {"not_ours": True}

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


def drive(
    context: OrchestrationContext, walk: Walk[SagaState], queue: str | None
) -> DurableSteps[str]:
    """Perform a walk's requests with Durable's means; the answer is the saga's end.

    Only apps that read this queue perform its activities; any app does where it is not known.
    """
    listener = ChangeListener(context)
    answer: Any = None
    while True:
        try:
            request = walk.send(answer)
        except StopIteration as stopped:
            return SagaState(stopped.value).value
        answer = yield from perform(context, request, listener, queue)


def perform(
    context: OrchestrationContext,
    request: WalkRequest,
    listener: ChangeListener,
    queue: str | None,
) -> DurableSteps[Any]:
    match request:
        case CallAll(calls):
            return (yield from call_activities(context, calls, queue))
        case AwaitChange(name, seconds):
            return (yield from listener.wait(name, seconds))
        case Pause(seconds):
            yield context.create_timer(timedelta(seconds=seconds))
        case ReportState(state):
            context.set_custom_status(state.value)
    return None


def call_activities(
    context: OrchestrationContext, calls: Iterable[ActivityCall], queue: str | None
) -> DurableSteps[list[Any]]:
    """The answers of activities that run side by side; None for one whose tries all failed."""
    owner = {} if queue is None else {"queue": queue}
    asks: list[Callable[[], task.CompletableTask[Any]]] = [
        partial(
            context.call_activity,
            call.activity.value,
            input=call.work | owner,
            retry_policy=retry_policy_of(call),
        )
        for call in calls
    ]
    answers = []
    for ask, running in [(ask, ask()) for ask in asks]:
        answers.append((yield from await_answer(context, ask, running)))
    return answers


def await_answer(
    context: OrchestrationContext,
    ask: Callable[[], task.CompletableTask[Any]],
    running: task.CompletableTask[Any],
) -> DurableSteps[Any]:
    """Ask again for as long as workers of another application take the activity.

    That costs none of its tries, so that a task hub that is shared by mistake makes a saga late
    and turns none back. None when its tries failed, or when nobody else takes it for days.
    """
    for refusals in range(INSISTENT_TRIES):
        if refusals:
            pause = min(2.0 ** (refusals - 1), INSISTENT_PAUSE_SECONDS_MAX)
            yield context.create_timer(timedelta(seconds=pause))
            running = ask()
        try:
            answer = yield running
        except TaskFailedError:
            return None
        if answer != NOT_OURS:
            return answer
    return None


def retry_policy_of(call: ActivityCall) -> RetryPolicy:
    """Return how a call is tried again: twice as long after every time."""
    return RetryPolicy(
        first_retry_interval=timedelta(seconds=call.pause_seconds),
        max_number_of_attempts=call.tries,
        backoff_coefficient=2.0,
        max_retry_interval=timedelta(seconds=call.pause_seconds_max),
    )
