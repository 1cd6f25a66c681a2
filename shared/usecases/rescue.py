"""Dispatch what the first dispatcher left: soon by the change feed, for certain by the sweep.

Each region rescues only what is owed to itself. So two regions never send the same copy twice, and
a dark region finds what it missed when it comes back.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.domain.outbox import Owing
from shared.ports import Clock, Journal
from shared.usecases.dispatch import Dispatcher


@dataclass(frozen=True, slots=True)
class Rescued:
    """How many sessions have nothing owed to this region any more, and how many still have."""

    paid: int = 0
    left: int = 0


class Rescuer:
    """Pays this region's share of old outboxes."""

    def __init__(
        self,
        journal: Journal,
        dispatcher: Dispatcher,
        clock: Clock,
        region: str,
        *,
        lag_seconds: float,
        sessions_at_once: int = 16,
    ) -> None:
        self.journal = journal
        self.dispatcher = dispatcher
        self.clock = clock
        self.region = region
        self.lag_seconds = lag_seconds
        self.turns = asyncio.Semaphore(sessions_at_once)

    async def rescue(self, seen: Sequence[Owing]) -> Rescued:
        """Pay the sessions the change feed showed, after a lag in which their own dispatcher may.

        Raises Unavailable when the journal cannot be read; the sweep is the net below.
        """
        sessions = dict.fromkeys(owing.session for owing in seen if self.is_owed(owing))
        if not sessions:
            return Rescued()
        await self.clock.sleep(self.lag_seconds)
        return await self.pay(sessions)

    async def sweep(self, limit: int = 1_000) -> Rescued:
        """Pay what is older than the lag, oldest first, looking at `limit` outboxes at most."""
        lag = self.lag_seconds
        return await self.pay(
            await self.journal.sessions_owing(older_than_seconds=lag, limit=limit)
        )

    async def pay(self, sessions: Iterable[str]) -> Rescued:
        """Pay sessions side by side."""
        behind = await asyncio.gather(*(self.pay_session(session) for session in sessions))
        return Rescued(paid=behind.count(False), left=behind.count(True))

    async def pay_session(self, session: str) -> bool:
        """Pay one session's debts in order; the answer is whether the region is still behind."""
        async with self.turns:
            owings = await self.journal.owing_of(session)
            return bool(await self.dispatcher.pay(owings, [self.region]))

    def is_owed(self, owing: Owing) -> bool:
        """Whether this region is owed anything of it."""
        return owing.outbox.only([self.region]).owing
