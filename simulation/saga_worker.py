"""A process's part in sagas: it runs orchestrators and activities, and follows the sagas' feed."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc  # type: ignore[import-untyped]

from functions.saga_instances import begin_instances
from shared.domain.errors import LockstepError
from shared.domain.saga.walk import Activity
from shared.engine.build import Services
from shared.engine.sagas.sagas import Sagas
from simulation.feed import SagaFeed
from simulation.history import Answered, Failed
from simulation.hub import TaskHub, Told, Work
from simulation.process import Process
from simulation.replay import replayed
from simulation.tally import Tally

TURNS_AT_ONCE = 2
ACTIVITIES_AT_ONCE = 3
THINK_SECONDS_MAX = 0.02
FEED_SECONDS = 2.0
# How long the platform waits before it shows the feed again to a function that failed.
FEED_AGAIN_SECONDS = 5.0

CODES = {
    Told.THERE_ALREADY: grpc.StatusCode.ALREADY_EXISTS,
    Told.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Told.OVER: grpc.StatusCode.FAILED_PRECONDITION,
}


@dataclass(frozen=True, slots=True)
class HubClient:
    """See functions.saga_instances.TaskHub: a process's way to its region's hub."""

    process: Process
    hub: TaskHub

    async def schedule_new_orchestration(
        self,
        orchestrator: str,
        /,
        *,
        input: Any,  # noqa: A002 - the SDK's name
        instance_id: str,
    ) -> str:
        """Begin an instance."""
        work = json.dumps(input)
        await self.call(f"begin {orchestrator}", lambda: self.hub.begin(instance_id, work))
        return instance_id

    async def raise_orchestration_event(self, instance_id: str, event_name: str, /) -> None:
        """Tell an instance."""
        await self.call("raise event", lambda: self.hub.raise_event(instance_id, event_name))

    async def call(self, name: str, apply: Callable[[], Told]) -> None:
        """Call the hub; what goes wrong is what gRPC makes of it."""
        if self.hub.is_down():
            await self.process.wait(0.01)
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE)
        try:
            told = await self.process.call(name, apply, writes=True)
        except LockstepError:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE) from None
        if told in CODES:
            raise grpc.aio.AioRpcError(CODES[told])


@dataclass
class SagaWorker:
    """What a process of a region does for sagas."""

    process: Process
    services: Services
    hub: TaskHub
    feed: SagaFeed
    tally: Tally

    def __post_init__(self) -> None:
        self.book = Sagas(self.services.commands)
        self.activities = self.book.activities()
        self.client = HubClient(self.process, self.hub)

    def start(self) -> None:
        """Do everything side by side."""
        for _ in range(TURNS_AT_ONCE):
            self.process.start(self.run_orchestrators())
        for _ in range(ACTIVITIES_AT_ONCE):
            self.process.start(self.perform_activities())
        self.process.start(self.follow_feed())

    async def think(self) -> None:
        """Take a moment, in which the process may be frozen or killed."""
        await self.process.wait(self.process.weather.chance.delay(THINK_SECONDS_MAX))

    async def run_orchestrators(self) -> None:
        """Take one turn after the other."""
        while True:
            turn = await self.hub.next_turn()
            await self.think()
            outcome = replayed(turn.events)
            await self.think()
            self.hub.commit(turn, outcome)

    async def perform_activities(self) -> None:
        """Perform one activity after the other."""
        while True:
            work = await self.hub.next_work()
            await self.think()
            news = await self.performed(work)
            await self.think()
            self.hub.finish(work, news)

    async def performed(self, work: Work) -> Answered | Failed:
        """What became of an activity; one that raises has failed."""
        activity = work.activity
        perform = self.activities[Activity(activity.name)]
        try:
            answer = await perform(json.loads(activity.work))
        except LockstepError as error:
            self.tally.failures.append(f"{activity.name}: {error!r}")
            return Failed(activity.number, repr(error))
        except Exception as surprise:
            self.tally.surprises.append(f"{self.process.name} {activity.name}: {surprise!r}")
            return Failed(activity.number, repr(surprise))
        return Answered(activity.number, json.dumps(answer))

    async def follow_feed(self) -> None:
        """Show what changed to the function that begins sagas, again for as long as it fails."""
        while True:
            await self.process.wait(FEED_SECONDS)
            if self.feed.is_followed_by(self.process) and not await self.begun():
                await self.process.wait(FEED_AGAIN_SECONDS)

    async def begun(self) -> bool:
        """Begin what the feed shows; whether all of it could be."""
        shown = self.feed.look()
        try:
            await begin_instances(self.services, self.book, self.client, shown.documents)
        except (LockstepError, grpc.aio.AioRpcError):
            return False
        self.feed.position = shown.upto
        return True
