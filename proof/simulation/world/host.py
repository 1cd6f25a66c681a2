"""A region's function app: sessions taken side by side, the change feed, timers and sagas."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc  # type: ignore[import-untyped]
from durabletask.internal import helpers
from durabletask.internal.orchestrator_service_pb2 import HistoryEvent

from functions.triggers.saga_instances import begin_instances
from proof.simulation.world.broker import LOCK_SECONDS, Namespace, QueuedMessage, SessionLock
from proof.simulation.world.faults import FaultInjector
from proof.simulation.world.process import Process
from proof.simulation.world.recorder import AbandonedDelivery, Observations, RecordingStore
from proof.simulation.world.replay import replay
from proof.simulation.world.task_hub import HubReply, LeasedActivity, TaskHub
from proof.simulation.world.virtual_time import now
from shared.domain import wire
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.message import Message
from shared.domain.outbox import AppQueues
from shared.domain.saga.walk import Activity
from shared.engine.build import Services
from shared.engine.consume.outcomes import Conflicting, Expired
from shared.engine.sagas.sagas import Sagas
from shared.ports import Document
from shared.storage.documents import decode_pending

QUEUE = "in"
QUEUES = AppQueues(here=QUEUE, outputs="out", errors="errors")
SESSIONS_AT_ONCE = 2
# How long the host keeps a session for which nothing comes, and how often it asks meanwhile.
IDLE_SECONDS = 1.0
RECEIVES_WHILE_IDLE = 4
FEED_SECONDS = 2.0
# How many changes are shown again when a lease changes hands.
CHANGES_REPEATED = 20
# How long the platform waits before it shows the feed again to a function that failed.
FEED_RETRY_SECONDS = 5.0
SWEEP_SECONDS = 6.0
TURNS_AT_ONCE = 2
ACTIVITIES_AT_ONCE = 3
WORK_SECONDS_MAX = 0.02

GRPC_CODES = {
    HubReply.EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    HubReply.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HubReply.OVER: grpc.StatusCode.FAILED_PRECONDITION,
}


@dataclass
class ChangeFeed:
    """A region's feed of newest versions, perhaps again; one process at a time follows it."""

    region: str
    store: RecordingStore
    injector: FaultInjector
    position: int = 0
    follower: Process | None = None

    def is_followed_by(self, process: Process) -> bool:
        """Return whether the process holds the lease; it gets that of a dead one."""
        if self.follower is None or self.follower.is_killed:
            self.follower = process
        return self.follower is process

    def read(self) -> list[Document]:
        """Return what changed since the last read; the feed moves on whatever becomes of it."""
        start, self.position = self.position, len(self.store.changes)
        if start == self.position:
            return []
        skips = self.injector.profile.feed_skips
        if self.injector.inject(skips, "feed skips", self.region, now()):
            return []
        return self.documents(start)

    def peek(self) -> tuple[list[Document], int]:
        """Return what changed since the position, and where to move the feed when it is handled."""
        end = len(self.store.changes)
        return (self.documents(self.position) if self.position < end else []), end

    def documents(self, start: int) -> list[Document]:
        repeats = self.injector.profile.feed_repeats
        if self.injector.inject(repeats, "feed repeats", self.region, now()):
            start = max(0, start - CHANGES_REPEATED)
        changed = dict.fromkeys(self.store.changes[start:])
        documents = [self.store.partitions[session].get(name) for session, name in changed]
        return [document for document in documents if document is not None]


@dataclass(frozen=True, slots=True)
class HubClient:
    """See functions.triggers.saga_instances.TaskHub: a process's way to its region's hub."""

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
        work = json.dumps(input)
        await self.call(f"begin {orchestrator}", lambda: self.hub.begin(instance_id, work))
        return instance_id

    async def raise_orchestration_event(self, instance_id: str, event_name: str, /) -> None:
        await self.call("raise event", lambda: self.hub.raise_event(instance_id, event_name))

    async def call(self, name: str, apply: Callable[[], HubReply]) -> None:
        """Call the hub; raises what gRPC raises."""
        if self.hub.signal.is_down(now()):
            await self.process.wait(0.01)
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE)
        try:
            reply = await self.process.call(name, apply, writes=True)
        except LockstepError:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE) from None
        if reply in GRPC_CODES:
            raise grpc.aio.AioRpcError(GRPC_CODES[reply])


@dataclass
class SagaWorker:
    process: Process
    services: Services
    hub: TaskHub
    feed: ChangeFeed
    observed: Observations

    def __post_init__(self) -> None:
        self.book = Sagas(self.services.consumer)
        self.activities = self.book.activities()
        self.client = HubClient(self.process, self.hub)

    def start(self) -> None:
        for _ in range(TURNS_AT_ONCE):
            self.process.start(self.run_orchestrators())
        for _ in range(ACTIVITIES_AT_ONCE):
            self.process.start(self.perform_activities())
        self.process.start(self.follow_feed())

    async def work_a_moment(self) -> None:
        await self.process.wait(self.process.injector.rng.delay(WORK_SECONDS_MAX))

    async def run_orchestrators(self) -> None:
        while True:
            turn = await self.hub.signal.wait_for(self.hub.take_turn)
            await self.work_a_moment()
            result = replay(turn.instance.history, turn.news)
            await self.work_a_moment()
            self.hub.commit(turn, result)

    async def perform_activities(self) -> None:
        while True:
            leased = await self.hub.signal.wait_for(self.hub.take_activity)
            await self.work_a_moment()
            result = await self.perform(leased)
            await self.work_a_moment()
            self.hub.finish(leased, result)

    async def perform(self, leased: LeasedActivity) -> HistoryEvent:
        number, work = leased.action.id, leased.action.scheduleTask
        perform = self.activities[Activity(work.name)]
        try:
            answer = await perform(json.loads(work.input.value))
        except LockstepError as error:
            self.observed.failures.append(f"{work.name}: {error!r}")
            return helpers.new_task_failed_event(number, error)
        except Exception as surprise:
            self.observed.surprises.append(f"{self.process.name} {work.name}: {surprise!r}")
            return helpers.new_task_failed_event(number, surprise)
        return helpers.new_task_completed_event(number, json.dumps(answer))

    async def follow_feed(self) -> None:
        """Begin the sagas that the feed shows, again for as long as that fails: nothing is lost."""
        while True:
            await self.process.wait(FEED_SECONDS)
            if not self.feed.is_followed_by(self.process):
                continue
            documents, end = self.feed.peek()
            try:
                await begin_instances(self.services, self.book, self.client, documents)
            except (LockstepError, grpc.aio.AioRpcError):
                await self.process.wait(FEED_RETRY_SECONDS)
            else:
                self.feed.position = end


@dataclass
class Host:
    process: Process
    services: Services
    namespace: Namespace
    feed: ChangeFeed
    observed: Observations
    saga_worker: SagaWorker | None = None
    calls: int = 1

    def start(self) -> None:
        for _ in range(SESSIONS_AT_ONCE):
            self.process.start(self.receive_sessions())
        self.process.start(self.follow_feed())
        self.process.start(self.sweep())
        if self.saga_worker is not None:
            self.saga_worker.start()

    async def receive_sessions(self) -> None:
        while True:
            lock = await self.namespace.signal.wait_for(
                lambda: self.namespace.lock_session(QUEUE, now())
            )
            renewing = self.process.start(self.renew_lock(lock))
            try:
                await self.process.wait(self.process.injector.rng.delay(0.05))
                await self.process_session(lock)
            finally:
                renewing.cancel()
                if not self.process.is_killed:
                    self.namespace.release(QUEUE, lock)

    async def renew_lock(self, lock: SessionLock) -> None:
        injector = self.process.injector
        while True:
            await self.process.wait(LOCK_SECONDS / 3)
            lost = injector.profile.lock_losses
            if injector.inject(lost, "session lock lost", self.process.name, now()):
                self.namespace.release(QUEUE, lock)
                return
            self.namespace.renew(QUEUE, lock, now())

    async def process_session(self, lock: SessionLock) -> None:
        """Process what a session has in several calls at once, until nothing comes."""
        in_hand: dict[QueuedMessage, None] = {}
        calls = [self.process.start(self.make_calls(lock, in_hand)) for _ in range(self.calls)]
        try:
            await asyncio.wait(calls)
        finally:
            for call in calls:
                call.cancel()

    async def make_calls(self, lock: SessionLock, in_hand: dict[QueuedMessage, None]) -> None:
        """Make one call after another; what fails comes back while the other calls go on."""
        while queued := await self.next_message(lock, in_hand):
            in_hand[queued] = None
            try:
                # Calls begin in no certain order.
                await self.process.wait(self.process.injector.rng.delay(0.002))
                if not await self.consume_delivery(queued):
                    if self.calls == 1:
                        return
                    continue
                await self.process.wait(self.process.injector.rng.delay(0.02))
                if not self.namespace.complete(QUEUE, lock, queued, now()):
                    return
            finally:
                del in_hand[queued]

    async def next_message(
        self, lock: SessionLock, in_hand: dict[QueuedMessage, None]
    ) -> QueuedMessage | None:
        for _ in range(RECEIVES_WHILE_IDLE):
            if queued := self.namespace.deliver(QUEUE, lock, now(), in_hand):
                return queued
            await self.process.wait(IDLE_SECONDS / RECEIVES_WHILE_IDLE)
        return None

    async def consume_delivery(self, queued: QueuedMessage) -> bool:
        """Consume a delivery as the trigger does; whether it may be settled."""
        try:
            await self.consume(queued)
        except LockstepError as error:
            name, region = self.process.name, self.process.region
            self.observed.abandoned.append(
                AbandonedDelivery(name, region, now(), queued.message, error)
            )
        except Exception as surprise:
            self.observed.surprises.append(f"{self.process.name}: {surprise!r}")
        else:
            return True
        # The message is delivered again at once, so do not spin on a store that is unavailable.
        await self.process.wait(1.0)
        return False

    async def consume(self, queued: QueuedMessage) -> None:
        message = queued.message
        try:
            outcome = await self.services.consumer.consume(message, queued.sequence)
        except InvalidMessage as error:
            await self.reject(message, str(error))
            return
        self.observed.outcomes[type(outcome).__name__] += 1
        if isinstance(outcome, Conflicting | Expired):
            await self.reject(message, outcome.reason)

    async def reject(self, message: Message, reason: str) -> None:
        properties = wire.to_properties(message)
        rejecter = self.services.rejecter
        report = await rejecter.reject(message.session, properties, message.body, reason)
        self.observed.rejected[message.session, message.id, message.digest] = report.id

    async def follow_feed(self) -> None:
        while True:
            await self.process.wait(FEED_SECONDS)
            if self.feed.is_followed_by(self.process):
                changed = [one for d in self.feed.read() if (one := decode_pending(d))]
                await self.services.recovery.recover(changed)

    async def sweep(self) -> None:
        while True:
            await self.process.wait(SWEEP_SECONDS)
            try:
                await self.services.recovery.sweep()
                await self.services.compactor.compact()
            except LockstepError:
                continue
