"""Sagas as their own journals have them: started once, told of events, looked at, cancelled, ended.

Nothing here remembers anything: what is asked is read, and what is said is recorded.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from shared.domain.errors import InvalidMessage, Unavailable, UnknownType
from shared.domain.handling import Handlers
from shared.domain.message import Message
from shared.domain.running import parse_body
from shared.domain.saga import (
    CANCELLED,
    Direction,
    Outcome,
    State,
    Step,
    session_of,
    step_message,
)
from shared.domain.saga_record import (
    End,
    Record,
    end_message,
    event_message,
    kinds_of,
    start_message,
)
from shared.domain.saga_walk import Started
from shared.ports import Clock
from shared.usecases.command import Answered, Commander
from shared.usecases.commit import Committer
from shared.usecases.saga_steps import SagaSteps
from shared.usecases.services import Services


class Heard(StrEnum):
    """What became of something that was said to a saga."""

    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Told:
    """What the saga's journal answered: where the saga stands, and why it took no notice."""

    heard: Heard
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """The event that ended a wait, None while there is none, and all that the saga was told of."""

    decision: str | None
    all: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SagaBook:
    """One worker's way to the journals of sagas."""

    committer: Committer
    commander: Commander
    clock: Clock
    steps: SagaSteps
    handlers: Handlers

    @classmethod
    def of(cls, services: Services) -> "SagaBook":
        """The book of a worker."""
        consumer, commander = services.consumer, services.commander
        steps = SagaSteps(services.journal, commander, consumer.clock, consumer.window_seconds)
        return cls(consumer.committer, commander, consumer.clock, steps, services.handlers)

    async def start(self, key: str, kind: str, body: bytes) -> Told:
        """Start a saga, unless it was started with the same content; then it is TAKEN, too.

        Raises UnknownType, InvalidBody or InvalidMessage, and then nothing was recorded;
        Unavailable or OutcomeUnknown.
        """
        message = start_message(key, kind, body, self.now)
        handler = self.handlers.of(kind)
        if kind not in kinds_of(self.handlers):
            raise UnknownType(f"{kind!r} starts no saga")
        parse_body(handler, message)
        return await self.say(message)

    async def hear(self, key: str, event: str) -> Told:
        """Keep an event for a saga, be it that it starts only later.

        Raises InvalidMessage, Unavailable or OutcomeUnknown.
        """
        return await self.say(event_message(key, event, self.now))

    async def cancel(self, key: str) -> Told:
        """Make a saga turn back, if it still can: a step without which it cannot end never acts.

        Raises Unavailable or OutcomeUnknown.
        """
        record = await self.record(key)
        if record is None or record.plan is None or record.at is None:
            return Told(Heard.REFUSED, "it has not started")
        if record.state.is_end:
            return Told(Heard.REFUSED, f"the saga is {record.state}")
        step = record.plan.stage(record.plan.turn).steps[0]
        reply = await self.steps.give_up(key, record.at, step, CANCELLED)
        if reply.outcome is not Outcome.REFUSED:
            return Told(Heard.REFUSED, f"step {step.name!r} is {reply.outcome}: no way back")
        # Only so that a wait does not go on waiting.
        if record.plan.waits:
            await self.hear(key, CANCELLED)
        return Told(Heard.TAKEN)

    async def decide(self, key: str, wait: str, *, is_over: bool) -> Events:
        """What ends a wait, if anything has; `is_over` says that time is up.

        Raises Unavailable or OutcomeUnknown.
        """
        record = await self.started(key)
        waited = next(one for one in record.plan.waits if one.name == wait) if record.plan else None
        if waited is None:
            raise InvalidMessage(f"saga {key!r} has no wait {wait!r}")
        if is_over and waited.decision(record.events) is None:
            await self.say(event_message(key, waited.timeout, self.now))
            record = await self.started(key)
        return Events(waited.decision(record.events), record.events)

    async def look(self, key: str) -> Started | State:
        """The saga as a walk begins with it, or how it ended. Raises Unavailable."""
        record = await self.started(key)
        return record.state if record.state.is_end else started(key, record)

    async def end(self, ending: End) -> State:
        """Record an end; the one that was recorded first. Raises Unavailable or OutcomeUnknown."""
        await self.say(end_message(ending, self.now))
        record = await self.started(ending.key)
        if not record.state.is_end:
            raise Unavailable(f"saga {ending.key!r} has not ended")
        return record.state

    async def outcomes(self, key: str, record: Record) -> dict[str, Outcome]:
        """What became of each step so far, read where it was recorded; nothing is run."""
        if record.state.is_end or record.plan is None or record.at is None:
            return dict(record.outcomes)
        found = {s.name: await self.outcome(key, record.at, s) for s in record.plan.steps}
        return {name: outcome for name, outcome in found.items() if outcome is not None}

    async def outcome(self, key: str, at: str, step: Step) -> Outcome | None:
        """What became of a step, None for nothing yet."""
        if step.undo is not None:
            undone = await self.steps.recorded(step_message(key, at, step, Direction.UNDO))
            if undone is not None:
                return Outcome.UNDONE if undone.outcome is Outcome.DONE else Outcome.KEPT
        done = await self.steps.recorded(step_message(key, at, step, Direction.DO))
        return done.outcome if done is not None else None

    async def record(self, key: str) -> Record | None:
        """What the saga's journal says now, None where it says nothing. Raises Unavailable."""
        head = await self.committer.read_head(session_of(key))
        return Record.model_validate(await self.committer.state_of(head)) if head else None

    async def started(self, key: str) -> Record:
        """The record of a saga that has started; raises Unavailable for another."""
        record = await self.record(key)
        if record is None or record.plan is None:
            raise Unavailable(f"saga {key!r} has not started")
        return record

    async def say(self, message: Message) -> Told:
        """Apply a message to the saga's journal."""
        told = await self.commander.apply(message)
        if not isinstance(told, Answered):
            return Told(Heard.REFUSED, told.reason)
        refused = told.answer.get("refused")
        return Told(Heard.TAKEN) if refused is None else Told(Heard.REFUSED, refused)

    @property
    def now(self) -> str:
        """The time that messages to sagas carry."""
        return datetime.fromtimestamp(self.clock.today(), UTC).isoformat()


def started(key: str, record: Record) -> Started:
    """What a walk begins with; raises Unavailable for a saga that has not started."""
    if record.plan is None or record.at is None:
        raise Unavailable(f"saga {key!r} has not started")
    return Started(key=key, at=record.at, plan=record.plan, events=record.events)
