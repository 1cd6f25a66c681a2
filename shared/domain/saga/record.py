"""The saga's own session: it starts once, keeps the events that come, and ends once.

All three are messages, so either region may record them and nobody records them twice. Because the
state itself says what has happened, that holds beyond the window of un-numbered messages as well.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, Field

from shared.domain.handler import (
    Context,
    Handle,
    Handled,
    Handler,
    Handlers,
    OnFault,
    Output,
    StateModel,
    require_signature,
)
from shared.domain.message import SAGA_SESSION_PREFIX, Message, derive_id
from shared.domain.moments import parse_seconds
from shared.domain.saga.plan import Data, Plan, SagaState, StepOutcome, session_of

EVENT_TYPE = "saga.event"
END_TYPE = "saga.end"
ALERT_TYPE = "saga.alert"
# Before a saga starts nobody knows which events it waits for; more than so many it does not need.
EARLY_EVENTS_MAX = 20


class SagaRecord(BaseModel):
    """The state of a saga's session. `digest` is that of the message that started it."""

    state: SagaState = SagaState.AWAITED
    kind: str | None = None
    at: str | None = None
    digest: str | None = None
    plan: Plan | None = None
    events: tuple[str, ...] = ()
    outcomes: dict[str, StepOutcome] = {}
    reason: str | None = None


SAGA_RECORD = StateModel(SagaRecord)


class SagaEvent(Data):
    """Something from outside that a saga may wait for, or that time is up.

    `who` and `why` are there where a person decided it.
    """

    event: str = Field(min_length=1, max_length=80)
    who: str | None = None
    why: str | None = None


class SagaEnd(Data):
    """The end of a saga, with the outcome of each step it came to."""

    key: str
    state: SagaState
    outcomes: dict[str, StepOutcome]
    reason: str | None = None


class SagaAlert(SagaEnd):
    """A saga that a person has to look at."""

    kind: str | None


class SagaAnswer(BaseModel):
    """The answer of a saga's session: where it stands, and why it refused the message.

    The entry of an event keeps it, so it says of the event who decided it and why.
    """

    state: SagaState
    refused: str | None = None
    event: str | None = None
    who: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class ListedSaga:
    """A saga as it is listed, when its record changed last and by which region.

    `started` is an ISO 8601 time, `changed` are seconds since 1970 on the store's clock, and
    `age_seconds` is how long ago that was when the store answered. Of one that is running, `waits`
    is the first wait that nobody has decided, and at `due` its plan should have come to its last
    step, in seconds since 1970; both are None of any other.
    """

    key: str
    state: SagaState
    kind: str | None
    started: str | None
    changed: float
    age_seconds: float
    region: str
    waits: str | None = None
    due: float | None = None


type PlanMaker[B: BaseModel] = Callable[[B, Context], Plan]


@dataclass(frozen=True)
class SagaKinds:
    """The kinds of sagas an application has: how each makes its plan of what starts it."""

    handlers: Handlers = field(default_factory=Handlers)

    def __post_init__(self) -> None:
        # Without these two a saga may never end. No application's code runs in them, so they become
        # faults for want of room only, or of time; a person lets them run again.
        self.handlers.add(saga_handler(EVENT_TYPE, SagaEvent, add_event, is_ours=True))
        self.handlers.add(saga_handler(END_TYPE, SagaEnd, end_saga, is_ours=True))

    def register[P: PlanMaker[Any]](self, kind: str, *, body: type[BaseModel]) -> Callable[[P], P]:
        """Decorate a pure function that makes a Plan of a body and a Context.

        A message of the type `kind` starts such a saga. Raises ValueError for a second function of
        a kind, and for one of other parameters.
        """

        def add(planner: P) -> P:
            def start(record: SagaRecord, order: Any, context: Context) -> Handled[SagaRecord]:
                return start_saga(record, context, lambda: planner(order, context))

            require_signature(kind, planner, "body", "context")
            self.handlers.add(saga_handler(kind, body, start))
            return planner

        return add


def saga_handler(
    kind: str, body: type[BaseModel], handle: Handle, *, is_ours: bool = False
) -> Handler:
    """The handler of a type that only the journals of sagas take."""
    on_fault = OnFault.HALT if is_ours else OnFault.SKIP
    sessions = (f"{SAGA_SESSION_PREFIX}*",)
    return Handler(kind, SAGA_RECORD, body, handle, on_fault, sessions=sessions, is_ours=is_ours)


def foresee(record: SagaRecord) -> tuple[str | None, float | None]:
    """Return the `waits` and `due` of a ListedSaga; both are None where the saga is not running."""
    if record.state is not SagaState.RUNNING or record.plan is None or record.at is None:
        return None, None
    waits = (wait.name for wait in record.plan.waits if wait.decision(record.events) is None)
    return next(waits, None), parse_seconds(record.at) + record.plan.seconds_max


def kinds_of(handlers: Handlers) -> frozenset[str]:
    """The message types that start a saga."""
    return frozenset(
        kind
        for kind, handler in handlers.by_type.items()
        if handler.state == SAGA_RECORD and not handler.is_ours
    )


def start_saga(
    record: SagaRecord, context: Context, plan: Callable[[], Plan]
) -> Handled[SagaRecord]:
    message = context.message
    if record.digest == message.digest:
        return answer_with(record)
    if record.digest is not None:
        return answer_with(record, "it was started with other content")
    begun = {
        "state": SagaState.RUNNING,
        "kind": message.type,
        "at": context.now.isoformat(),
        "digest": message.digest,
        "plan": plan(),
    }
    return answer_with(record.model_copy(update=begun))


def add_event(record: SagaRecord, event: SagaEvent, _: Context) -> Handled[SagaRecord]:
    """Keep an event; one that can change nothing any more is refused."""
    refused = explain_refusal(record, event.event)
    if refused is None and event.event not in record.events:
        record = record.model_copy(update={"events": (*record.events, event.event)})
    answer = SagaAnswer(state=record.state, refused=refused, **event.model_dump())
    return Handled(record, answer=answer)


def explain_refusal(record: SagaRecord, event: str) -> str | None:
    """Return why an event comes to nothing, if it does."""
    if record.state.is_end:
        return f"the saga is {record.state}"
    if record.plan is None:
        is_crowded = len(record.events) >= EARLY_EVENTS_MAX
        return "too many events for no saga" if is_crowded else None
    waits = [wait for wait in record.plan.waits if event in wait.events]
    if not waits:
        return f"the saga does not wait for {event!r}"
    decisions = [wait.decision(record.events) for wait in waits]
    if None in decisions or event in decisions:
        return None
    return f"{waits[0].name} was decided: {decisions[0]}"


def end_saga(record: SagaRecord, ending: SagaEnd, _: Context) -> Handled[SagaRecord]:
    """End the saga, once; an end that nobody planned sends an alert."""
    if record.plan is None or not ending.state.is_end:
        return answer_with(record, "a saga ends once, after it has started")
    if record.state.is_end:
        return answer_with(record)
    ended = record.model_copy(
        update={"state": ending.state, "outcomes": ending.outcomes, "reason": ending.reason}
    )
    answer = SagaAnswer(state=ended.state)
    if not ending.state.needs_a_person:
        return Handled(ended, answer=answer)
    alert = f"the saga is {ended.state}: {ended.reason or 'no reason given'}"
    sent = SagaAlert(kind=ended.kind, **ending.model_dump())
    return Handled(ended, (Output(ALERT_TYPE, sent),), answer, alert)


def answer_with(record: SagaRecord, refused: str | None = None) -> Handled[SagaRecord]:
    return Handled(record, answer=SagaAnswer(state=record.state, refused=refused))


def start_message(key: str, kind: str, body: bytes, at: str) -> Message:
    """The message that starts a saga: its id follows from key, kind and content."""
    unnamed = Message("start", session_of(key), kind, body, time=at)
    return name_message(unnamed, "start", unnamed.digest)


def event_message(key: str, event: SagaEvent, at: str) -> Message:
    """The message that keeps an event: the same event, decided alike, has the same id."""
    body = event.model_dump_json(exclude_none=True).encode()
    unnamed = Message("event", session_of(key), EVENT_TYPE, body, time=at)
    decided = (event.who or "", event.why or "") if event.who or event.why else ()
    return name_message(unnamed, "event", event.event, *decided)


def end_message(ending: SagaEnd, at: str) -> Message:
    """The message that ends a saga; another end has another id, and comes too late."""
    body = ending.model_dump_json().encode()
    unnamed = Message("end", session_of(ending.key), END_TYPE, body, time=at)
    return name_message(unnamed, "end", unnamed.digest)


def name_message(message: Message, *parts: str) -> Message:
    """The message with the id that follows from its session and these parts."""
    return replace(message, id=derive_id("saga", message.session, *parts))
