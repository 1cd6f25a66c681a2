"""A region's function app: sessions taken side by side, the change feed, the timers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from shared.domain import wire
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.message import Message
from shared.engine.build import Services
from shared.engine.consume.outcomes import Conflicting, Expired, Outcome
from shared.storage.documents import decode_pending
from simulation.broker import LOCK_SECONDS, Namespace, Queued, SessionLock
from simulation.feed import Feed
from simulation.loop import now
from simulation.process import Process
from simulation.saga_worker import SagaWorker
from simulation.tally import Tally

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
        most = BATCH_MESSAGES if self.services.worker.policy.batches else 1
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
        if is_numbered and self.services.worker.policy.batches:
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
                owings = [owing for d in self.feed.read() if (owing := decode_pending(d))]
                await self.services.recovery.recover(owings)

    async def sweep(self) -> None:
        """Run the timers' work."""
        while True:
            await self.process.wait(SWEEP_SECONDS)
            try:
                await self.services.recovery.sweep()
                await self.services.compactor.compact()
            except LockstepError:
                continue
