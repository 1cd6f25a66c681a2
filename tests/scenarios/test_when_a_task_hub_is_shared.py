"""Two applications share a task hub by mistake: each performs the steps of its own sagas only."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import azure.functions as func
import pytest
from durabletask.internal import helpers
from durabletask.internal.orchestrator_service_pb2 import HistoryEvent, OrchestratorAction

from functions.handlers import orders
from functions.triggers.saga_instances import ORCHESTRATOR, ensure_instance
from functions.triggers.sagas import build_saga_blueprint
from proof.simulation.world.replay import note_action, replay
from shared.domain.saga.plan import SagaState
from shared.engine.build import Services
from shared.settings import Settings
from shared.wiring import connect
from tests.saga_stage import Stage, order, stocked
from tests.unit.shared.test_settings import ENVIRONMENT

OURS = {"east": "ours-east.example/in", "west": "ours-west.example/in"}
THEIRS = {"eu": "theirs.example/in", "west": "theirs-west.example/in"}
# More than a step has tries.
REFUSALS = 7


@dataclass
class App:
    """A function app: its services, and its activities as the host calls them."""

    services: Services
    activities: dict[str, Callable[[Any], Awaitable[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        functions = func.FunctionApp()
        functions.register_functions(build_saga_blueprint(self.services))
        registered: list[Any] = functions.get_functions()
        self.activities = {one.get_function_name(): one.get_user_function() for one in registered}


@dataclass
class SharedHub:
    """A task hub whose activities go to the `takers` in turn, each time from the first one on."""

    takers: tuple[App, ...] = ()
    instances: dict[str, str] = field(default_factory=dict)
    # By what an activity was asked to do: how often it was handed out.
    asked: Counter[str] = field(default_factory=Counter)
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    async def schedule_new_orchestration(
        self,
        orchestrator: str,
        /,
        *,
        input: Any,  # noqa: A002 - the SDK's name
        instance_id: str,
    ) -> str:
        assert orchestrator == ORCHESTRATOR
        self.instances[instance_id] = json.dumps(input)
        return instance_id

    async def raise_orchestration_event(self, instance_id: str, event_name: str, /) -> None:
        raise NotImplementedError

    async def run(self) -> list[str]:
        """Run all instances to their ends, which are returned."""
        return [await self.run_one(*one) for one in self.instances.items()]

    async def run_one(self, name: str, work: str) -> str:
        history: list[HistoryEvent] = []
        news = [helpers.new_execution_started_event(ORCHESTRATOR, name, work)]
        while True:
            turn = [helpers.new_orchestrator_started_event(self.now), *news]
            result = replay(history, turn)
            if result.failed or result.ended:
                return result.failed or result.ended or ""
            history += [*turn, *map(note_action, result.scheduled)]
            news = [await self.perform(one) for one in result.scheduled]

    async def perform(self, action: OrchestratorAction) -> HistoryEvent:
        if action.HasField("createTimer"):
            at = action.createTimer.fireAt.ToDatetime(UTC)
            self.now = max(self.now, at)
            return helpers.new_timer_fired_event(action.id, at)
        name, work = action.scheduleTask.name, action.scheduleTask.input.value
        taker = self.takers[min(self.asked[name + work], len(self.takers) - 1)]
        self.asked[name + work] += 1
        try:
            answer = await taker.activities[name](json.loads(work))
        except Exception as error:
            return helpers.new_task_failed_event(action.id, error)
        return helpers.new_task_completed_event(action.id, json.dumps(answer))


@dataclass
class Application:
    """An application with journals of its own, and the app of one of its regions."""

    stage: Stage
    queues: dict[str, str]
    region: str = "east"

    def app(self, region: str | None = None) -> App:
        services = self.stage.worker(region or self.region)
        return App(replace(services, own_queues=self.queues))

    async def begin(self, hub: SharedHub, key: str, placed: str) -> None:
        """Record a saga's start, and start its instance in the hub."""
        await self.stage.start(key, placed, self.region)
        found = await self.stage.book(self.region).load(key)
        assert not isinstance(found, SagaState)
        await ensure_instance(self.app().services, hub, found, 0.0)


def shipped(application: Application) -> tuple[int, int]:
    """How much was shipped, and how much is left of 100."""
    stock = application.stage.state("stock:p")
    assert stock.get("reserved", {}) == {}
    return stock["shipped"], stock["left"]


async def ours_and_theirs() -> tuple[Application, Application]:
    """Two applications of the same code, with the same sessions in journals of their own."""
    stages = [await stocked(Stage(orders.handlers), ["p"], 100) for _ in range(2)]
    return Application(stages[0], OURS), Application(stages[1], THEIRS, "west")


@pytest.mark.parametrize("refusals", [0, 1, REFUSALS])
async def test_each_application_does_its_own_sagas_whoever_is_asked_first(
    refusals: int, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = await ours_and_theirs()
    for mine, others, key, quantity in ((ours, theirs, "o-1", 7), (theirs, ours, "o-2", 30)):
        hub = SharedHub((*[others.app()] * refusals, mine.app()))
        await mine.begin(hub, key, order(("p", quantity)))
        assert await hub.run() == ["completed"]
        assert set(hub.asked.values()) == {refusals + 1}

    assert shipped(ours) == (7, 93)
    assert shipped(theirs) == (30, 70)
    assert ours.stage.entries("saga:o-2") == theirs.stage.entries("saga:o-1") == []
    told = "the saga's app reads queue 'ours-east.example/in', and this one theirs.example/in, "
    assert (told in caplog.text) is (refusals > 0)


async def test_a_saga_that_turns_back_does_so_in_its_own_sessions() -> None:
    ours, theirs = await ours_and_theirs()
    hub = SharedHub((theirs.app(), ours.app()))
    await ours.begin(hub, "o-1", order(("p", 7), ("none", 1)))
    before = theirs.stage.taken()

    assert await hub.run() == ["compensated"]

    assert ours.stage.record("o-1").state is SagaState.COMPENSATED
    assert shipped(ours) == (0, 100)
    assert theirs.stage.taken() == before


async def test_the_apps_of_all_regions_of_an_application_do_its_steps() -> None:
    ours, _ = await ours_and_theirs()
    hub = SharedHub((ours.app("west"),))
    await ours.begin(hub, "o-1", order(("p", 7)))

    assert await hub.run() == ["completed"]

    assert set(hub.asked.values()) == {1}


async def test_an_instance_of_an_older_release_goes_on() -> None:
    ours, _ = await ours_and_theirs()
    hub = SharedHub((ours.app(),))
    await ours.begin(hub, "o-1", order(("p", 7)))
    (name, work), *_ = hub.instances.items()
    hub.instances[name] = json.dumps({n: v for n, v in json.loads(work).items() if n != "queue"})

    assert await hub.run() == ["completed"]

    assert set(hub.asked.values()) == {1}
    assert shipped(ours) == (7, 93)


def test_an_app_is_told_by_the_queues_that_it_reads() -> None:
    settings = Settings.read(ENVIRONMENT | {"LOCKSTEP_QUEUE": "orders"})

    assert connect(settings, orders.handlers).own_queues == {
        "east": "east/orders",
        "west": "west.servicebus.windows.net/orders",
    }
