"""Sagas on the in-memory twin: both regions' workers, and walks that can die and be taken up."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count
from typing import Any

from proof.simulation.world.recorder import state_of
from shared.domain.errors import LockstepError, Unavailable
from shared.domain.handler import Handlers
from shared.domain.journal import Json
from shared.domain.message import Message, derive_id
from shared.domain.saga.plan import SagaState, pauses_between
from shared.domain.saga.record import SagaRecord
from shared.domain.saga.walk import (
    Activity,
    ActivityCall,
    AwaitChange,
    CallAll,
    Pause,
    ReportState,
    StartedSaga,
    WalkRequest,
    orchestrate,
)
from shared.engine.dispatch.deliver import Delivery
from shared.engine.sagas.sagas import SagaResponse, Sagas
from shared.engine.worker import Policy, WaitLimits
from shared.testkit.injected_faults import FaultPlan, ProcessKilled
from tests.world import QUEUES, REGIONS, World

STAND_BY_SECONDS = 60.0
POLICY = Policy(waits=WaitLimits(gap_seconds=1.0))


class Stage(World):
    """A world in which every call of the store and the bus may be planned to go wrong."""

    def __init__(self, handlers: Handlers, fault_plan: FaultPlan | None = None) -> None:
        super().__init__(policy=POLICY, handlers=handlers)
        self.fault_plan = fault_plan or FaultPlan()
        self.journal.fault_plan = self.bus.fault_plan = self.fault_plan

    def delivery(self) -> Delivery:
        """Delivery to both regions at once."""
        return Delivery(self.bus, self.clock, REGIONS, 0.0, QUEUES)

    def book(self, region: str = "east") -> Sagas:
        """A new process's way to the sagas."""
        return Sagas(self.worker(region).consumer)

    async def tell(self, session: str, kind: str, body: str, name: str = "") -> None:
        """Apply a message to a session."""
        message_id = derive_id(session, kind, body, name)
        at = datetime.fromtimestamp(self.clock.today(), UTC).isoformat()
        message = Message(message_id, session, kind, body.encode(), time=at)
        await self.worker().consumer.ask(message)

    async def start(
        self, key: str, order: str, region: str = "east", kind: str = "order.place"
    ) -> SagaResponse:
        """Start a saga that takes an order to its end, or another one."""
        return await self.book(region).start(key, kind, order.encode())

    async def walk(self, key: str, region: str = "east", stand_by_seconds: float = 0.0) -> "Walk":
        """A new instance of a started saga in a region."""
        found = await self.book(region).load(key)
        assert isinstance(found, StartedSaga)
        return Walk(self, region, found, stand_by_seconds)

    async def run(self, key: str, order: str, region: str = "east") -> SagaState:
        """Start a saga and walk to its end."""
        await self.start(key, order, region)
        return await (await self.walk(key, region)).run()

    def state(self, session: str) -> Json:
        """The state of a session after everything."""
        return state_of(self.journal, session)

    def record(self, key: str) -> SagaRecord:
        """What the saga's own journal says."""
        return SagaRecord.model_validate(self.state(f"saga:{key}"))

    def taken(self) -> list[tuple[str, str]]:
        """Session and id of every message, in the order in which the store took them."""
        documents = [d for kept in self.journal.partitions.values() for d in kept.values()]
        entries = sorted((int(d["_etag"]), d) for d in documents if d["kind"] == "entry")
        return [(d["session"], identity["id"]) for _, d in entries for identity in d["identities"]]


@dataclass
class Walk:
    """An instance: its history is kept, its worker may die, and the same is asked again.

    It never gets an answer to the steps named `silent`, and without `hears` no event wakes it.
    """

    stage: Stage
    region: str
    saga: StartedSaga
    stand_by_seconds: float = 0.0
    history: list[tuple[WalkRequest, Any]] = field(default_factory=list)
    told: list[SagaState] = field(default_factory=list)
    activities: int = 0
    timers: int = 0
    dies_at: int | None = None
    dies_before: bool = True
    silent: set[str] = field(default_factory=set)
    hears: bool = True

    async def run(self) -> SagaState:
        """Replay what the history has, and go on to the end."""
        async for _ in self.steps():
            pass
        return self.told[-1]

    async def steps(self) -> AsyncIterator[WalkRequest]:
        """The same, request by request: each is answered when the next one is asked for."""
        self.activities_by_name = self.stage.book(self.region).activities()
        walking = orchestrate(self.saga, self.stand_by_seconds)
        answer: Any = None
        for turn in count():
            try:
                request = walking.send(answer)
            except StopIteration as stopped:
                self.told.append(SagaState(stopped.value))
                return
            yield request
            answer = await self.answer(turn, request)

    async def answer(self, turn: int, request: WalkRequest) -> Any:
        """What the history says, or what comes of the request now."""
        if turn < len(self.history):
            asked, answer = self.history[turn]
            assert asked == request
            return answer
        answer = await self.perform(request)
        self.history.append((request, answer))
        return answer

    async def perform(self, request: WalkRequest) -> Any:
        """Do what the walk asks for."""
        match request:
            case CallAll(calls):
                return list(await asyncio.gather(*map(self.call, calls)))
            case AwaitChange(name, seconds):
                return await self.listen(name, seconds)
            case Pause(seconds):
                self.timers += 1
                await self.stage.clock.sleep(seconds)
            case ReportState(state):
                self.told.append(state)
        return None

    async def call(self, call: ActivityCall) -> Any:
        """Call an activity until it answers or its tries are over."""
        for pause in chain(pauses_between(call.tries), [None]):
            try:
                return await self.act(call)
            except LockstepError:
                if pause is not None:
                    await self.stage.clock.sleep(pause)
        return None

    async def act(self, call: ActivityCall) -> Any:
        """Call an activity once; the worker may die before or after it."""
        self.activities += 1
        if call.activity is Activity.STEP and call.work["step"]["name"] in self.silent:
            raise Unavailable("no answer")
        dies = self.activities - 1 == self.dies_at
        if dies and self.dies_before:
            raise ProcessKilled(call.activity)
        answer = await self.activities_by_name[call.activity](call.work)
        if dies:
            raise ProcessKilled(call.activity)
        return answer

    async def listen(self, name: str, seconds: float) -> bool:
        """Whether an event has come; if none has, none will."""
        self.timers += 1
        wait = next(wait for wait in self.saga.plan.waits if wait.name == name)
        if self.hears and wait.decision(self.stage.record(self.saga.key).events) is not None:
            return True
        await self.stage.clock.sleep(seconds)
        return False


def order(*lines: tuple[str, int], amount: int = 10, approval: float = 0) -> str:
    """An order of Ada's."""
    listed = ",".join(f'{{"product":"{p}","quantity":{q}}}' for p, q in lines)
    return (
        f'{{"customer":"ada","lines":[{listed}],"amount":{amount},"approval_seconds":{approval}}}'
    )


async def stocked(stage: Stage, products: Sequence[str], quantity: int, money: int = 1000) -> Stage:
    """The stage with goods, and money for Ada."""
    for product in products:
        await stage.tell(f"stock:{product}", "stock.receive", f'{{"quantity":{quantity}}}')
    await stage.tell("account:ada", "account.deposit", f'{{"amount":{money}}}')
    return stage
