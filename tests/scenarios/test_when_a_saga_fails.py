"""A saga cannot go on, loses its worker or has two: it ends, acts once, and says so."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from pydantic import BaseModel

from functions.handlers import orders
from shared.domain.errors import Unavailable
from shared.domain.handler import Context, Handled, Handlers, NoState, OnFault
from shared.domain.journal import Owner
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.saga.plan import (
    Command,
    Direction,
    Plan,
    Refusal,
    SagaState,
    Stage,
    Step,
    StepOutcome,
)
from shared.domain.saga.record import ALERT_TYPE, SagaEnd, SagaKinds
from shared.domain.saga.walk import Activity, CallAll, WalkRequest
from shared.domain.standstill import StandstillKind
from shared.engine.build import Services
from shared.engine.sagas.sagas import Sagas
from shared.engine.worker import Policy
from shared.ports import WriteResult
from shared.testkit.injected_faults import PASSING_FAULTS, CallFault, FaultPlan, ProcessKilled
from tests import saga_stage
from tests.saga_stage import STAND_BY_SECONDS, Walk, order, stocked
from tests.saga_stage import Stage as SagaStage
from tests.saga_walks import walked
from tests.standstills import listed
from tests.world import REGIONS, RETRY, SKIP

# When a saga cannot go on, it turns back or ends, and says so.

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
async def test_what_is_done_is_undone_in_reverse(stage: TripStage, wrong: str) -> None:
    end = await stage.trip(do={"a": "ok", "b": "ok", "c": wrong, "d": "ok"})

    assert end is SagaState.COMPENSATED
    both = ["place.ok", "place.unok"]
    assert stage.deeds("abcd") == {"a": both, "b": both, "c": [], "d": []}
    assert list(stage.record("t-1").outcomes.values()) == ["undone", "undone", "refused"]
    undone = [session for session, _ in stage.taken() if session.startswith("place")]
    assert undone == [f"place:{name}" for name in "abcba"]
    # A saga that ends as planned asks for nobody.
    assert stage.alerts() == []
    assert await listed(stage.worker()) == []


@pytest.mark.parametrize("wrong", ["no", "fault", "halt"])
async def test_a_compensation_that_fails_is_named_others_go_on(
    stage: TripStage, wrong: str
) -> None:
    end = await stage.trip(do={"a": "ok", "b": "ok", "c": "no"}, undo={"b": wrong})

    assert end is SagaState.COMPENSATION_FAILED
    assert stage.deeds("ab") == {"a": ["place.ok", "place.unok"], "b": ["place.ok"]}
    outcomes = {"a": StepOutcome.UNDONE, "b": StepOutcome.KEPT, "c": StepOutcome.REFUSED}
    assert stage.record("t-1").outcomes == outcomes
    (told,) = stage.alerts()
    assert told == {
        "key": "t-1",
        "kind": "trip.book",
        "state": "compensation-failed",
        "reason": "c: not today",
        "outcomes": {"a": "undone", "b": "kept", "c": "refused"},
    }
    if wrong == "no":
        # It is listed until a person closes it.
        (alert,) = await listed(stage.worker("west"))
        assert (alert.kind, alert.session) == (StandstillKind.ALERT, "saga:t-1")
        assert alert.cause == "the saga is compensation-failed: c: not today"
        close = ResolutionRequest(ResolutionAction.CLOSE, "Ada", "put right", at=alert.position)
        await stage.worker("east").resolver.resolve("saga:t-1", close)
        assert await listed(stage.worker("west")) == []


async def test_beyond_the_final_stage_a_person_is_told_and_nothing_undone(stage: TripStage) -> None:
    end = await stage.trip(do={"a": "ok", "b": "ok", "c": "no", "d": "ok"}, final="b")

    assert end is SagaState.UNFINISHED
    assert stage.deeds("abcd") == {"a": ["place.ok"], "b": ["place.ok"], "c": [], "d": []}
    assert [alert["state"] for alert in stage.alerts()] == ["unfinished"]


async def test_the_final_stage_itself_may_be_refused(stage: TripStage) -> None:
    assert await stage.trip(do={"a": "ok", "b": "no"}, final="b") is SagaState.COMPENSATED


async def begun_to(stage: TripStage, place: str, trip: bytes) -> saga_stage.Walk:
    """A trip that was walked until its session in one place has an entry."""
    await stage.book().start("t-1", "trip.book", trip)
    walk = await stage.walk("t-1")
    going = walk.steps()
    while not stage.entries(place):
        await anext(going)
    return walk


async def test_a_halted_session_keeps_the_saga_until_a_person_decides(stage: TripStage) -> None:
    walk = await begun_to(stage, "place:b", b'{"do":{"a":"ok","b":"halt"}}')
    assert stage.record("t-1").state is SagaState.RUNNING

    (halt,) = await listed(stage.worker("west"))
    assert (halt.kind, halt.session) == (StandstillKind.HALT, "place:b")
    await stage.worker("west").resolver.resolve("place:b", replace(SKIP, at=halt.position))

    assert await walk.run() is SagaState.COMPENSATED
    assert stage.deeds("ab") == {"a": ["place.ok", "place.unok"], "b": []}
    assert await listed(stage.worker()) == []


async def test_no_answer_for_longer_than_is_remembered_is_no_success(stage: TripStage) -> None:
    walk = await begun_to(stage, "place:a", b'{"do":{"a":"ok","b":"ok"}}')
    await stage.clock.sleep(8 * 24 * 3600)

    assert await walk.run() is SagaState.COMPENSATION_FAILED
    assert stage.deeds("ab") == {"a": ["place.ok"], "b": []}
    assert stage.record("t-1").outcomes == {"a": StepOutcome.KEPT, "b": StepOutcome.UNKNOWN}
    assert len(stage.alerts()) == 1


async def test_a_step_that_takes_too_long_is_tried_again(stage: TripStage) -> None:
    async def never(*_: object) -> WriteResult:
        await asyncio.Event().wait()
        raise AssertionError

    slow = step("a", "ok", "ok").model_copy(update={"seconds": 0.01})
    taker = Sagas(stage.worker().consumer).steps
    await stage.book().start("t-1", "trip.book", b'{"do":{"a":"ok"}}')
    at = (await stage.walk("t-1")).saga.at
    stage.journal.append = never  # type: ignore[assignment, method-assign]

    with pytest.raises(Unavailable, match="step 'a' took over"):
        await taker.perform({"key": "t-1", "at": at, "step": slow.model_dump(), "direction": "do"})


# When a saga loses its worker around any step or call, another goes on, and it acts once.

SESSIONS = ("stock:p", "stock:q", "account:ada", "order:o-1", "saga:o-1")

# What is ordered, which event comes, and how the saga ends.
COURSES = {
    "completed": (order(("p", 60), ("q", 5), approval=30), "approved", SagaState.COMPLETED),
    "rejected": (order(("p", 60), ("q", 5), approval=30), "rejected", SagaState.COMPENSATED),
    "timed out": (order(("p", 60), ("q", 5), approval=30), None, SagaState.COMPENSATED),
    "sold out": (order(("p", 60), ("q", 500)), None, SagaState.COMPENSATED),
    "one line": (order(("p", 60)), None, SagaState.COMPLETED),
    "one line too dear": (order(("p", 60), amount=5000), None, SagaState.COMPENSATED),
    "too dear": (order(("p", 60), ("q", 5), amount=5000), None, SagaState.COMPENSATED),
}

type Recover = Callable[[Walk], Awaitable[SagaState]]


async def begun(course: str, fault_plan: FaultPlan | None = None) -> SagaStage:
    """A stage on which the saga has started and its event has come."""
    placed, event, _ = COURSES[course]
    stage = await stocked(SagaStage(orders.handlers, fault_plan), ["p", "q"], 100)
    await stage.start("o-1", placed)
    if event is not None:
        await stage.book().add_event("o-1", event)
    return stage


async def undisturbed(course: str) -> tuple[SagaStage, Walk]:
    """A walk to the end in which nothing goes wrong."""
    stage = await begun(course)
    walk = await stage.walk("o-1")
    assert await walk.run() is COURSES[course][2]
    return stage, walk


async def replay(walk: Walk) -> SagaState:
    """The same instance goes on in another worker of its region: Durable replays its history."""
    return await walk.run()


async def adopt(walk: Walk) -> SagaState:
    """The other region stands by, finds that the saga is not over, and walks it from the start.

    Then the dead one comes back and goes on.
    """
    adopted = await Walk(walk.stage, "west", walk.saga, STAND_BY_SECONDS).run()
    assert await walk.run() is adopted
    return adopted


def assert_the_same(stage: SagaStage, quiet: SagaStage) -> None:
    """Every session is as if nothing had gone wrong, and took each message once."""
    for session in SESSIONS:
        left, expected = dict(stage.state(session)), dict(quiet.state(session))
        assert left == expected, session
    assert [taken for taken, times in Counter(stage.taken()).items() if times > 1] == []
    assert sorted(stage.taken()) == sorted(quiet.taken())


@pytest.mark.parametrize("recover", [replay, adopt])
@pytest.mark.parametrize("course", COURSES)
async def test_before_and_after_every_activity(course: str, recover: Recover) -> None:
    quiet, whole = await undisturbed(course)
    assert whole.activities >= 5

    for dies_at, dies_before in product(range(whole.activities), (True, False)):
        stage = await begun(course)
        walk = await stage.walk("o-1")
        walk.dies_at, walk.dies_before = dies_at, dies_before
        with pytest.raises(ProcessKilled):
            await walk.run()
        walk.dies_at = None

        assert await recover(walk) is COURSES[course][2]
        assert_the_same(stage, quiet)


@pytest.mark.parametrize("how", PASSING_FAULTS)
@pytest.mark.parametrize("course", ["one line", "one line too dear"])
async def test_around_every_call_to_the_store(course: str, how: CallFault) -> None:
    counting = FaultPlan()
    quiet = await walked(*COURSES[course], counting)
    calls = len(counting.made)
    assert calls > 10

    for at in range(calls):
        stage = await walked(*COURSES[course], FaultPlan({at: how}))
        assert_the_same(stage, quiet)


class OneHost(SagaStage):
    """A stage whose workers come one after another in the host of a region, all of them careful."""

    def worker(self, region: str = "east", policy: Policy | None = None) -> Services:
        """The next worker of the region's host."""
        started = super().worker(region, policy)
        started.worker.owner = Owner(region, f"{region}/{self.workers}")
        started.worker.careful_until = float("inf")
        return started


async def test_workers_that_die_one_after_another_keep_no_saga_from_its_end() -> None:
    placed, _, end = COURSES["timed out"]
    plan = FaultPlan()
    stage = await stocked(OneHost(orders.handlers, plan), ["p", "q"], 100)
    await stage.start("o-1", placed)
    time_is_up = {"key": "o-1", "wait": "approval", "is_over": True}
    ending = SagaEnd(key="o-1", state=end, outcomes={}).model_dump(mode="json")

    for activity, work in ((Activity.DECIDE, time_is_up), (Activity.END, ending)):
        for _ in range(5):
            plan.plan("append", CallFault.KILLED_AFTER)
            plan.plan("replace", CallFault.KILLED_AFTER)
            with suppress(ProcessKilled):
                await stage.book().activities()[activity](work)
            plan.planned.clear()
        await stage.book().activities()[activity](work)

    assert stage.record("o-1").state is end
    assert stage.record("o-1").events == ("timeout:approval",)
    assert stage.reports() == []


async def test_an_end_that_is_a_fault_waits_for_a_person() -> None:
    placed, _, end = COURSES["timed out"]
    stage = await stocked(SagaStage(orders.handlers), ["p", "q"], 100)
    await stage.start("o-1", placed)
    ending = SagaEnd(key="o-1", state=end, outcomes={}).model_dump(mode="json")
    stage.journal.fault_plan.plan("append", CallFault.UNACCEPTABLE)

    with pytest.raises(Unavailable, match="waits"):
        await stage.book().end(ending)
    assert [found.kind for found in await listed(stage.worker())] == [StandstillKind.HALT]
    await stage.worker().resolver.resolve("saga:o-1", RETRY)

    assert await stage.book().end(ending) == {"ended": end}
    assert stage.record("o-1").state is end


# When a saga is walked by both regions, in any order, they go the same way and act once.


async def two_walks(placed: str) -> tuple[SagaStage, list[Walk]]:
    """A started saga, and an instance in each region that has done nothing yet."""
    stage = await stocked(SagaStage(orders.handlers), ["p", "q"], 100)
    await stage.start("o-1", placed)
    return stage, [await stage.walk("o-1", region) for region in REGIONS]


def assert_acted_once(stage: SagaStage) -> None:
    """No session took a message twice."""
    assert set(Counter(stage.taken()).values()) == {1}


@pytest.mark.parametrize("course", ["completed", "sold out"])
@pytest.mark.parametrize("seed", range(20))
async def test_request_by_request_in_any_order(course: str, seed: int) -> None:
    placed, event, end = COURSES[course]
    stage, walks = await two_walks(placed)
    if event is not None:
        await stage.book().add_event("o-1", event)
    chance = Random(seed)
    going = [walk.steps() for walk in walks]
    while going:
        one = chance.choice(going)
        try:
            await anext(one)
        except StopAsyncIteration:
            going.remove(one)

    assert [walk.told[-1] for walk in walks] == [end, end]
    assert stage.record("o-1").state is end
    assert_acted_once(stage)
    assert stage.state("stock:p")["reserved"] == {}
    assert stage.state("stock:p")["shipped"] == (60 if end is SagaState.COMPLETED else 0)


@pytest.mark.parametrize("event", ["approved", "rejected"])
async def test_time_is_up_for_one_when_the_event_comes_to_the_other(event: str) -> None:
    ends = {}
    for event_is_first in (True, False):
        stage, (late, heard) = await two_walks(order(("p", 60), approval=30))
        if event_is_first:
            await stage.book("west").add_event("o-1", event)
        late.hears = False
        first = await late.run()
        told = await stage.book("west").add_event("o-1", event)
        second = await heard.run()

        assert first is second
        assert (told.reason is None) is event_is_first
        assert_acted_once(stage)
        ends[event_is_first] = first

    assert ends == {
        True: SagaState.COMPLETED if event == "approved" else SagaState.COMPENSATED,
        False: SagaState.COMPENSATED,
    }


UNTOUCHED = {"received": 100, "left": 100, "shipped": 0, "reserved": {}}


async def test_time_that_is_up_is_up_for_both_before_anything_is_undone() -> None:
    stage, (late, heard) = await two_walks(order(("p", 60), approval=30))
    late.hears = False
    going = late.steps()
    while not is_undoing(await anext(going)):
        assert stage.state("account:ada")["paid"] == 0

    told = await stage.book("west").add_event("o-1", "approved")

    assert told.reason == "approval was decided: timeout:approval"
    assert await heard.run() is SagaState.COMPENSATED
    assert await late.run() is SagaState.COMPENSATED
    assert stage.state("stock:p") == UNTOUCHED
    assert stage.state("account:ada")["paid"] == 0


def is_undoing(request: WalkRequest) -> bool:
    """Whether a walk asks for a compensation."""
    calls = request.calls if isinstance(request, CallAll) else ()
    return any(call.work.get("direction") == Direction.UNDO for call in calls)


async def test_one_gives_a_step_up_that_the_other_still_has_on_its_way() -> None:
    stage, (gives_up, slow) = await two_walks(order(("p", 60)))
    gives_up.silent = {"reserve.p"}

    assert [await walk.run() for walk in (gives_up, slow)] == [SagaState.COMPENSATED] * 2

    assert stage.state("stock:p") == UNTOUCHED
    assert stage.state("order:o-1")["status"] == "cancelled"
    why = "reserve.p: voided by its sender: its session gave no answer"
    assert stage.record("o-1").reason == why


async def test_one_wants_to_give_a_step_up_that_the_other_has_done() -> None:
    stage, (gives_up, quick) = await two_walks(order(("p", 60)))
    gives_up.silent = {"reserve.p"}
    going = quick.steps()
    while len(stage.entries("stock:p")) < 2:
        await anext(going)

    assert await gives_up.run() is SagaState.COMPLETED
    assert await quick.run() is SagaState.COMPLETED
    assert_acted_once(stage)
    assert stage.state("stock:p")["shipped"] == 60
