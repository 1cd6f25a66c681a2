"""Do what a dead worker left: outputs to dispatch, claims to take over, parked messages to drain.

Soon by the change feed, for certain by the sweep. Each region pays only what is owed to itself. So
two regions never send the same copy twice, and a dark region finds what it missed when it is back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from shared.domain.errors import LockstepError
from shared.domain.outbox import Owing
from shared.ports import Clock, Journal, Sought
from shared.usecases.claim import Claims
from shared.usecases.dispatch import Dispatcher
from shared.usecases.drain import Drainer
from shared.usecases.turns import Tried

log = logging.getLogger("lockstep.rescue")

# Documents that one search looks at; they are small.
LOOKED_AT_MAX = 10_000
SESSIONS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Rescued:
    """How many sessions were helped, and how many still need it."""

    paid: int = 0
    left: int = 0

    def __add__(self, other: "Rescued") -> "Rescued":
        return Rescued(self.paid + other.paid, self.left + other.left)


class Rescuer:
    """Helps sessions whose own worker did not come to it."""

    def __init__(
        self,
        journal: Journal,
        dispatcher: Dispatcher,
        claims: Claims,
        drainer: Drainer,
        clock: Clock,
        region: str,
        *,
        lag_seconds: float,
    ) -> None:
        self.journal = journal
        self.dispatcher = dispatcher
        self.claims = claims
        self.drainer = drainer
        self.clock = clock
        self.region = region
        self.lag_seconds = lag_seconds
        self.tried = {sought: Tried() for sought in Sought}
        self.turns = asyncio.Semaphore(SESSIONS_AT_ONCE)

    async def rescue(self, seen: Sequence[Owing]) -> Rescued:
        """Pay the sessions the change feed showed, after a lag in which their own dispatcher may.

        Never raises for a store or a region that is out of reach: the sweep is the net below.
        """
        shown: dict[str, set[str]] = {}
        for owing in filter(self.is_owed, seen):
            shown.setdefault(owing.session, set()).add(owing.document_id)
        if not shown:
            return Rescued()
        await self.clock.sleep(self.lag_seconds)
        return await self.help(Sought.OWING, shown, partial(self.pay_shown, shown))

    async def sweep(self, limit: int = 1_000) -> Rescued:
        """Help what has waited for longer than the lag, the oldest first.

        At most `limit` sessions of a sort are helped in one run; those that were tried in vain come
        last. Raises Unavailable when the journal cannot be searched.
        """
        owing = await self.sweep_for(Sought.OWING, self.pay_session, limit)
        claimed = await self.sweep_for(Sought.CLAIMED, self.resume_session, limit)
        waiting = await self.sweep_for(Sought.WAITING, self.drain_session, limit)
        return owing + claimed + waiting

    async def sweep_for(
        self, sought: Sought, help_one: Callable[[str], Awaitable[bool]], limit: int
    ) -> Rescued:
        """Help the sessions in which something is sought.

        Those tried in vain are left out of the search: they may have any number of documents.
        """
        found = await self.journal.sessions(
            sought,
            region=self.region,
            older_than_seconds=self.lag_seconds,
            but_for=self.tried[sought].in_vain(),
            limit=LOOKED_AT_MAX,
        )
        return await self.help(sought, self.tried[sought].in_turn(found)[:limit], help_one)

    async def help(
        self, sought: Sought, sessions: Iterable[str], help_one: Callable[[str], Awaitable[bool]]
    ) -> Rescued:
        """Help sessions side by side; one that fails does not keep the others from it."""
        names = list(sessions)
        helped = await asyncio.gather(*(self.in_turn(help_one, session) for session in names))
        for session, done in zip(names, helped, strict=True):
            self.tried[sought].note(session, helped=done)
        return Rescued(paid=helped.count(True), left=helped.count(False))

    async def in_turn(self, help_one: Callable[[str], Awaitable[bool]], session: str) -> bool:
        """Help one session when its turn comes; whatever it raises, the others get theirs."""
        async with self.turns:
            try:
                return await help_one(session)
            except LockstepError as error:
                log.info("session %r is left for later: %s", session, error)
            except Exception:
                log.exception("session %r could not be helped", session)
        return False

    async def pay_session(self, session: str) -> bool:
        """Pay one session's debts in order; whether this region has everything now."""
        owings = await self.journal.owing_of(session, [self.region])
        return not await self.dispatcher.pay(owings, [self.region])

    async def pay_shown(self, shown: Mapping[str, Set[str]], session: str) -> bool:
        """Pay what the change feed showed of a session, and what entries before it owe.

        What came during the lag is still its own dispatcher's.
        """
        ids = shown[session]
        newest = max((name for name in ids if name.isdigit()), default="")
        owings = await self.journal.owing_of(session, [self.region])
        due = [o for o in owings if o.document_id in ids or (o.of_entry and o.document_id < newest)]
        return not await self.dispatcher.pay(due, [self.region])

    async def resume_session(self, session: str) -> bool:
        """Take over a claim whose owner is gone, and drain what waited for it."""
        head = await self.claims.committer.read_head(session)
        held = await self.journal.held(session, head.position) if head else None
        if held is None or not held.expired:
            return True
        done = await self.claims.take_over(held) is not None
        await self.drainer.drain(session)
        return done

    async def drain_session(self, session: str) -> bool:
        """Drain what is parked, as far as it can be; whether nothing is left."""
        await self.claims.committer.read_head(session)
        await self.drainer.drain(session)
        head = self.claims.committer.heads.get(session)
        return head is None or not head.parked

    def is_owed(self, owing: Owing) -> bool:
        """Whether this region is owed anything of it."""
        return owing.outbox.only([self.region]).owing
