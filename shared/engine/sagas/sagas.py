"""Sagas as their own journals have them: started once, given events, read, cancelled, ended.

Nothing here remembers anything: every question reads the journal, and every change goes there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from shared.domain.errors import InvalidMessage, Unavailable, UnknownType
from shared.domain.handler import Handler, HandlerInput, Handlers
from shared.domain.journal import WHO_CHARACTERS_MAX, WHY_CHARACTERS_MAX
from shared.domain.message import Message, refuse_reserved, require_line, require_text
from shared.domain.saga.plan import (
    CANCELLED,
    Direction,
    SagaState,
    Step,
    StepOutcome,
    StepReply,
    key_of,
    session_of,
    step_message,
    traceparent_of,
)
from shared.domain.saga.record import (
    SAGA_RECORD,
    SagaEnd,
    SagaEvent,
    SagaRecord,
    end_message,
    event_message,
    kinds_of,
    start_message,
)
from shared.domain.saga.walk import Activity, StartedSaga
from shared.engine.consume.consume import Consumer
from shared.engine.consume.outcomes import Answered, Failed
from shared.engine.handle.handle import parse_body, parse_state, run_pure
from shared.engine.sagas.steps import RETRY_SECONDS, SagaSteps, interpret

# What one look at a saga reads at most: entries of its own journal, and steps, so many at once.
ENTRIES_READ_MAX, STEPS_READ_MAX, READ_AT_ONCE = 200, 200, 16
# No event has these names, because events have no spaces.
STARTED, ENDED = "the start", "the end"

# An activity as Durable Functions calls it: JSON in, JSON out. It may be called any number of
# times, at the same time, and in both regions; what raises is to be called again.
type PerformActivity = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class SagaResponse:
    """The answer of a saga's journal to a change: whether it was accepted, and why not."""

    is_accepted: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class StepAct:
    """The outcome of one command of a step, and the entry of its session that says so.

    `at` is when that entry was written last, in seconds since 1970 on the store's clock.
    """

    outcome: StepOutcome
    position: int | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedSaga:
    """The records of a saga: by event, STARTED and ENDED, when its journal had it first.

    By the names of steps, `done` is what they came to, and `undone` what became of undoing them.
    `turns_back` says that the saga compensates, or did.
    """

    moments: Mapping[str, float]
    done: Mapping[str, StepAct] = field(default_factory=dict)
    undone: Mapping[str, StepAct] = field(default_factory=dict)
    turns_back: bool = False

    def outcome(self, record: SagaRecord, step: str) -> StepOutcome | None:
        """Return the outcome of a step so far, by the saga's record where that has it."""
        if step in record.outcomes or record.state.is_end:
            return record.outcomes.get(step)
        if undone := self.undone.get(step):
            is_undone = undone.outcome is StepOutcome.DONE
            return StepOutcome.UNDONE if is_undone else StepOutcome.KEPT
        return self.done[step].outcome if step in self.done else None


class Sagas:
    """One worker's way to the journals of sagas."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.worker = consumer.worker
        self.steps = SagaSteps(consumer)

    def activities(self) -> dict[Activity, PerformActivity]:
        """The activities that a walk calls, by name."""
        return {
            Activity.STEP: self.steps.perform,
            Activity.GIVE_UP: self.steps.give_up,
            Activity.DECIDE: self.decide,
            Activity.LOOK: self.look,
            Activity.END: self.end,
        }

    async def start(self, key: str, kind: str, body: bytes) -> SagaResponse:
        """Start a saga. Starting it again with the same content changes nothing and is accepted.

        Raises UnknownType, InvalidBody, NotAllowed or InvalidMessage, also for a step of its plan,
        and then nothing was recorded; Unavailable or OutcomeUnknown.
        """
        message = start_message(key, kind, body, self.now)
        handler = self.worker.handlers.of(kind)
        if kind not in kinds_of(self.worker.handlers):
            raise UnknownType(f"{kind!r} starts no saga")
        parse_body(handler, message)
        require_possible(self.worker.handlers, handler, message)
        return await self.apply(message)

    async def add_event(
        self, key: str, event: str, who: str | None = None, why: str | None = None
    ) -> SagaResponse:
        """Keep an event for a saga, even if the saga starts only later.

        Its entry says who decided it and why, where that is known. Raises InvalidMessage,
        Unavailable or OutcomeUnknown.
        """
        if who is not None or why is not None:
            require_person(who, why)
        decided = SagaEvent(event=event, who=who, why=why)
        return await self.apply(event_message(key, decided, self.now))

    async def cancel(
        self, key: str, who: str | None = None, why: str | None = None
    ) -> SagaResponse:
        """Make a saga turn back, if it still can: a step without which it cannot end never acts.

        Who decided it and why is the reason of that step's entry, where it is known. Raises
        InvalidMessage, Unavailable or OutcomeUnknown.
        """
        reason = CANCELLED
        if who is not None or why is not None:
            require_person(who, why)
            reason = f"{CANCELLED} by {who}: {why}"
        record = await self.read_record(key)
        if record is None or record.plan is None or record.at is None:
            return SagaResponse(is_accepted=False, reason="it has not started")
        if record.state.is_end:
            return SagaResponse(is_accepted=False, reason=f"the saga is {record.state}")
        step = record.plan.stage(record.plan.turn).steps[0]
        work = {"key": key, "at": record.at, "step": step.model_dump(mode="json")}
        reply = StepReply.model_validate(await self.steps.perform(work, give_up=reason))
        if reply.outcome is not StepOutcome.REFUSED:
            return SagaResponse(
                is_accepted=False, reason=f"step {step.name!r} is {reply.outcome}: no way back"
            )
        # Only so that a wait does not go on waiting.
        if record.plan.waits:
            await self.add_event(key, CANCELLED, who, why)
        return SagaResponse(is_accepted=True)

    async def decide(self, work: dict[str, Any]) -> dict[str, Any]:
        """Return the end of a wait: `{"event": name or None, "events": all so far}`.

        `is_over` says that time is up. Raises Unavailable or OutcomeUnknown.
        """
        key, wait = work["key"], work["wait"]
        record = await self.started_record(key)
        waited = next(one for one in record.plan.waits if one.name == wait) if record.plan else None
        if waited is None:
            raise InvalidMessage(f"saga {key!r} has no wait {wait!r}")
        if work["is_over"] and waited.decision(record.events) is None:
            await self.add_event(key, waited.timeout)
            record = await self.started_record(key)
        return {"event": waited.decision(record.events), "events": list(record.events)}

    async def look(self, work: dict[str, Any]) -> dict[str, Any]:
        """`{"ended": SagaState}`, or the saga as a walk begins with it. Raises Unavailable."""
        found = await self.load(work["key"])
        if isinstance(found, SagaState):
            return {"ended": found.value}
        return found.model_dump(mode="json")

    async def load(self, key: str) -> StartedSaga | SagaState:
        """The saga as a walk begins with it, or how it ended. Raises Unavailable."""
        record = await self.started_record(key)
        return record.state if record.state.is_end else start_of(key, record)

    async def end(self, work: dict[str, Any]) -> dict[str, Any]:
        """Record the end: `{"ended": the SagaState that was recorded first}`.

        Raises Unavailable or OutcomeUnknown.
        """
        ending = SagaEnd.model_validate(work)
        await self.apply(end_message(ending, self.now))
        record = await self.started_record(ending.key)
        if not record.state.is_end:
            raise Unavailable(f"saga {ending.key!r} has not ended")
        return {"ended": record.state.value}

    async def read_history(self, key: str, record: SagaRecord) -> RecordedSaga:
        """Return what the journals of a saga and of its steps say of it; nothing is run.

        Of the steps STEPS_READ_MAX are looked at. Raises Unavailable.
        """
        moments: dict[str, float] = {}
        for stored in await self.worker.journal.oldest_entries(session_of(key), ENTRIES_READ_MAX):
            state = stored.entry.state or {}
            for event in state.get("events", ()):
                moments.setdefault(event, stored.written_at)
            reached = SagaState(state.get("state", SagaState.AWAITED))
            if reached is not SagaState.AWAITED:
                moments.setdefault(STARTED, stored.written_at)
            if reached.is_end:
                moments.setdefault(ENDED, stored.written_at)
        if record.plan is None or record.at is None:
            return RecordedSaga(moments)
        steps, slots = record.plan.steps[:STEPS_READ_MAX], asyncio.Semaphore(READ_AT_ONCE)

        async def read_all(direction: Direction, steps: Iterable[Step]) -> dict[str, StepAct]:
            async def read(step: Step) -> StepAct | None:
                async with slots:
                    return await self.read_act(step_message(key, record.at or "", step, direction))

            named = list(steps)
            acts = await asyncio.gather(*map(read, named))
            return {s.name: act for s, act in zip(named, acts, strict=True) if act is not None}

        done = await read_all(Direction.DO, steps)
        decisions = [(wait, wait.decision(record.events)) for wait in record.plan.waits]
        turns_back = any(act.outcome is not StepOutcome.DONE for act in done.values()) or any(
            decision is not None and decision not in wait.onward for wait, decision in decisions
        )
        undoable = [s for s in steps if turns_back and s.undo is not None and s.name in done]
        return RecordedSaga(moments, done, await read_all(Direction.UNDO, undoable), turns_back)

    async def read_act(self, command: Message) -> StepAct | None:
        """Return what a step's command came to, None for nothing yet."""
        reply = await self.consumer.read_reply(command)
        known = interpret(reply)
        if known is None:
            return None
        position = reply.position if isinstance(reply, Answered | Failed) else None
        stored = None
        if position is not None:
            stored = await self.worker.journal.stored_entry(command.session, position)
        return StepAct(known.outcome, position, stored.written_at if stored else None)

    async def read_record(self, key: str) -> SagaRecord | None:
        """Return the record in the saga's journal, None where there is none.

        Raises Unavailable, NewerState for a record of a newer version, UnreadableState for what is
        no record, and InvalidMessage for a key that no saga can have.
        """
        require_text("session", session_of(key))
        head = await self.worker.read_head(session_of(key))
        if head is None:
            return None
        state = parse_state(SAGA_RECORD, await self.worker.input_after(head))
        return SagaRecord.model_validate(state)

    async def started_record(self, key: str) -> SagaRecord:
        """The record of a saga that has started; raises Unavailable for another."""
        record = await self.read_record(key)
        if record is None or record.plan is None:
            raise Unavailable(f"saga {key!r} has not started")
        return record

    async def apply(self, message: Message) -> SagaResponse:
        key = key_of(message.session)
        if key is None:
            raise InvalidMessage("the key of the saga is empty")
        if self.worker.telemetry is not None:
            message = replace(message, traceparent=traceparent_of(key))
        reply = interpret(await self.consumer.ask(message))
        if reply is None:
            raise Unavailable(f"session {message.session!r} waits", RETRY_SECONDS)
        return SagaResponse(is_accepted=reply.outcome is StepOutcome.DONE, reason=reply.reason)

    @property
    def now(self) -> str:
        return datetime.fromtimestamp(self.worker.clock.today(), UTC).isoformat()


def require_person(who: str | None, why: str | None) -> None:
    """Raise InvalidMessage where a decision does not say who made it, or why."""
    require_line("name of who decided", who or "", WHO_CHARACTERS_MAX)
    require_line("reason", why or "", WHY_CHARACTERS_MAX)


def require_possible(handlers: Handlers, handler: Handler, start: Message) -> None:
    """Raise UnknownType, InvalidBody or NotAllowed for a step that its session would not take."""
    try:
        made = run_pure(handler, HandlerInput(), start)
    except Exception:
        # A plan that cannot be made is a fault, which the saga's own journal records.
        return
    plan = SagaRecord.model_validate(made.state).plan
    for step in plan.steps if plan else ():
        for direction in Direction if step.undo else (Direction.DO,):
            command = step_message(start.session, start.time or "", step, direction)
            refuse_reserved(command.session, command.type)
            parse_body(handlers.of(command.type, command.session), command)


def start_of(key: str, record: SagaRecord) -> StartedSaga:
    """Return the begin of a walk; raises Unavailable for a saga that has not started."""
    if record.plan is None or record.at is None:
        raise Unavailable(f"saga {key!r} has not started")
    return StartedSaga(key=key, at=record.at, plan=record.plan, events=record.events)
