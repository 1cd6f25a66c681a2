"""Do what a dead worker left: outboxes to deliver, claims to take over, parked messages to drain.

The change feed shows it soon, and the sweep finds it for certain. Each region delivers only to its
own queues. So the two regions never send the same copy twice, and a region that was unavailable
finds what it missed when it is back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from shared.domain.errors import LockstepError
from shared.domain.outbox import PendingOutbox
from shared.engine.consume.consume import Consumer
from shared.engine.operate.failed_sessions import FailedSessions
from shared.ports import SessionNeed

log = logging.getLogger("lockstep.recover")

# Documents that one search looks at; they are small.
SEARCHED_MAX = 10_000
SESSIONS_AT_ONCE = 16

# Which outboxes of a session: the key and the position of each.
type OutboxKeys = Set[tuple[str, int | None]]


@dataclass(frozen=True, slots=True)
class Recovered:
    """How many sessions were helped, and how many still need it."""

    helped: int = 0
    left: int = 0

    def __add__(self, other: "Recovered") -> "Recovered":
        return Recovered(self.helped + other.helped, self.left + other.left)


class Recovery:
    """Helps sessions whose own worker did not come to it."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.worker = consumer.worker
        self.journal = consumer.journal
        self.dispatcher = consumer.dispatcher
        self.region = consumer.worker.owner.region
        self.lag_seconds = consumer.worker.policy.lag_seconds
        self.failed = {need: FailedSessions() for need in SessionNeed}
        self.slots = asyncio.Semaphore(SESSIONS_AT_ONCE)

    async def recover(self, changed: Sequence[PendingOutbox]) -> Recovered:
        """Deliver what the change feed showed, after a lag in which its own worker may.

        Never raises for a store or a region that is unavailable: the sweep is the net below.
        """
        # Grouped by session: its outboxes have to be delivered in order, by one task.
        shown: dict[str, set[tuple[str, int | None]]] = {}
        for one in changed:
            if self.region in one.outbox.regions:
                shown.setdefault(one.session, set()).add((one.key, one.position))
        if not shown:
            return Recovered()
        # The feed shows every new entry, and nearly all are delivered by their own worker within
        # this time; what is still pending afterwards was left.
        await self.worker.clock.sleep(self.lag_seconds)
        return await self.help(SessionNeed.DELIVERY, shown, partial(self.deliver_shown, shown))

    async def sweep(self, limit: int = 1_000) -> Recovered:
        """Help what has waited for longer than the lag, the oldest first.

        At most `limit` sessions with a need are helped in one run; those that were tried in vain
        come last. Raises Unavailable when the journal cannot be searched.
        """
        # Outboxes come first: taking over and draining append entries, and before any new entry the
        # outboxes of earlier ones have to be delivered.
        delivered = await self.sweep_for(SessionNeed.DELIVERY, self.deliver_session, limit)
        resumed = await self.sweep_for(SessionNeed.TAKE_OVER, self.resume_session, limit)
        drained = await self.sweep_for(SessionNeed.DRAINING, self.drain_session, limit)
        return delivered + resumed + drained

    async def sweep_for(
        self, need: SessionNeed, help_one: Callable[[str], Awaitable[bool]], limit: int
    ) -> Recovered:
        """Help the sessions with a need.

        Those tried in vain are excluded from the search: they may have any number of documents.
        """
        # The search looks at a bounded number of documents, the oldest first. Without exclusion one
        # session that can never be helped, with enough documents, would hide all others for ever.
        found = await self.journal.sessions(
            need,
            region=self.region,
            older_than_seconds=self.lag_seconds,
            excluded=self.failed[need].newest(),
            limit=SEARCHED_MAX,
        )
        return await self.help(need, self.failed[need].order(found)[:limit], help_one)

    async def help(
        self, need: SessionNeed, sessions: Iterable[str], help_one: Callable[[str], Awaitable[bool]]
    ) -> Recovered:
        """Help sessions side by side; one that fails does not keep the others from it."""
        names = list(sessions)
        helped = await asyncio.gather(*(self.help_in_slot(help_one, session) for session in names))
        for session, succeeded in zip(names, helped, strict=True):
            self.failed[need].record(session, succeeded=succeeded)
        return Recovered(helped=helped.count(True), left=helped.count(False))

    async def help_in_slot(self, help_one: Callable[[str], Awaitable[bool]], session: str) -> bool:
        """Help one session when a slot is free; whatever it raises, the others get theirs."""
        # The slots are shared by the feed and the sweep: after an outage there may be thousands of
        # sessions, and helping all at once would take the store from the messages.
        async with self.slots:
            try:
                return await help_one(session)
            except LockstepError as error:
                log.info("session %r is left for later: %s", session, error)
            except Exception:
                # A defect that one session's documents bring out must not stop the sweep either.
                log.exception("session %r could not be helped", session)
        return False

    async def deliver_session(self, session: str) -> bool:
        """Deliver one session's outboxes in order; whether this region has everything now."""
        # Of each outbox only this region's share: the other region's is its own sweep's.
        pending = await self.journal.pending(session, [self.region])
        return not await self.dispatcher.deliver_in_order(pending, [self.region])

    async def deliver_shown(self, shown: Mapping[str, OutboxKeys], session: str) -> bool:
        """Deliver what the change feed showed of a session, and what entries before it have.

        What came during the lag is still its own worker's.
        """
        keys = shown[session]
        # Older outboxes go first even where the feed did not show them in this call: sending only
        # what was shown could let an entry's outputs overtake those of an earlier one.
        newest = max((position for _, position in keys if position is not None), default=-1)
        due = [
            one
            for one in await self.journal.pending(session, [self.region])
            if (one.key, one.position) in keys
            or (one.position is not None and one.position < newest)
        ]
        return not await self.dispatcher.deliver_in_order(due, [self.region])

    async def resume_session(self, session: str) -> bool:
        """Take over a claim whose owner is gone, and drain what waited for it."""
        head = await self.worker.read_head(session)
        # The search goes by age alone; whether the lease has run out only the claim itself says.
        stored = await self.journal.stored_entry(session, head.position) if head else None
        if stored is None or not stored.is_expired:
            return True
        # None says that somebody else was first, who then also drains what the claim kept waiting.
        is_done = await self.consumer.claims.take_over(stored) is not None
        await self.consumer.drain(session)
        return is_done

    async def drain_session(self, session: str) -> bool:
        """Drain what is parked, as far as it can be; whether nothing is left."""
        # A remembered head may be older than the parked message.
        await self.worker.read_head(session)
        await self.consumer.drain(session)
        head = self.worker.remembered_head(session)
        return head is None or not head.parked
