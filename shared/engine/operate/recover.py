"""Do what a dead worker left: outboxes to deliver, claims to take over, parked messages to drain.

The change feed shows it soon, and the sweep finds it for certain. Each region delivers only to its
own queues. So the two regions never send the same copy twice, and a region that was unavailable
finds what it missed when it is back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import chain, takewhile

from shared.domain.errors import LockstepError
from shared.domain.measures import (
    BLOCKED_QUEUES,
    GAP_SECONDS,
    GAP_SESSIONS,
    PENDING_SECONDS,
    PENDING_SESSIONS,
)
from shared.domain.outbox import EVERY_QUEUE, PendingOutbox, sort_for_delivery
from shared.engine.consume.claim import Claims
from shared.engine.consume.consume import Consumer
from shared.engine.dispatch.dispatch import Dispatcher
from shared.engine.operate.failed_sessions import FailedSessions
from shared.engine.worker import NO_HEAD
from shared.ports import SessionNeed, Telemetry

log = logging.getLogger("lockstep.recover")

# Documents that one search looks at; they are small.
SEARCHED_MAX = 10_000
SESSIONS_AT_ONCE = 16
# Before a session that could not be drained is tried again; each try in vain doubles it.
PAUSE_SECONDS = 15.0
# A session's outboxes are delivered in parts of so many, so that a run can end between two parts.
DELIVERED_AT_ONCE = 10
# Of the sessions whose outputs cannot be had so many are tried again in one sweep.
LOST_MAX = 20

# Signs of one session that are looked at for its oldest.
SIGNS_MAX = 100
GAUGES = {
    SessionNeed.DELIVERY: (PENDING_SESSIONS, PENDING_SECONDS),
    SessionNeed.DRAINING: (GAP_SESSIONS, GAP_SECONDS),
}

# Which outboxes of a session: the key and the position of each.
type OutboxKeys = Set[tuple[str, int | None]]


class HelpResult(Enum):
    DONE = auto()
    FAILED = auto()
    # The run's time was up, or somebody else was at it: the next try goes on.
    UNFINISHED = auto()


# Helps one session, beginning nothing after a time of the worker's clock.
type Helper = Callable[[str, float], Awaitable[HelpResult]]


@dataclass(frozen=True, slots=True)
class Recovered:
    """The number of sessions that were helped, and of those that still need it.

    Of these, `unfinished` are the ones that another try may help at once.
    """

    helped: int = 0
    left: int = 0
    unfinished: tuple[str, ...] = ()

    def __add__(self, other: "Recovered") -> "Recovered":
        return Recovered(self.helped + other.helped, self.left + other.left)


class Recovery:
    """Helps sessions whose own worker did not come to it."""

    def __init__(self, consumer: Consumer, claims: Claims, dispatcher: Dispatcher) -> None:
        self.consumer = consumer
        self.claims = claims
        self.dispatcher = dispatcher
        self.worker = dispatcher.worker
        self.journal = dispatcher.journal
        self.region = dispatcher.worker.owner.region
        self.regions = len(dispatcher.delivery.regions)
        self.lag_seconds = dispatcher.worker.policy.lag_seconds
        self.failed = {need: FailedSessions() for need in SessionNeed}
        # What is parked behind a fault or a gap waits for a person or a message, not for a sweep.
        self.failed[SessionNeed.DRAINING] = FailedSessions(PAUSE_SECONDS)
        self.bound_seconds = dispatcher.worker.policy.waits.bound_seconds
        self.slots = asyncio.Semaphore(SESSIONS_AT_ONCE)

    async def recover(self, changed: Sequence[PendingOutbox]) -> Recovered:
        """Deliver what the change feed showed, after a lag in which its own worker may.

        Never raises for a store or a region that is unavailable: the sweep is the net below.
        """
        # Grouped by session: its outboxes have to be delivered in order, by one task.
        shown: dict[str, list[PendingOutbox]] = {}
        for one in changed:
            if self.region in one.outbox.regions:
                shown.setdefault(one.session, []).append(one)
        by_lag: dict[float, dict[str, OutboxKeys]] = {}
        for session, pending in shown.items():
            lag = max(map(self.lag_of, pending))
            # What shall wait for longer is the sweep's: here it would keep later changes waiting.
            if lag <= self.lag_seconds:
                keys = {(one.key, one.position) for one in pending}
                by_lag.setdefault(lag, {})[session] = keys
        parts = [self.recover_after(lag, keys) for lag, keys in by_lag.items()]
        return sum(await asyncio.gather(*parts), Recovered())

    def lag_of(self, pending: PendingOutbox) -> float:
        """Return for how many seconds an outbox is left to its own worker, by its types."""
        return self.worker.handlers.lag_of(pending.types, self.lag_seconds)

    async def recover_after(self, lag: float, shown: Mapping[str, OutboxKeys]) -> Recovered:
        """Deliver what the change feed showed of sessions with this lag."""
        # The feed shows every new entry, and nearly all are delivered by their own worker within
        # this time; what is still pending afterwards was left.
        await self.worker.clock.sleep(lag)
        end_at = self.worker.clock.now() + self.bound_seconds
        deliver = partial(self.deliver_shown, shown)
        return await self.help(SessionNeed.DELIVERY, shown, deliver, end_at)

    async def sweep(self, limit: int = 1_000) -> Recovered:
        """Help what has waited for longer than the lag, the oldest first.

        At most `limit` sessions with a need are tried in one run, but where outboxes are delivered
        all that there is time for. None is begun after some seconds: the next run goes on. Those
        tried in vain come last. Raises Unavailable when the journal cannot be searched.
        """
        # Nearly every run of an idle region ends here, so it asks one question instead of five.
        # What is too young counts as work, so nothing is found later than by those five.
        if not await self.journal.has_work(self.region):
            if self.worker.telemetry is not None:
                for gauge in (*chain.from_iterable(GAUGES.values()), BLOCKED_QUEUES):
                    self.worker.telemetry.add(gauge, 0)
            return Recovered()
        # Outboxes come first: taking over and draining append entries, and before any new entry the
        # outboxes of earlier ones have to be delivered. Each need has its share of the time, and
        # what the one before left of its own.
        now, share = self.worker.clock.now(), self.bound_seconds / 4
        ends = [now + n * share for n in range(1, 5)]
        delivered = await self.sweep_for(SessionNeed.DELIVERY, self.deliver_session, limit, ends[0])
        unblocked = await self.sweep_blocked(limit, ends[1])
        resumed = await self.sweep_for(SessionNeed.TAKE_OVER, self.resume_session, limit, ends[2])
        # What a message of this worker left parked because its time was up need not wait longer.
        while self.worker.undrained:
            session, _ = self.worker.undrained.popitem()
            self.failed[SessionNeed.DRAINING].record(session, succeeded=True)
        drained = await self.sweep_for(SessionNeed.DRAINING, self.drain_session, limit, ends[3])
        # After an outage delivery is by far the most, so it has what the others left of the time.
        # Where nothing was delivered, and the region does not answer, all would be tried in vain.
        if delivered.helped or not self.dispatcher.delivery.has_failed(self.region):
            more = await self.help(
                SessionNeed.DELIVERY, delivered.unfinished, self.deliver_session, ends[3]
            )
            delivered = Recovered(delivered.helped + more.helped, delivered.left - more.helped)
        return delivered + unblocked + resumed + drained

    async def sweep_for(
        self, need: SessionNeed, help_one: Helper, limit: int, end_at: float
    ) -> Recovered:
        """Help the sessions with a need.

        Those tried in vain are excluded from the search: they may have any number of documents.
        """
        # The search looks at a bounded number of documents, the oldest first. Without exclusion one
        # session that can never be helped, with enough documents, would hide all others for ever.
        failed = self.failed[need]
        found = await self.journal.sessions(
            need,
            region=self.region,
            older_than_seconds=self.lag_seconds,
            # Whoever sent to another region is done with the outbox. Without this, two regions that
            # sweep at the same moment make it look young to each other.
            of_regions=self.regions if need is SessionNeed.DELIVERY else 0,
            excluded=failed.newest(),
            limit=SEARCHED_MAX,
        )
        todo = failed.order(found, self.worker.clock.now())
        if self.worker.telemetry is not None and need in GAUGES:
            # What only measures must not keep a session from its help.
            with suppress(LockstepError):
                count = len(found) + len(failed.newest())
                await self.measure(self.worker.telemetry, need, count)
        tried, untried = await self.help(need, todo[:limit], help_one, end_at), todo[limit:]
        left = tried.left + len(untried)
        return Recovered(tried.helped, left, (*tried.unfinished, *untried))

    async def measure(self, telemetry: Telemetry, need: SessionNeed, count: int) -> None:
        """Tell how many sessions have a need, and for how long the oldest has had it."""
        sessions, age = GAUGES[need]
        telemetry.add(sessions, count)
        # The failed ones are among the oldest, so this search is another one. It costs something
        # only while something waits.
        oldest = await self.measure_oldest(need) if count else 0.0
        telemetry.add(age, oldest)

    async def measure_oldest(self, need: SessionNeed) -> float:
        """For how long a need has been there, by the store's clock; 0 if it is gone meanwhile."""
        lag = self.lag_seconds
        for session in await self.journal.sessions(
            need, region=self.region, older_than_seconds=lag, limit=1
        ):
            signs = await self.journal.signs(
                {need}, [self.region], session=session, older_than_seconds=lag, limit=SIGNS_MAX
            )
            return max((lag + sign.late_seconds for sign in signs), default=0.0)
        return 0.0

    async def sweep_blocked(self, limit: int, end_at: float) -> Recovered:
        """Try again what this region's blocked queues did not take, for each queue by one session.

        Only where that one succeeds the others follow. Outputs that could not be had at all have no
        queue in common, so each session tries for itself, a few at a time.
        """
        recovered, blocked = Recovered(), 0
        for queue in await self.journal.blocked_queues(self.region):
            most = LOST_MAX if queue == EVERY_QUEUE else limit
            retried = await self.retry_queue(queue, most, end_at)
            recovered += retried
            blocked += retried.left > 0 or not retried.helped
        if self.worker.telemetry is not None:
            self.worker.telemetry.add(BLOCKED_QUEUES, blocked)
        return recovered

    async def retry_queue(self, queue: str, limit: int, end_at: float) -> Recovered:
        """Try one blocked queue again, for the oldest session first."""
        need = SessionNeed.UNBLOCKING
        excluded = self.failed[need].newest() if queue == EVERY_QUEUE else ()
        sessions = await self.journal.sessions(
            need,
            region=self.region,
            queue=queue,
            older_than_seconds=self.lag_seconds,
            excluded=excluded,
            limit=SEARCHED_MAX,
        )
        chosen = self.failed[need].order(sessions, self.worker.clock.now())[:limit]
        probes = chosen if queue == EVERY_QUEUE else chosen[:1]
        retry = partial(self.retry_session, queue)
        recovered = await self.help(need, probes, retry, end_at)
        if recovered.left == 0:
            recovered += await self.help(need, chosen[len(probes) :], retry, end_at)
        return recovered

    async def retry_session(self, queue: str, session: str, end_at: float) -> HelpResult:
        for number, pending in enumerate(await self.journal.blocked(session)):
            if number and self.worker.clock.now() >= end_at:
                return HelpResult.UNFINISHED
            if queue in pending.outbox.blocked.get(self.region, {}):
                left = await self.dispatcher.deliver_pending(pending, retried=(self.region, queue))
                if queue in left.blocked.get(self.region, {}):
                    return HelpResult.FAILED
        return HelpResult.DONE

    async def help(
        self, need: SessionNeed, sessions: Iterable[str], help_one: Helper, end_at: float
    ) -> Recovered:
        """Help sessions side by side; one that fails does not keep the others from it."""
        names = list(sessions)
        helped = await asyncio.gather(
            *(self.help_in_slot(help_one, session, end_at) for session in names)
        )
        now, unfinished = self.worker.clock.now(), list[str]()
        for session, came_of_it in zip(names, helped, strict=True):
            if came_of_it is HelpResult.UNFINISHED:
                unfinished.append(session)
            else:
                self.failed[need].record(session, succeeded=came_of_it is HelpResult.DONE, now=now)
        done = helped.count(HelpResult.DONE)
        return Recovered(done, len(names) - done, tuple(unfinished))

    async def help_in_slot(self, help_one: Helper, session: str, end_at: float) -> HelpResult:
        """Help one session when a slot is free; whatever it raises, the others get theirs."""
        # The slots are shared by the feed and the sweep: after an outage there may be thousands of
        # sessions, and helping all at once would take the store from the messages.
        async with self.slots:
            if self.worker.clock.now() >= end_at:
                return HelpResult.UNFINISHED
            try:
                return await help_one(session, end_at)
            except LockstepError as error:
                log.info("session %r is left for later: %s", session, error)
            except Exception:
                # A defect that one session's documents bring out must not stop the sweep either.
                log.exception("session %r could not be helped", session)
        return HelpResult.FAILED

    async def deliver_session(self, session: str, end_at: float) -> HelpResult:
        # What its worker knows and has not recorded yet must not be sent again.
        await self.dispatcher.acknowledgements.record_session(session)
        # Of each outbox only this region's share: the other region's is its own sweep's.
        pending = sort_for_delivery(await self.journal.pending(session, [self.region]))
        return await self.deliver(list(takewhile(self.is_left, pending)), end_at)

    def is_left(self, pending: PendingOutbox) -> bool:
        """Say whether its own worker had its time, or is done with it: another region has all."""
        is_old = pending.age_seconds >= self.lag_of(pending)
        return is_old or len(pending.outbox.regions) < self.regions

    async def deliver(self, pending: Sequence[PendingOutbox], end_at: float) -> HelpResult:
        """Deliver outboxes to this region in order, part after part while there is time."""
        in_order = list(sort_for_delivery(pending))
        for start in range(0, len(in_order), DELIVERED_AT_ONCE):
            if start and self.worker.clock.now() >= end_at:
                return HelpResult.UNFINISHED
            part = in_order[start : start + DELIVERED_AT_ONCE]
            if await self.dispatcher.deliver_in_order(part, [self.region], end_at):
                is_busy = any(self.dispatcher.is_being_sent(one, self.region) for one in part)
                is_late = self.worker.clock.now() >= end_at
                # One session shows whether the region is back; the others need not wait for it.
                is_early = self.dispatcher.delivery.is_being_probed(self.region)
                is_to_go_on = is_busy or is_late or is_early
                return HelpResult.UNFINISHED if is_to_go_on else HelpResult.FAILED
        return HelpResult.DONE

    async def deliver_shown(
        self, shown: Mapping[str, OutboxKeys], session: str, end_at: float
    ) -> HelpResult:
        """Deliver what the change feed showed of a session, and what entries before it have.

        What came during the lag is still its own worker's.
        """
        keys = shown[session]
        await self.dispatcher.acknowledgements.record_session(session)
        # Older outboxes go first even where the feed did not show them in this call: sending only
        # what was shown could let an entry's outputs overtake those of an earlier one.
        newest = max((position for _, position in keys if position is not None), default=-1)
        due = [
            one
            for one in await self.journal.pending(session, [self.region])
            if (one.key, one.position) in keys
            or (one.position is not None and one.position < newest)
        ]
        return await self.deliver(due, end_at)

    async def resume_session(self, session: str, end_at: float) -> HelpResult:
        """Take over a claim whose owner is gone, and drain what waited for it."""
        head = await self.worker.read_head(session)
        # The search goes by age alone; whether its owner is gone only the claim itself says.
        stored = await self.journal.stored_entry(session, head.position) if head else None
        if stored is None or not self.claims.is_left(stored):
            return HelpResult.DONE
        # None says that somebody else was first, who then also drains what the claim kept waiting.
        entry = await self.claims.take_over(stored)
        await self.drain(session, end_at)
        return HelpResult.DONE if entry else HelpResult.FAILED

    async def drain_session(self, session: str, end_at: float) -> HelpResult:
        """Drain what is parked, as far as it can be."""
        # A remembered head may be older than the parked message.
        await self.worker.read_head(session)
        await self.drain(session, end_at)
        head = self.worker.heads.get(session, NO_HEAD).entry
        if head is None or not head.parked:
            return HelpResult.DONE
        return HelpResult.UNFINISHED if session in self.worker.undrained else HelpResult.FAILED

    async def drain(self, session: str, end_at: float) -> None:
        """Drain a session; under claims in a worker whose predecessor may have died of it."""
        is_careful = self.worker.clock.now() < self.worker.careful_until
        await self.consumer.drain(session, end_at, as_try=int(is_careful))
