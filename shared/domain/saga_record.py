"""The saga's own session: it starts once, keeps the events that come, and ends once.

All three are messages, so either region may record them and nobody records them twice. Because the
state itself says what has happened, that holds beyond the window of un-numbered messages, too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

from shared.domain.errors import InvalidBody
from shared.domain.handling import Context, Handled, Handler, Handlers, OnFault, Output
from shared.domain.message import Message, derived_id
from shared.domain.saga import Data, Outcome, Plan, State, key_of, session_of

EVENT_TYPE = "saga.event"
END_TYPE = "saga.end"
ALERT_TYPE = "saga.alert"
# Before a saga starts nobody knows which events it waits for; more than so many it does not need.
EARLY_EVENTS_MAX = 20


class Record(BaseModel):
    """The state of a saga's session. `digest` is that of the message that started it."""

    state: State = State.AWAITED
    kind: str | None = None
    at: str | None = None
    digest: str | None = None
    plan: Plan | None = None
    events: tuple[str, ...] = ()
    outcomes: dict[str, Outcome] = {}
    reason: str | None = None


class Event(Data):
    """Something from outside that a saga may wait for, or that time is up."""

    event: str = Field(min_length=1, max_length=80)


class End(Data):
    """How a saga ended, with what became of each step it came to."""

    key: str
    state: State
    outcomes: dict[str, Outcome]
    reason: str | None = None


class Said(BaseModel):
    """What a saga's session answers: where it stands, and why it took no notice."""

    state: State
    refused: str | None = None


class Alert(Data):
    """A saga that a person has to look at."""

    key: str
    kind: str | None
    state: State
    reason: str | None
    outcomes: dict[str, Outcome]


type Planner[B: BaseModel] = Callable[[B, Context], Plan]


@dataclass(frozen=True)
class SagaKinds:
    """The kinds of sagas an application has: how each makes its plan of what starts it."""

    handlers: Handlers = field(default_factory=Handlers)

    def __post_init__(self) -> None:
        for kind, body, handle in ((EVENT_TYPE, Event, hear), (END_TYPE, End, end)):
            self.handlers.add(Handler(kind, Record, body, handle, OnFault.SKIP))

    def register[P: Planner[Any]](self, kind: str, *, body: type[BaseModel]) -> Callable[[P], P]:
        """Decorate a pure function that makes a plan; a second one for a kind is a ValueError."""

        def add(planner: P) -> P:
            def start(record: Record, order: Any, context: Context) -> Handled[Record]:
                return started(record, context, lambda: planner(order, context))

            self.handlers.add(Handler(kind, Record, body, start, OnFault.SKIP))
            return planner

        return add


def kinds_of(handlers: Handlers) -> frozenset[str]:
    """The message types that start a saga."""
    of_sagas = {kind for kind, handler in handlers.by_type.items() if handler.state is Record}
    return frozenset(of_sagas - {EVENT_TYPE, END_TYPE})


def started(record: Record, context: Context, plan: Callable[[], Plan]) -> Handled[Record]:
    """The session after a message that starts a saga."""
    message = context.message
    if key_of(message.session) is None:
        raise InvalidBody(f"session {message.session!r} is no saga's")
    if record.digest == message.digest:
        return said(record)
    if record.digest is not None:
        return said(record, "it was started with other content")
    begun = {
        "state": State.RUNNING,
        "kind": message.type,
        "at": context.now.isoformat(),
        "digest": message.digest,
        "plan": plan(),
    }
    return said(record.model_copy(update=begun))


def hear(record: Record, event: Event, _: Context) -> Handled[Record]:
    """Keep an event; one that can change nothing any more is refused."""
    refused = refusal(record, event.event)
    if refused is not None or event.event in record.events:
        return said(record, refused)
    return said(record.model_copy(update={"events": (*record.events, event.event)}))


def refusal(record: Record, event: str) -> str | None:
    """Why an event comes to nothing, if it does."""
    if record.state.is_end:
        return f"the saga is {record.state}"
    if record.plan is None:
        return "too many events for no saga" if is_crowded(record) else None
    waits = [wait for wait in record.plan.waits if event in wait.events]
    if not waits:
        return f"the saga does not wait for {event!r}"
    decisions = [wait.decision(record.events) for wait in waits]
    if None in decisions or event in decisions:
        return None
    return f"{waits[0].name} was decided: {decisions[0]}"


def is_crowded(record: Record) -> bool:
    """Whether as many events were kept as a saga that has not started may have."""
    return len(record.events) >= EARLY_EVENTS_MAX


def end(record: Record, ending: End, _: Context) -> Handled[Record]:
    """End the saga, once; a person is told of an end that nobody planned."""
    if record.plan is None or not ending.state.is_end:
        return said(record, "a saga ends once, after it has started")
    if record.state.is_end:
        return said(record)
    ended = record.model_copy(
        update={"state": ending.state, "outcomes": ending.outcomes, "reason": ending.reason}
    )
    alerts = (alert(ended, ending),) if ending.state.needs_a_person else ()
    return Handled(ended, alerts, answer=Said(state=ended.state))


def alert(ended: Record, ending: End) -> Output:
    """What the app's output queue is told of a saga that a person has to look at."""
    told = Alert(
        key=ending.key,
        kind=ended.kind,
        state=ended.state,
        reason=ended.reason,
        outcomes=ended.outcomes,
    )
    return Output(ALERT_TYPE, told)


def said(record: Record, refused: str | None = None) -> Handled[Record]:
    """A record as the new state, and what is answered."""
    return Handled(record, answer=Said(state=record.state, refused=refused))


def start_message(key: str, kind: str, body: bytes, at: str) -> Message:
    """The message that starts a saga: its id follows from key, kind and content."""
    unnamed = Message("start", session_of(key), kind, body, time=at)
    return named(unnamed, "start", unnamed.digest)


def event_message(key: str, event: str, at: str) -> Message:
    """The message that keeps an event: the same event has the same id."""
    body = Event(event=event).model_dump_json().encode()
    return named(Message("event", session_of(key), EVENT_TYPE, body, time=at), "event", event)


def end_message(ending: End, at: str) -> Message:
    """The message that ends a saga; another end has another id, and comes too late."""
    body = ending.model_dump_json().encode()
    unnamed = Message("end", session_of(ending.key), END_TYPE, body, time=at)
    return named(unnamed, "end", unnamed.digest)


def named(message: Message, *parts: str) -> Message:
    """The message with the id that follows from its session and these parts."""
    return Message(
        derived_id("saga", message.session, *parts),
        message.session,
        message.type,
        message.body,
        time=message.time,
    )
