"""What durabletask's worker does with an instance: its orchestrator is run again from the start.

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

from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.task import (
    CancellableTask,
    CompletableTask,
    NonDeterminismError,
    OrchestrationContext,
    RetryableTask,
    RetryPolicy,
    Task,
    TimerTask,
)

from functions.saga_instances import saga


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """A turn, at a virtual second."""

    at: float


@dataclass(frozen=True, slots=True)
class Began:
    """The instance was started with this input."""

    work: str


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An activity was asked for, with its input as JSON."""

    number: int
    name: str
    work: str


@dataclass(frozen=True, slots=True)
class TimerSet:
    """A timer was asked for, for a virtual second."""

    number: int
    at: float


@dataclass(frozen=True, slots=True)
class Answered:
    """An activity answered JSON."""

    number: int
    answer: str


@dataclass(frozen=True, slots=True)
class Failed:
    """An activity raised."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Fired:
    """A timer is over."""

    number: int


@dataclass(frozen=True, slots=True)
class Raised:
    """Somebody raised an event."""

    name: str


type Asked = Scheduled | TimerSet
type News = Began | Answered | Failed | Fired | Raised
type Event = TurnBegan | News | Asked


NO_TIME = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a turn came to: what the orchestrator asks for next, and how it ended, if it has."""

    asked: tuple[Asked, ...]
    status: str | None
    ended: str | None
    failed: str | None


def replayed(events: Iterable[Event]) -> Outcome:
    """Run the orchestrator over its history, what is new included."""
    context = Context()
    failed = None
    try:
        for event in events:
            context.take(event)
    except Exception as error:
        # As durabletask has it: what an orchestrator raises is the end of its instance.
        failed = f"{type(error).__name__}: {error}"
    asked = () if failed else tuple(context.asked.values())
    return Outcome(asked, context.status, context.ended, failed)


@dataclass
class Context:
    """One run of the orchestrator, and all it can ask for.

    `asked` is what the history does not have yet; `tried_again` are the activities that are tried
    again, by the number of the timer before it. `now` is in virtual seconds.
    """

    now: float = 0.0
    number: int = 0
    asked: dict[int, Asked] = field(default_factory=dict)
    waiting: dict[int, CompletableTask[Any]] = field(default_factory=dict)
    activities: dict[int, Scheduled] = field(default_factory=dict)
    tried_again: dict[int, tuple[Scheduled, RetryableTask[Any]]] = field(default_factory=dict)
    raised: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    listening: dict[str, deque[CancellableTask[Any]]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    generator: Generator[Task[Any], Any, str] | None = None
    yielded: Task[Any] | None = None
    status: str | None = None
    ended: str | None = None

    def take(self, event: Event) -> None:
        """Go on by one event."""
        match event:
            case TurnBegan(at):
                self.now = at
            case Began(work):
                self.begin(json.loads(work))
            case Scheduled() | TimerSet():
                self.compare(event)
            case Raised(name):
                self.hear(name)
            case Answered(number, answer):
                self.complete(number, json.loads(answer))
            case Failed(number, reason):
                self.fail(number, reason)
            case Fired(number):
                self.fire(number)

    def begin(self, work: Mapping[str, Any]) -> None:
        """Run up to the first task."""
        self.generator = saga(cast(OrchestrationContext, self), work)
        try:
            self.yielded = next(self.generator)
        except StopIteration as stopped:
            self.ended = stopped.value

    def resume(self) -> None:
        """Go on for as long as the tasks that are waited for are complete."""
        while self.ended is None and self.generator and self.yielded and self.yielded.is_complete:
            try:
                if self.yielded.is_failed:
                    self.yielded = self.generator.throw(self.yielded.get_exception())
                else:
                    self.yielded = self.generator.send(self.yielded.get_result())
            except StopIteration as stopped:
                self.ended = stopped.value

    def compare(self, event: Asked) -> None:
        """What was asked for must be asked for now."""
        asked = self.asked.pop(event.number, None)
        if asked != event:
            raise NonDeterminismError(f"asked for {event}, and now for {asked}")

    def complete(self, number: int, answer: Any) -> None:
        """A task has its result; of one that nobody waits for any more nobody hears."""
        waiting = self.waiting.pop(number, None)
        if waiting is not None:
            waiting.complete(answer)
            self.resume()

    def fail(self, number: int, reason: str) -> None:
        """An activity failed: it is tried again after a while, or its task has failed."""
        waiting = self.waiting.pop(number, None)
        if not isinstance(waiting, RetryableTask):
            return
        delay = waiting.compute_next_delay()
        if delay is None:
            waiting.fail(reason, RuntimeError(reason))
            self.resume()
            return
        waiting.increment_attempt_count()
        self.create_timer(delay)
        self.tried_again[self.number] = (self.activities[number], waiting)

    def fire(self, number: int) -> None:
        """A timer is over, perhaps one after which an activity is tried again."""
        if number not in self.tried_again:
            self.complete(number, None)
        elif self.waiting.pop(number, None) is not None:
            activity, waiting = self.tried_again[number]
            self.asked[activity.number] = activity
            self.waiting[activity.number] = waiting

    def hear(self, name: str) -> None:
        """Wake whoever listens; if nobody does, whoever listens next has heard it."""
        if not self.listening[name]:
            self.raised[name] += 1
            return
        self.listening[name].popleft().complete(None)
        self.resume()

    def next_number(self) -> int:
        """The number of the next task."""
        self.number += 1
        return self.number

    def create_timer(self, delay: timedelta) -> TimerTask:
        """See OrchestrationContext."""
        number, timer = self.next_number(), TimerTask()
        self.asked[number] = TimerSet(number, self.now + delay.total_seconds())
        self.waiting[number] = timer
        return timer

    def call_activity(
        self,
        name: str,
        *,
        input: Any,  # noqa: A002 - the SDK's name
        retry_policy: RetryPolicy,
    ) -> CompletableTask[Any]:
        """See OrchestrationContext."""
        number = self.next_number()
        activity = Scheduled(number, name, json.dumps(input, sort_keys=True))
        self.asked[number] = self.activities[number] = activity
        # Nobody asks when the tries began: there is no time for all of them together.
        waiting: CompletableTask[Any] = RetryableTask(
            retry_policy, pb.OrchestratorAction(), NO_TIME, is_sub_orch=False
        )
        self.waiting[number] = waiting
        return waiting

    def wait_for_external_event(self, name: str) -> CancellableTask[Any]:
        """See OrchestrationContext."""
        heard: CancellableTask[Any] = CancellableTask()
        if self.raised[name]:
            self.raised[name] -= 1
            heard.complete(None)
        else:
            self.listening[name].append(heard)
        return heard

    def set_custom_status(self, status: str) -> None:
        """See OrchestrationContext."""
        self.status = status
