"""Nobody drives a saga any more: its journal says that it is under way, and the sweep finds it."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from durabletask.client import OrchestrationStatus
from pydantic import BaseModel

from functions.handlers import orders
from functions.triggers import saga_instances
from functions.triggers.saga_instances import SagaSweep
from shared.domain.handler import Context, Handlers
from shared.domain.saga.plan import Command, Plan, SagaState, Step, instance_of
from shared.domain.saga.plan import Stage as PlanStage
from shared.domain.saga.record import SagaKinds
from shared.domain.saga.walk import StartedSaga
from shared.testkit.injected_faults import CallFault
from tests.saga_stage import Stage, Walk, order, stocked
from tests.unit.functions.test_recover import triggers
from tests.unit.functions.test_sagas_http import Hub

PLACED = order(("p", 2), approval=60)
OLD_SECONDS = 60.0


@pytest.fixture
async def stage() -> Stage:
    return await stocked(Stage(orders.handlers), ["p"], 100)


def sweep_of(stage: Stage, region: str = "east") -> SagaSweep:
    return SagaSweep(stage.worker(region), stage.book(region))


def keys_in(hub: Hub) -> list[str]:
    return sorted(work["saga"]["key"] for work in hub.instances.values())


async def drive(stage: Stage, hub: Hub, region: str = "east") -> list[SagaState]:
    """Walk every instance of a hub to its end, side by side."""
    walks = [
        Walk(stage, region, StartedSaga.model_validate(work["saga"]), work["stand_by_seconds"])
        for work in hub.instances.values()
    ]
    return list(await asyncio.gather(*(walk.run() for walk in walks)))


async def left_behind(stage: Stage, *keys: str) -> None:
    """Sagas whose task hub is lost: their steps before the approval are done."""
    for key in keys:
        await stage.start(key, PLACED)
        going = (await stage.walk(key)).steps()
        while len(stage.entries(f"order:{key}")) < 1:
            await anext(going)
    await stage.clock.sleep(OLD_SECONDS)


async def undisturbed() -> Stage:
    """The same saga to its end, with nothing lost."""
    whole = await stocked(Stage(orders.handlers), ["p"], 100)
    await whole.start("o-1", PLACED)
    await whole.book().add_event("o-1", "approved")
    assert await (await whole.walk("o-1")).run() is SagaState.COMPLETED
    return whole


async def test_when_the_task_hub_is_lost_the_sweep_drives_its_sagas_to_the_same_end(
    stage: Stage,
) -> None:
    await left_behind(stage, "o-1")
    await stage.book().add_event("o-1", "approved")
    await stage.clock.sleep(OLD_SECONDS)

    hub = Hub()
    assert await sweep_of(stage).run(hub) == 1
    assert await drive(stage, hub) == [SagaState.COMPLETED]

    whole = await undisturbed()
    for session in ("order:o-1", "stock:p", "account:ada"):
        assert stage.state(session) == whole.state(session)
    assert stage.record("o-1").outcomes == whole.record("o-1").outcomes
    assert len(stage.taken()) == len(set(stage.taken())) == len(whole.taken())


async def test_when_the_task_hub_is_lost_the_timer_of_the_sweep_starts_its_sagas(
    stage: Stage,
) -> None:
    await left_behind(stage, "o-1")
    sweep = triggers(stage.worker())["sweep"]

    await sweep(None)

    assert keys_in(sweep.keywords["client"]) == ["o-1"]  # type: ignore[attr-defined]


async def test_when_an_instance_is_alive_it_is_not_started_again(stage: Stage) -> None:
    await left_behind(stage, "o-1")
    hub = Hub(instances={instance_of("o-1"): {"saga": {"key": "as it was"}}})

    assert await sweep_of(stage).run(hub) == 0

    assert keys_in(hub) == ["as it was"]


@pytest.mark.parametrize("status", saga_instances.FINISHED)
async def test_when_an_instance_is_over_and_its_saga_is_not_it_is_replaced(
    stage: Stage, status: OrchestrationStatus
) -> None:
    await left_behind(stage, "o-1")
    name = instance_of("o-1")
    hub = Hub(instances={name: {"saga": {"key": "old"}}}, statuses={name: status})

    assert await sweep_of(stage).run(hub) == 1

    assert keys_in(hub) == ["o-1"]


async def test_when_both_regions_sweep_at_once_one_walks_and_the_other_stands_by(
    stage: Stage,
) -> None:
    await left_behind(stage, "o-1")
    east, west = Hub(), Hub()

    sweeps = sweep_of(stage).run(east), sweep_of(stage, "west").run(west)
    assert list(await asyncio.gather(*sweeps)) == [1, 1]
    stands_by = [hub.instances[instance_of("o-1")]["stand_by_seconds"] for hub in (east, west)]
    assert stands_by == [0.0, stage.worker().worker.policy.lease_seconds]
    await stage.book().add_event("o-1", "approved")

    ends = await asyncio.gather(drive(stage, east), drive(stage, west, "west"))
    assert list(ends) == [[SagaState.COMPLETED]] * 2
    assert len(stage.taken()) == len(set(stage.taken()))
    assert stage.state("order:o-1") == (await undisturbed()).state("order:o-1")


async def test_when_the_hub_is_silent_one_call_waits_and_the_next_run_begins_all(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saga_instances, "HUB_SECONDS", 0.01)
    await left_behind(stage, "o-1", "o-2", "o-3")
    hub, sweep = Hub(is_silent=True), sweep_of(stage)

    assert await sweep.run(hub) == 0
    assert hub.asked == [instance_of("o-1")]

    monkeypatch.undo()
    hub.is_silent = False
    assert await sweep.run(hub) == 3
    assert keys_in(hub) == ["o-1", "o-2", "o-3"]


@pytest.mark.parametrize("code", saga_instances.LOST)
async def test_when_the_hub_cannot_be_reached_nothing_is_passed_over(
    stage: Stage, code: grpc.StatusCode
) -> None:
    await left_behind(stage, "o-1", "o-2")
    hub, sweep = Hub(lost=code), sweep_of(stage)

    assert await sweep.run(hub) == 0
    assert len(hub.asked) == 1

    hub.lost = None
    assert await sweep.run(hub) == 2


async def test_when_a_start_is_refused_the_others_are_started(stage: Stage) -> None:
    await left_behind(stage, "o-1", "o-2", "o-3")
    hub = Hub(refused={instance_of("o-1"): grpc.StatusCode.INVALID_ARGUMENT})

    assert await sweep_of(stage).run(hub) == 2
    assert keys_in(hub) == ["o-2", "o-3"]


async def test_when_the_saga_ends_after_it_was_listed_nothing_is_started(stage: Stage) -> None:
    await left_behind(stage, "o-1")

    class EndingHub(Hub):
        async def get_orchestration_state(self, instance_id: str, *, fetch_payloads: bool) -> Any:
            await stage.book().cancel("o-1")
            assert await (await stage.walk("o-1")).run() is SagaState.COMPENSATED
            return await super().get_orchestration_state(instance_id, fetch_payloads=fetch_payloads)

    hub = EndingHub()
    assert await sweep_of(stage).run(hub) == 0
    assert hub.instances == {}


async def test_when_the_saga_ends_before_its_new_instance_walks_nothing_is_done_twice(
    stage: Stage,
) -> None:
    await left_behind(stage, "o-1")
    hub = Hub()
    assert await sweep_of(stage).run(hub) == 1
    await stage.book().cancel("o-1")
    assert await (await stage.walk("o-1")).run() is SagaState.COMPENSATED
    before = stage.taken()

    assert await drive(stage, hub) == [SagaState.COMPENSATED]
    assert stage.taken() == before


async def test_when_the_store_cannot_be_read_the_next_run_begins_there(stage: Stage) -> None:
    await left_behind(stage, "o-1")
    hub, sweep = Hub(), sweep_of(stage)
    stage.fault_plan.plan("sagas", CallFault.REFUSED)

    assert await sweep.run(hub) == 0
    assert await sweep.run(hub) == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": {"state": "running", "plan": {"parts": 1}}}, "saga 'o-1' cannot be read"),
        ({"model": ["SagaRecord", 2]}, "saga 'o-1' has no instance, and none was started"),
    ],
)
async def test_when_a_record_cannot_be_read_it_keeps_no_other_from_its_instance(
    stage: Stage, changed: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    await left_behind(stage, "o-1", "o-2")
    entries = [d for d in stage.journal.partitions["saga:o-1"].values() if d["kind"] == "entry"]
    for document in entries:
        document.update(changed)
    hub, feed = Hub(), Hub()

    assert await sweep_of(stage).run(hub) == 1
    assert keys_in(hub) == ["o-2"]
    assert said in caplog.text
    if "state" in changed:
        others = [d for d in stage.journal.partitions["saga:o-2"].values() if d["kind"] == "entry"]
        shown = [*entries, *others]
        await saga_instances.begin_instances(stage.worker(), stage.book(), feed, shown)
        assert keys_in(feed) == ["o-2"]


async def test_when_a_saga_has_just_changed_it_is_left_to_the_feed(stage: Stage) -> None:
    await stage.start("o-1", PLACED)
    hub, sweep = Hub(), sweep_of(stage)

    assert await sweep.run(hub) == 0
    assert hub.asked == []


# Large ones, and many.

handlers = Handlers()
kinds = SagaKinds(handlers)


class Nothing(BaseModel):
    """Nothing is to be said."""


@handlers.register("act", state=Nothing, body=Nothing)
def act(state: Nothing, _: Nothing, __: Context) -> Nothing:
    """Take a step."""
    return state


@kinds.register("many.steps", body=Nothing)
def plan_many(_: Nothing, __: Context) -> Plan:
    """Thousands of steps."""
    step = Command(session="s", type="act")
    stages = [
        PlanStage(steps=tuple(Step(name=f"{n}.{m}", do=step, seconds=1) for m in range(100)))
        for n in range(20)
    ]
    return Plan(parts=tuple(stages))


async def test_when_a_saga_has_thousands_of_steps_it_is_started_with_all_of_them() -> None:
    stage = Stage(handlers)
    # How long making the plan takes on a busy machine is no part of this.
    stage.policy = replace(stage.policy, handler_seconds=600, lease_seconds=1_200)
    assert (await stage.book().start("big", "many.steps", b"{}")).is_accepted
    await stage.clock.sleep(OLD_SECONDS)
    hub = Hub()

    assert await sweep_of(stage).run(hub) == 1

    (work,) = hub.instances.values()
    assert len(StartedSaga.model_validate(work["saga"]).plan.steps) == 2_000
    (listed,) = await stage.journal.sagas(SagaState.RUNNING, limit=10)
    assert (listed.key, listed.kind) == ("big", "many.steps")


async def test_when_all_of_many_are_left_one_run_begins_them_and_a_quiet_one_looks_at_few(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saga_instances, "SWEPT_AT_ONCE", 10)
    for n in range(35):
        await stage.start(f"o-{n:02}", PLACED)
    await stage.clock.sleep(OLD_SECONDS)
    hub, sweep = Hub(), sweep_of(stage)

    assert await sweep.run(hub) == 35
    assert keys_in(hub) == [f"o-{n:02}" for n in range(35)]

    hub.asked.clear()
    for looked_at in (10, 20, 30, 35, 45):
        assert await sweep.run(hub) == 0
        assert len(hub.asked) == looked_at
    del hub.instances[instance_of("o-17")]
    assert sum([await sweep.run(hub) for _ in range(4)]) == 1
    assert len(hub.instances) == 35
