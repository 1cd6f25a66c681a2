"""How Durable Functions performs what a saga's walk asks for."""

from collections.abc import Generator, Iterable
from datetime import timedelta
from typing import Any

from durabletask import task
from durabletask.task import OrchestrationContext, RetryPolicy, TaskFailedError

from shared.domain.saga import State
from shared.domain.saga_walk import Call, Listen, Pause, Request, Tell, Together, Walk

# Raised in every region's instance when the saga's journal has changed.
CHANGED = "changed"

type Turns[T] = Generator[Any, Any, T]


class Ears:
    """What an instance waits for: it is woken once for each time that it was called."""

    def __init__(self, context: OrchestrationContext) -> None:
        self.context = context
        self.timers: dict[str, task.TimerTask] = {}
        # A wait that a timer ended leaves this behind: the next one must not listen beside it.
        self.heard: task.CancellableTask[Any] | None = None

    def listen(self, name: str, seconds: float) -> Turns[bool]:
        """Whether the instance was woken, before the time was up that began with this name."""
        if name not in self.timers:
            self.timers[name] = self.context.create_timer(timedelta(seconds=seconds))
        if self.heard is None:
            self.heard = self.context.wait_for_external_event(CHANGED)
        yield task.when_any([self.heard, self.timers[name]])
        is_woken = self.heard.is_complete
        if is_woken:
            self.heard = None
        return is_woken


def drive(context: OrchestrationContext, walk: Walk[State]) -> Turns[str]:
    """Perform a walk's requests with Durable's means; the answer is the saga's end."""
    ears = Ears(context)
    answer: Any = None
    while True:
        try:
            request = walk.send(answer)
        except StopIteration as stopped:
            return State(stopped.value).value
        answer = yield from performed(context, request, ears)


def performed(context: OrchestrationContext, request: Request, ears: Ears) -> Turns[Any]:
    """The answer to one request."""
    match request:
        case Together(calls):
            return (yield from called(context, calls))
        case Listen(name, seconds):
            return (yield from ears.listen(name, seconds))
        case Pause(seconds):
            yield context.create_timer(timedelta(seconds=seconds))
        case Tell(state):
            context.set_custom_status(state.value)
    return None


def called(context: OrchestrationContext, calls: Iterable[Call]) -> Turns[list[Any]]:
    """The answers of activities that run side by side; None for one whose tries all failed."""
    running: list[task.CompletableTask[Any]] = [
        context.call_activity(call.activity.value, input=call.work, retry_policy=policy(call))
        for call in calls
    ]
    answers = []
    for one in running:
        try:
            answers.append((yield one))
        except TaskFailedError:
            answers.append(None)
    return answers


def policy(call: Call) -> RetryPolicy:
    """How a call is tried again: twice as long after every time."""
    return RetryPolicy(
        first_retry_interval=timedelta(seconds=call.pause_seconds),
        max_number_of_attempts=call.tries,
        backoff_coefficient=2.0,
        max_retry_interval=timedelta(seconds=call.pause_seconds_max),
    )
