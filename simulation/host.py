"""A region's function app: sessions taken side by side, the change feed, the timers."""

import asyncio
from dataclasses import dataclass

from shared.adapters.memory import MemoryJournal
from shared.domain.documents import owing_from
from shared.domain.errors import LockstepError
from shared.usecases.services import Services
from simulation.broker import LOCK_SECONDS, Namespace, SessionLock
from simulation.process import Process

QUEUE = "in"
SESSIONS_AT_ONCE = 3
POLL_SECONDS = 0.5
FEED_SECONDS = 2.0
SWEEP_SECONDS = 15.0


@dataclass
class Host:
    """One process of a region."""

    process: Process
    services: Services
    namespace: Namespace
    journal: MemoryJournal
    fed_until: int = 0

    def start(self) -> None:
        """Listen to everything."""
        for _ in range(SESSIONS_AT_ONCE):
            self.process.start(self.listen())
        self.process.start(self.follow_feed())
        self.process.start(self.sweep())

    async def listen(self) -> None:
        """Take one session after the other."""
        while True:
            lock = self.namespace.next_session(QUEUE, now())
            if lock is None:
                await self.process.wait(POLL_SECONDS + self.process.weather.chance.delay(0.1))
                continue
            renewing = self.process.start(self.renew(lock))
            try:
                await self.take(lock)
            finally:
                renewing.cancel()
                if not self.process.is_dead:
                    self.namespace.release(lock)

    async def renew(self, lock: SessionLock) -> None:
        """Keep the session lock, as the host does, unless the broker loses it."""
        weather = self.process.weather
        while True:
            await self.process.wait(LOCK_SECONDS / 3)
            if weather.strikes(weather.climate.lock_losses, f"{self.process.name} lock", now()):
                self.namespace.release(lock)
                return
            self.namespace.renew(lock, now())

    async def take(self, lock: SessionLock) -> None:
        """Process a session's messages until there is none, or one fails."""
        while (queued := self.namespace.deliver(QUEUE, lock, now())) is not None:
            try:
                await self.services.consumer.consume(queued.message)
            except LockstepError:
                # Abandoned: it comes again at once, so do not spin on a store that is away.
                await self.process.wait(1.0)
                return
            await self.process.wait(self.process.weather.chance.delay(0.02))
            if not self.namespace.complete(QUEUE, lock, queued, now()):
                return

    async def follow_feed(self) -> None:
        """Show the rescuer what changed; the feed moves on whatever becomes of it."""
        while True:
            await self.process.wait(FEED_SECONDS)
            documents = [
                document
                for partition in list(self.journal.partitions.values())
                for document in list(partition.values())
                if int(document["_etag"]) > self.fed_until
            ]
            self.fed_until = self.journal.store.versions
            await self.services.rescuer.rescue([o for d in documents if (o := owing_from(d))])

    async def sweep(self) -> None:
        """Run the timer's sweep."""
        while True:
            await self.process.wait(SWEEP_SECONDS)
            try:
                await self.services.rescuer.sweep()
                await self.services.compactor.compact()
            except LockstepError:
                continue


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()
