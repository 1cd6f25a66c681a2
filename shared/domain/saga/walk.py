"""The one orchestrator: walks through any saga's plan, onward or back, to a named end.

It is a generator of requests and knows neither Durable Functions nor a clock: its driver
performs each request and sends the answer in. The same answers give the same requests, so it can be
replayed. Every answer that decides about the way is one that a journal has recorded: a step's
outcome in the step's session, a wait's decision in the saga's own. So all walks of
a saga, however many there are, go the same way.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, assert_never

from shared.domain.saga.plan import (
    PAUSE_SECONDS,
    Data,
    Direction,
    Plan,
    SagaState,
    Stage,
    Step,
    StepOutcome,
    StepReply,
    Wait,
)

# An answer that decides the way is asked for until it can no longer come.
INSISTENT_TRIES = 200
INSISTENT_PAUSE_SECONDS_MAX = 3600.0


class Activity(StrEnum):
    """A call of a saga's walk; also the names of the Durable activities."""

    STEP = "saga_step"  # apply or undo a step: a StepReply
    GIVE_UP = "saga_give_up"  # see to it that a step never acts, unless it has: a StepReply
    DECIDE = "saga_decide"  # what ends a wait: {"event": its name or None, "events": all so far}
    LOOK = "saga_look"  # {"ended": SagaState}, or while it has not ended, a StartedSaga
    END = "saga_end"  # record the end: {"ended": the SagaState that was recorded first}


class OutOfReach(Exception):
    """The saga's own journal gave no answer for so long that nobody walks any more."""


@dataclass(frozen=True, slots=True)
class ActivityCall:
    """An activity with its input; the answer is its output, or None when all tries failed."""

    activity: Activity
    work: dict[str, Any]
    tries: int = INSISTENT_TRIES
    pause_seconds: float = PAUSE_SECONDS
    pause_seconds_max: float = INSISTENT_PAUSE_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class CallAll:
    """Calls side by side; the answer is their answers, in the order of the calls."""

    calls: tuple[ActivityCall, ...]


@dataclass(frozen=True, slots=True)
class AwaitChange:
    """Wait until the saga's journal may have changed; False once time is up.

    The time runs from the first AwaitChange of a name.
    """

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ReportState:
    """Show where the saga stands in the status of its instance."""

    state: SagaState


type WalkRequest = CallAll | AwaitChange | Pause | ReportState
type Walk[T] = Generator[WalkRequest, Any, T]


class StartedSaga(Data):
    """A saga as its journal has it: the input of an instance.

    `at` is the ISO 8601 time of its start.
    """

    key: str
    at: str
    plan: Plan
    events: tuple[str, ...] = ()


@dataclass(slots=True)
class WalkProgress:
    """The progress of a walk; `events` are those of the saga that the walk has read."""

    saga: StartedSaga
    events: tuple[str, ...] = ()
    done: list[tuple[Step, ...]] = field(default_factory=list)
    outcomes: dict[str, StepOutcome] = field(default_factory=dict)
    reason: str | None = None

    def note(self, steps: Sequence[Step], replies: Sequence[StepReply]) -> bool:
        """Take in what became of a stage; whether all of it is done."""
        pairs = list(zip(steps, replies, strict=True))
        self.outcomes |= {step.name: reply.outcome for step, reply in pairs}
        self.done.append(tuple(s for s, reply in pairs if reply.outcome is StepOutcome.DONE))
        for step, reply in pairs:
            if reply.outcome is not StepOutcome.DONE and self.reason is None:
                self.reason = f"{step.name}: {reply.reason or reply.outcome}"
        return self.reason is None


def orchestrate(saga: StartedSaga, stand_by_seconds: float = 0.0) -> Walk[SagaState]:
    """Walk to the end; the answer is the end that the journal has.

    With `stand_by_seconds` another region is walking: walk only if the saga is not over by then.
    """
    yield ReportState(SagaState.RUNNING)
    if not stand_by_seconds:
        return (yield from walk(saga, 0.0))
    found = yield from stand_by(saga, stand_by_seconds)
    return found if isinstance(found, SagaState) else (yield from walk(found, stand_by_seconds))


def stand_by(saga: StartedSaga, seconds: float) -> Walk[StartedSaga | SagaState]:
    """Give the other region its time; the saga as it is then, or how it ended."""
    yield Pause(seconds)
    found = yield from call_journal(ActivityCall(Activity.LOOK, {"key": saga.key}))
    if "ended" not in found:
        return StartedSaga.model_validate(found)
    yield ReportState(SagaState(found["ended"]))
    return SagaState(found["ended"])


def walk(saga: StartedSaga, stand_by_seconds: float) -> Walk[SagaState]:
    """Take part after part; turn back at the first that does not succeed."""
    progress = WalkProgress(saga, saga.events)
    for place, part in enumerate(saga.plan.parts):
        match part:
            case Wait():
                goes_on = yield from wait_for(progress, part)
                if stand_by_seconds:
                    found = yield from stand_by(saga, stand_by_seconds)
                    if isinstance(found, SagaState):
                        return found
                    progress.events = found.events
            case Stage():
                goes_on = yield from take(progress, part, can_turn=place <= saga.plan.turn)
            case unexpected:
                assert_never(unexpected)
        if not goes_on:
            if place > saga.plan.turn:
                return (yield from record_end(progress, SagaState.UNFINISHED))
            return (yield from compensate(progress))
    return (yield from record_end(progress, SagaState.COMPLETED))


def wait_for(progress: WalkProgress, wait: Wait) -> Walk[bool]:
    """Wait for a decision; whether the saga goes on."""
    decision = wait.decision(progress.events)
    while decision is None:
        is_in_time = yield AwaitChange(wait.name, wait.seconds)
        work = {"key": progress.saga.key, "wait": wait.name, "is_over": not is_in_time}
        found = yield from call_journal(ActivityCall(Activity.DECIDE, work))
        # Events that were read for this wait may concern a later one as well.
        decision, progress.events = found["event"], tuple(found["events"])
    if decision in wait.onward:
        return True
    progress.reason = f"{wait.name}: {decision}"
    return False


def take(progress: WalkProgress, stage: Stage, *, can_turn: bool) -> Walk[bool]:
    """Apply the steps of a stage side by side; whether all are done."""
    saga, steps = progress.saga, stage.steps
    replies = yield from step_replies(saga, steps, Direction.DO, insists=not can_turn)
    silent = [step for step, reply in zip(steps, replies, strict=True) if reply is None]
    if silent and can_turn:
        given_up = yield from call_all([give_up_call(saga, step) for step in silent])
        settled = dict(zip([step.name for step in silent], given_up, strict=True))
        replies = [reply or settled[s.name] for s, reply in zip(steps, replies, strict=True)]
    return progress.note(
        steps, [reply or StepReply(outcome=StepOutcome.UNKNOWN) for reply in replies]
    )


def compensate(progress: WalkProgress) -> Walk[SagaState]:
    """Undo what is done, the last stage first; what cannot be undone is kept and named."""
    yield ReportState(SagaState.COMPENSATING)
    for steps in reversed(progress.done):
        undoable = [step for step in reversed(steps) if step.undo is not None]
        if not undoable:
            continue
        replies = yield from step_replies(progress.saga, undoable, Direction.UNDO, insists=True)
        for step, reply in zip(undoable, replies, strict=True):
            is_undone = reply is not None and reply.outcome is StepOutcome.DONE
            progress.outcomes[step.name] = StepOutcome.UNDONE if is_undone else StepOutcome.KEPT
    is_clean = not {StepOutcome.UNKNOWN, StepOutcome.KEPT} & set(progress.outcomes.values())
    state = SagaState.COMPENSATED if is_clean else SagaState.COMPENSATION_FAILED
    return (yield from record_end(progress, state))


def record_end(progress: WalkProgress, state: SagaState) -> Walk[SagaState]:
    """Record the end, once; the answer is the one that was recorded first."""
    work = {
        "key": progress.saga.key,
        "state": state.value,
        "outcomes": {name: outcome.value for name, outcome in progress.outcomes.items()},
        "reason": progress.reason,
    }
    recorded = SagaState((yield from call_journal(ActivityCall(Activity.END, work)))["ended"])
    yield ReportState(recorded)
    return recorded


def step_replies(
    saga: StartedSaga, steps: Sequence[Step], direction: Direction, *, insists: bool
) -> Walk[list[StepReply | None]]:
    """Apply or undo steps side by side; None for one whose tries all failed."""
    calls = [step_call(saga, step, direction, insists=insists) for step in steps]
    return (yield from call_all(calls))


def step_call(
    saga: StartedSaga, step: Step, direction: Direction, *, insists: bool
) -> ActivityCall:
    work = work_on(saga, step) | {"direction": direction.value}
    return ActivityCall(Activity.STEP, work, INSISTENT_TRIES if insists else step.tries)


def give_up_call(saga: StartedSaga, step: Step) -> ActivityCall:
    """The call that settles a step without an answer."""
    return ActivityCall(Activity.GIVE_UP, work_on(saga, step))


def work_on(saga: StartedSaga, step: Step) -> dict[str, Any]:
    return {"key": saga.key, "at": saga.at, "step": step.model_dump(mode="json")}


def call_all(calls: Sequence[ActivityCall]) -> Walk[list[StepReply | None]]:
    answers = yield CallAll(tuple(calls))
    return [None if answer is None else StepReply.model_validate(answer) for answer in answers]


def call_journal(call: ActivityCall) -> Walk[dict[str, Any]]:
    """The answer of the saga's own journal; raises OutOfReach where there is none."""
    (answer,) = yield CallAll((call,))
    if answer is None:
        raise OutOfReach(f"{call.activity} of saga {call.work['key']!r} failed {call.tries} times")
    found: dict[str, Any] = answer
    return found
