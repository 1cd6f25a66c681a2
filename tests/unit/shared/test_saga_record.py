"""The saga's own session, message by message; tests/scenarios has what comes at the wrong time."""

from typing import Any

import pytest
from pydantic import BaseModel

from shared.domain.handler import Context, HandlerInput, Handlers
from shared.domain.journal import Json
from shared.domain.message import Message
from shared.domain.saga.plan import Command, Plan, SagaState, Stage, Step
from shared.domain.saga.record import (
    EVENT_TYPE,
    SagaEnd,
    SagaEvent,
    SagaKinds,
    SagaRecord,
    end_message,
    event_message,
    kinds_of,
    start_message,
)
from shared.engine.handle.handle import run_pure

AT = "2026-01-01T00:00:00+00:00"
LATER = "2026-02-01T00:00:00+00:00"


class Trip(BaseModel):
    to: str


kinds = SagaKinds()


@kinds.register("trip.book", body=Trip)
def book(trip: Trip, _: Context) -> Plan:
    command = Command(session=f"place:{trip.to}", type="place.take")
    return Plan(parts=(Stage(steps=(Step(name="take", do=command),)),))


START = start_message("t-1", "trip.book", b'{"to":"rome"}', AT)


def event(name: str) -> Message:
    return event_message("t-1", SagaEvent(event=name), AT)


def ending(state: SagaState) -> Message:
    return end_message(SagaEnd(key="t-1", state=state, outcomes={}, reason="why"), AT)


def told(*messages: Message) -> tuple[SagaRecord, list[str | None]]:
    """The record after these messages, and why each was refused."""
    state: Json = {}
    refused = []
    for message in messages:
        result = run_pure(kinds.handlers.of(message.type), HandlerInput(state), message)
        state = result.state
        refused.append((result.answer or {}).get("refused"))
    return SagaRecord.model_validate(state), refused


def test_events_are_kept_once_and_in_order_before_and_after_the_start() -> None:
    said = event("other"), event("approved"), event("approved")
    record, refused = told(*said, START)

    assert refused == [None] * 4
    assert record.events == ("other", "approved")
    assert record.state is SagaState.RUNNING


def test_the_first_end_stands_and_none_comes_before_a_start() -> None:
    assert told(ending(SagaState.COMPLETED))[1] == ["a saga ends once, after it has started"]
    assert told(START, ending(SagaState.RUNNING))[1][-1] == "a saga ends once, after it has started"

    record, refused = told(START, ending(SagaState.COMPENSATED), ending(SagaState.COMPLETED))

    assert refused == [None] * 3
    assert (record.state, record.reason) == (SagaState.COMPENSATED, "why")


def test_kinds_are_told_from_what_else_a_saga_takes() -> None:
    assert kinds_of(kinds.handlers) == {"trip.book"}
    assert kinds_of(Handlers()) == frozenset()
    both = Handlers.joined([SagaKinds().handlers, SagaKinds().handlers])
    assert sorted(both.by_type) == ["saga.end", EVENT_TYPE]
    with pytest.raises(ValueError, match="two handlers"):
        kinds.register(EVENT_TYPE, body=Trip)(book)


def test_ids_follow_from_what_is_said_and_to_whom() -> None:
    said: list[Any] = [START, event("approved"), event("rejected"), ending(SagaState.COMPLETED)]
    said += [event_message("t-2", SagaEvent(event="approved"), AT), ending(SagaState.COMPENSATED)]

    assert len({message.id for message in said}) == len(said)
    assert event_message("t-1", SagaEvent(event="approved"), LATER).id == event("approved").id
