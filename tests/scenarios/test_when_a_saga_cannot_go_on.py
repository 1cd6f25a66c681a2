"""A step gets no answer, a compensation fails, time runs out: the saga ends, and says so."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from pydantic import BaseModel

from shared.domain.errors import Unavailable
from shared.domain.handler import Context, Handled, Handlers, NoState, OnFault
from shared.domain.saga.plan import (
    Command,
    Plan,
    Refusal,
    SagaState,
    Stage,
    Step,
    StepOutcome,
)
from shared.domain.saga.record import ALERT_TYPE, SagaKinds
from shared.domain.standstill import StandstillKind
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.engine.sagas.sagas import Sagas
from tests import saga_stage
from tests.standing import listed

handlers = Handlers()
kinds = SagaKinds(handlers)


class Empty(BaseModel):
    """Nothing is to be said."""


class Deeds(BaseModel):
    """What was done and undone, in order."""

    done: list[str] = []


class Trip(BaseModel):
    """What is booked, and which steps go wrong in which way."""

    do: dict[str, str]
    undo: dict[str, str] = {}
    final: str = ""


@kinds.register("trip.book", body=Trip)
def book(trip: Trip, _: Context) -> Plan:
    """One step after the other."""
    return Plan(
        parts=tuple(
            Stage(steps=(step(name, kind, trip.undo.get(name, "ok")),), is_final=name == trip.final)
            for name, kind in trip.do.items()
        )
    )


def step(name: str, kind: str, undo: str) -> Step:
    """A step in a session of its own."""
    session = f"place:{name}"
    return Step(
        name=name,
        do=Command(session=session, type=f"place.{kind}", body={}),
        undo=Command(session=session, type=f"place.un{undo}", body={}),
        tries=3,
    )


@handlers.register("place.ok", state=Deeds, body=Empty)
@handlers.register("place.unok", state=Deeds, body=Empty)
def act(deeds: Deeds, _: Empty, context: Context) -> Deeds:
    """Act."""
    return Deeds(done=[*deeds.done, context.message.type])


@handlers.register("place.no", state=NoState, body=Empty)
@handlers.register("place.unno", state=NoState, body=Empty)
def refuse(_: NoState, __: Empty, ___: Context) -> Handled[NoState]:
    """Refuse."""
    return Handled(NoState(), answer=Refusal(refused="not today"))


@handlers.register("place.fault", state=Deeds, body=Empty, on_fault=OnFault.SKIP)
@handlers.register("place.unfault", state=Deeds, body=Empty, on_fault=OnFault.SKIP)
@handlers.register("place.halt", state=Deeds, body=Empty)
@handlers.register("place.unhalt", state=Deeds, body=Empty)
def fail(_: Deeds, __: Empty, ___: Context) -> Deeds:
    """Fail."""
    raise ArithmeticError("burnt")


class TripStage(saga_stage.Stage):
    """A stage on which trips are booked."""

    async def trip(self, **trip: object) -> SagaState:
        """Book a trip."""
        await self.book().start("t-1", "trip.book", json.dumps(trip).encode())
        return await (await self.walk("t-1")).run()

    def deeds(self, names: Sequence[str]) -> dict[str, list[str]]:
        """What happened in each place."""
        return {name: self.state(f"place:{name}").get("done", []) for name in names}

    def alerts(self) -> list[dict[str, object]]:
        """What the output queue of the east was told of sagas."""
        sent = self.bus.messages("east", "out")
        return [json.loads(message.body) for message in sent if message.type == ALERT_TYPE]


@pytest.fixture
def stage() -> TripStage:
    return TripStage(handlers)


@pytest.mark.parametrize("wrong", ["no", "fault"])
async def test_what_is_done_is_undone_in_reverse_and_the_rest_never_begins(
    stage: TripStage, wrong: str
) -> None:
    end = await stage.trip(do={"a": "ok", "b": "ok", "c": wrong, "d": "ok"})

    assert end is SagaState.COMPENSATED
    both = ["place.ok", "place.unok"]
    assert stage.deeds("abcd") == {"a": both, "b": both, "c": [], "d": []}
    assert list(stage.record("t-1").outcomes.values()) == ["undone", "undone", "refused"]
    undone = [session for session, _ in stage.taken_in_order() if session.startswith("place")]
    assert undone == [f"place:{name}" for name in "abcba"]
    assert stage.alerts() == []


@pytest.mark.parametrize("wrong", ["no", "fault", "halt"])
async def test_a_compensation_that_fails_is_named_and_the_others_are_carried_out(
    stage: TripStage, wrong: str
) -> None:
    end = await stage.trip(do={"a": "ok", "b": "ok", "c": "no"}, undo={"b": wrong})

    assert end is SagaState.COMPENSATION_FAILED
    assert stage.deeds("ab") == {"a": ["place.ok", "place.unok"], "b": ["place.ok"]}
    record = stage.record("t-1")
    assert record.outcomes == {
        "a": StepOutcome.UNDONE,
        "b": StepOutcome.KEPT,
        "c": StepOutcome.REFUSED,
    }
    (alert,) = stage.alerts()
    assert alert == {
        "key": "t-1",
        "kind": "trip.book",
        "state": "compensation-failed",
        "reason": "c: not today",
        "outcomes": {"a": "undone", "b": "kept", "c": "refused"},
    }


async def test_beyond_the_final_stage_nothing_is_undone_and_a_person_is_told(
    stage: TripStage,
) -> None:
    end = await stage.trip(do={"a": "ok", "b": "ok", "c": "no", "d": "ok"}, final="b")

    assert end is SagaState.UNFINISHED
    assert stage.deeds("abcd") == {"a": ["place.ok"], "b": ["place.ok"], "c": [], "d": []}
    assert [alert["state"] for alert in stage.alerts()] == ["unfinished"]


async def test_the_final_stage_itself_may_be_refused(stage: TripStage) -> None:
    assert await stage.trip(do={"a": "ok", "b": "no"}, final="b") is SagaState.COMPENSATED


async def test_a_halted_session_keeps_the_saga_until_a_person_decides(stage: TripStage) -> None:
    await stage.book().start("t-1", "trip.book", b'{"do":{"a":"ok","b":"halt"}}')
    walk = await stage.walk("t-1")
    going = walk.steps()
    while "place:b" not in stage.entries():
        await anext(going)
    assert stage.record("t-1").state is SagaState.RUNNING

    (halt,) = await listed(stage.worker("west"))
    assert (halt.kind, halt.session) == (StandstillKind.HALT, "place:b")
    decision = ResolutionRequest(ResolutionAction.SKIP, "Ada", "closed for good", at=halt.position)
    await stage.worker("west").resolver.resolve("place:b", decision)

    assert await walk.run() is SagaState.COMPENSATED
    assert stage.deeds("ab") == {"a": ["place.ok", "place.unok"], "b": []}
    assert await listed(stage.worker()) == []


async def test_a_saga_that_needs_a_person_is_listed_until_it_is_closed(stage: TripStage) -> None:
    end = await stage.trip(do={"a": "ok", "b": "ok", "c": "no"}, undo={"b": "no"})
    assert end is SagaState.COMPENSATION_FAILED

    (alert,) = await listed(stage.worker("west"))

    assert (alert.kind, alert.session) == (StandstillKind.ALERT, "saga:t-1")
    assert alert.cause == "the saga is compensation-failed: c: not today"
    close = ResolutionRequest(ResolutionAction.CLOSE, "Ada", "put right", at=alert.position)
    await stage.worker("east").resolver.resolve("saga:t-1", close)
    assert await listed(stage.worker("west")) == []


async def test_a_saga_that_ends_as_planned_asks_for_nobody(stage: TripStage) -> None:
    assert await stage.trip(do={"a": "ok", "b": "no"}) is SagaState.COMPENSATED

    assert await listed(stage.worker()) == []


async def test_no_answer_for_longer_than_is_remembered_is_no_success(stage: TripStage) -> None:
    await stage.book().start("t-1", "trip.book", b'{"do":{"a":"ok","b":"ok"}}')
    walk = await stage.walk("t-1")
    going = walk.steps()
    while "place:a" not in stage.entries():
        await anext(going)
    await stage.clock.sleep(8 * 24 * 3600)

    assert await walk.run() is SagaState.COMPENSATION_FAILED
    assert stage.deeds("ab") == {"a": ["place.ok"], "b": []}
    assert stage.record("t-1").outcomes == {"a": StepOutcome.KEPT, "b": StepOutcome.UNKNOWN}
    assert len(stage.alerts()) == 1


async def test_a_step_that_takes_too_long_is_tried_again(
    stage: TripStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = step("a", "ok", "ok").model_copy(update={"seconds": 0.01})
    taker = Sagas(stage.worker().commands).steps
    await stage.book().start("t-1", "trip.book", b'{"do":{"a":"ok"}}')
    started = await stage.walk("t-1")
    monkeypatch.setattr(stage.journal, "append", never)

    with pytest.raises(Unavailable, match="step 'a' took over"):
        await taker.perform(
            {"key": "t-1", "at": started.saga.at, "step": slow.model_dump(), "direction": "do"}
        )


async def never(*_: object) -> None:
    """Give no answer."""
    await asyncio.Event().wait()
