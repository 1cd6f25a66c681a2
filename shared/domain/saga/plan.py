"""A saga as data: what is to be done in several sessions, in which order, and how it is undone.

A plan is in the saga's journal from its start, so the saga ends by it, whatever code runs then.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shared.domain.message import SAGA_SESSION_PREFIX, Message, derive_id
from shared.domain.trace import UNDECIDED, derive_traceparent

# What a person who cancels a saga raises; every wait takes it as a way back.
CANCELLED = "cancelled"
# Between two tries: so long at first, then twice as long each time, but never longer than the last.
PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 60.0
# A plan may take so long. Copies of commands are recognised within the window, which has to be at
# least twice this: the rest of it is for compensation, and for a region that comes back late.
PLAN_SECONDS_MAX = 3 * 24 * 3600.0

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

type Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class Data(BaseModel):
    """Values that are stored and never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Command(Data):
    """A message for a session, without an id: that follows from the saga and the step.

    The message carries the time of the saga's start, which its handler sees as `context.now`.
    """

    session: str
    type: str
    body: dict[str, Any] = {}


class Step(Data):
    """One command, `do`, and the one that undoes it, if it can be undone.

    It is tried `tries` times, each for at most `seconds`. A step that still has no answer is given
    up, in a way that it can never act any more.
    """

    name: Name
    do: Command
    undo: Command | None = None
    tries: int = Field(default=5, ge=1, le=50)
    seconds: float = Field(default=30.0, gt=0, le=240)


class Stage(Data):
    """Steps that run side by side. Once a final one is done there is no way back, only onward."""

    steps: tuple[Step, ...] = Field(min_length=1, max_length=100)
    is_final: bool = False


class Wait(Data):
    """Wait for the first of some events.

    One of `onward` lets the saga go on. One of `back` turns it back, and so does a cancellation, or
    none of them within `seconds`.
    """

    name: Name
    onward: tuple[Name, ...] = Field(min_length=1)
    back: tuple[Name, ...] = ()
    seconds: float = Field(gt=0)

    @property
    def timeout(self) -> str:
        """The event that says that time is up."""
        return f"timeout:{self.name}"

    @property
    def events(self) -> frozenset[str]:
        """Everything that ends the wait."""
        return frozenset({*self.onward, *self.back, self.timeout, CANCELLED})

    def decision(self, events: Iterable[str]) -> str | None:
        """The first event that ends the wait, if one has come."""
        return next((event for event in events if event in self.events), None)


class Plan(Data):
    """Stages and waits, one after another. Raises ValueError for what could not be carried out."""

    parts: tuple[Stage | Wait, ...] = Field(min_length=1, max_length=100)

    @model_validator(mode="after")
    def can_be_carried_out(self) -> Self:
        """Names are unique, and nothing turns back where there is no way back."""
        names = Counter([step.name for step in self.steps] + [wait.name for wait in self.waits])
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            raise ValueError(f"two parts are named {twice[0]!r}")
        if not self.stages:
            raise ValueError("there is no step")
        if sum(stage.is_final for stage in self.stages) > 1:
            raise ValueError("two stages are final")
        if any(isinstance(part, Wait) for part in self.parts[self.turn + 1 :]):
            raise ValueError("a wait comes after the last stage that can turn back")
        if self.seconds_max > PLAN_SECONDS_MAX:
            raise ValueError(f"it may take {self.seconds_max:.0f} s, over {PLAN_SECONDS_MAX:.0f}")
        return self

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(part for part in self.parts if isinstance(part, Stage))

    @property
    def waits(self) -> tuple[Wait, ...]:
        return tuple(part for part in self.parts if isinstance(part, Wait))

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for stage in self.stages for step in stage.steps)

    @property
    def turn(self) -> int:
        """The last part from which the saga can turn back: the final stage, or the last one."""
        finals = [n for n, part in enumerate(self.parts) if isinstance(part, Stage)]
        return next((n for n in finals if self.stage(n).is_final), finals[-1])

    @property
    def seconds_max(self) -> float:
        """The time that the saga may take to come to its last step."""
        waits = sum(wait.seconds for wait in self.waits)
        return waits + sum(max(map(longest_time, stage.steps)) for stage in self.stages)

    def stage(self, place: int) -> Stage:
        """The stage at a place; raises ValueError where there is a wait."""
        part = self.parts[place]
        if isinstance(part, Wait):
            raise ValueError(f"part {place} is a wait")
        return part


class SagaState(StrEnum):
    """The state of a saga. Every one but the first three is an end."""

    AWAITED = "awaited"  # events have come for it; it has not started
    RUNNING = "running"
    COMPENSATING = "compensating"
    COMPLETED = "completed"  # every step is done
    COMPENSATED = "compensated"  # every step that was done is undone
    COMPENSATION_FAILED = "compensation-failed"  # something is done that could not be undone
    UNFINISHED = "unfinished"  # beyond the final stage something could not be done

    @property
    def is_end(self) -> bool:
        return self not in (SagaState.AWAITED, SagaState.RUNNING, SagaState.COMPENSATING)

    @property
    def needs_a_person(self) -> bool:
        """Return whether the saga ended in a way that nobody planned."""
        return self in (SagaState.COMPENSATION_FAILED, SagaState.UNFINISHED)


class StepOutcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"  # its session refused it, or it was given up; it never acts
    UNKNOWN = "unknown"  # its session could not be asked for as long as it would have mattered
    UNDONE = "undone"
    KEPT = "kept"  # done, and its compensation failed


class StepReply(Data):
    outcome: StepOutcome
    reason: str | None = None


class Refusal(BaseModel):
    """An answer of a handler that refuses a command: its saga turns back."""

    refused: str


class Direction(StrEnum):
    """The direction in which a step is asked to act."""

    DO = "do"
    UNDO = "undo"


def session_of(key: str) -> str:
    """The session of a saga's own journal."""
    return f"{SAGA_SESSION_PREFIX}{key}"


def key_of(session: str) -> str | None:
    """The key of the saga whose journal this is; None for other sessions.

    A plan learns by `key_of(context.message.session)` under which key its saga was started.
    """
    if not session.startswith(SAGA_SESSION_PREFIX):
        return None
    return session.removeprefix(SAGA_SESSION_PREFIX) or None


def traceparent_of(key: str) -> str:
    """The trace of a saga: one for all of it, in every region and however long it takes.

    It is derived, because a saga outlives whatever its starter called it in. That call's trace is
    linked to this one, and whether it is sampled is decided where its spans are made.
    """
    return derive_traceparent("saga", key, flags=UNDECIDED)


def instance_of(key: str) -> str:
    """The Durable instance of a saga: the same in every region."""
    return derive_id("saga", key)


def step_id(key: str, name: str, direction: Direction) -> str:
    """The id of a step's command, in whatever region and however often it is sent."""
    return derive_id("saga", key, name, direction.value)


def step_message(key: str, at: str, step: Step, direction: Direction) -> Message:
    """A step's command as a message; its time is that of the saga's start.

    Raises ValueError for a step that nothing undoes, and InvalidMessage.
    """
    command = step.do if direction is Direction.DO else step.undo
    if command is None:
        raise ValueError(f"step {step.name!r} has nothing that undoes it")
    body = json.dumps(command.body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    message_id = step_id(key, step.name, direction)
    return Message(message_id, command.session, command.type, body.encode(), time=at, saga=key)


def longest_time(step: Step) -> float:
    """Return the time that a step may take with all of its tries."""
    return step.seconds * step.tries + sum(pauses_between(step.tries))


def pauses_between(tries: int) -> Iterator[float]:
    return (min(PAUSE_SECONDS * 2**n, PAUSE_SECONDS_MAX) for n in range(tries - 1))
