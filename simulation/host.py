"""A region's function app: sessions taken side by side, the change feed, timers and sagas."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import grpc  # type: ignore[import-untyped]

from functions.saga_instances import begin
from shared.domain import wire
from shared.domain.documents import owing_from
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.message import Message
from shared.domain.saga_walk import Activity
from shared.domain.stored_messages import Document
from shared.usecases.outcomes import Conflicting, Expired, Outcome
from shared.usecases.saga_activities import SagaActivities
from shared.usecases.saga_book import SagaBook
from shared.usecases.services import Services
from simulation.broker import LOCK_SECONDS, Namespace, Queued, SessionLock
from simulation.faults import Weather
from simulation.process import Process
from simulation.recorder import Tally, WitnessedStore
from simulation.replay import Answered, Failed, replayed
from simulation.task_hub import TaskHub, Told, Work
from simulation.virtual_time import now

# How many changes are shown again when a lease changes hands.
REPEATED = 20


@dataclass
class Feed:
    """One region's view of the changes; one process at a time follows it."""

    region: str
    store: WitnessedStore
    weather: Weather
    position: int = 0
    follower: Process | None = None

    def is_followed_by(self, process: Process) -> bool:
        """Whether the process holds the lease; it gets that of a dead one."""
        if self.follower is None or self.follower.is_dead:
            self.follower = process
        return self.follower is process

    def read(self) -> list[Document]:
        """What changed since the last look, as it is now."""
        start, self.position = self.position, len(self.store.changes)
        if start == self.position:
            return []
        skips = self.weather.climate.feed_skips
        if self.weather.strikes(skips, "feed skips", self.region, now()):
            return []
        return self.documents(start)

    def documents(self, start: int) -> list[Document]:
        """What changed from a position on, as it is now; perhaps some more that was shown."""
        repeats = self.weather.climate.feed_repeats
        if self.weather.strikes(repeats, "feed repeats", self.region, now()):
            start = max(0, start - REPEATED)
        changed = dict.fromkeys(self.store.changes[start:])
        documents = [self.store.partitions[session].get(name) for session, name in changed]
        return [document for document in documents if document is not None]


@dataclass(frozen=True, slots=True)
class Shown:
    """Changes, and where the feed goes on after them."""

    documents: list[Document]
    upto: int


@dataclass
class SagaFeed(Feed):
    """The feed of a function that the platform calls again until it succeeds: nothing is lost.

    Whoever follows it moves it on.
    """

    def look(self) -> Shown:
        """What changed since whoever follows was done with something."""
        upto = len(self.store.changes)
        if self.position == upto:
            return Shown([], upto)
        return Shown(self.documents(self.position), upto)


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
        self.book = SagaBook.of(self.services)
        self.activities = SagaActivities(self.book)
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
        perform = self.activities.named(Activity(activity.name))
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
            await begin(self.services, self.book, self.client, shown.documents)
        except (LockstepError, grpc.aio.AioRpcError):
            return False
        self.feed.position = shown.upto
        return True


QUEUE = "in"
SESSIONS_AT_ONCE = 2
BATCH_MESSAGES = 5
# How long the host keeps a session that nothing comes for, and how often it looks.
IDLE_SECONDS = 1.0
LOOKS_WHILE_IDLE = 4
FEED_SECONDS = 2.0
SWEEP_SECONDS = 6.0


@dataclass
class Host:
    """One process of a region."""

    process: Process
    services: Services
    namespace: Namespace
    feed: Feed
    tally: Tally
    saga_worker: SagaWorker | None = None

    def start(self) -> None:
        """Listen to everything."""
        for _ in range(SESSIONS_AT_ONCE):
            self.process.start(self.listen())
        self.process.start(self.follow_feed())
        self.process.start(self.sweep())
        if self.saga_worker is not None:
            self.saga_worker.start()

    async def listen(self) -> None:
        """Take one session after the other."""
        while True:
            lock = await self.namespace.next_session(QUEUE)
            renewing = self.process.start(self.renew(lock))
            try:
                await self.process.wait(self.process.weather.chance.delay(0.05))
                await self.take(lock)
            finally:
                renewing.cancel()
                if not self.process.is_dead:
                    self.namespace.release(QUEUE, lock)

    async def renew(self, lock: SessionLock) -> None:
        """Keep the session lock, as the host does, unless the broker loses it."""
        weather = self.process.weather
        while True:
            await self.process.wait(LOCK_SECONDS / 3)
            lost = weather.climate.lock_losses
            if weather.strikes(lost, "session lock lost", self.process.name, now()):
                self.namespace.release(QUEUE, lock)
                return
            self.namespace.renew(QUEUE, lock, now())

    async def take(self, lock: SessionLock) -> None:
        """Process a session's messages until none comes any more, or one fails."""
        while taken := await self.next_messages(lock):
            if not await self.received([queued.message for queued in taken]):
                return
            await self.process.wait(self.process.weather.chance.delay(0.02))
            if not self.completed(lock, taken):
                return

    async def next_messages(self, lock: SessionLock) -> list[Queued]:
        """What is delivered next; nothing when the session was idle for long enough."""
        most = BATCH_MESSAGES if self.services.takes_batches else 1
        for _ in range(LOOKS_WHILE_IDLE):
            if taken := self.namespace.deliver(QUEUE, lock, now(), most):
                return taken
            await self.process.wait(IDLE_SECONDS / LOOKS_WHILE_IDLE)
        return []

    def completed(self, lock: SessionLock, taken: Sequence[Queued]) -> bool:
        """Settle each delivery; whether all could be."""
        settled = [self.namespace.complete(QUEUE, lock, queued, now()) for queued in taken]
        return all(settled)

    async def received(self, messages: Sequence[Message]) -> bool:
        """Consume deliveries as the triggers do; whether they may be settled."""
        try:
            for is_numbered, group in groupby(messages, lambda message: message.number is not None):
                await self.consume(list(group), is_numbered=is_numbered)
        except LockstepError as error:
            self.tally.abandoned.append(f"{now():.3f} s {self.process.name}: {error!r}")
        except Exception as surprise:
            self.tally.surprises.append(f"{self.process.name}: {surprise!r}")
        else:
            return True
        # It comes again at once, so do not spin on a store that is away.
        await self.process.wait(1.0)
        return False

    async def consume(self, messages: Sequence[Message], *, is_numbered: bool) -> None:
        """Take messages through the journal, as one batch where that is asked for."""
        if is_numbered and self.services.takes_batches:
            outcomes = await self.services.batches.consume(messages)
            for message, outcome in zip(messages, outcomes, strict=True):
                await self.conclude(message, outcome)
            return
        for message in messages:
            try:
                outcome = await self.services.consumer.consume(message)
            except InvalidMessage as error:
                await self.reject(message, str(error))
            else:
                await self.conclude(message, outcome)

    async def conclude(self, message: Message, outcome: Outcome) -> None:
        """Report what no journal takes."""
        self.tally.outcomes[type(outcome).__name__] += 1
        if isinstance(outcome, Conflicting | Expired):
            await self.reject(message, outcome.reason)

    async def reject(self, message: Message, reason: str) -> None:
        """Put a delivery that cannot be taken into the error queue."""
        properties = wire.to_properties(message)
        rejecter = self.services.rejecter
        report = await rejecter.reject(message.session, properties, message.body, reason)
        self.tally.rejected[message.session, message.id, message.digest] = report.id

    async def follow_feed(self) -> None:
        """Show the rescuer what changed; the feed moves on whatever becomes of it."""
        while True:
            await self.process.wait(FEED_SECONDS)
            if self.feed.is_followed_by(self.process):
                owings = [owing for d in self.feed.read() if (owing := owing_from(d))]
                await self.services.rescuer.rescue(owings)

    async def sweep(self) -> None:
        """Run the timers' work."""
        while True:
            await self.process.wait(SWEEP_SECONDS)
            try:
                await self.services.rescuer.sweep()
                await self.services.compactor.compact()
            except LockstepError:
                continue
