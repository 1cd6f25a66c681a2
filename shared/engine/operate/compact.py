"""Remove entries that nothing needs any more: superseded, dispatched, older than the retention.

Only journals with a milestone are looked at, so the work is in proportion to what is removed. The
head is never removed, and neither is what a kept entry builds on.
"""

import logging
from dataclasses import dataclass

from shared.domain.errors import LockstepError
from shared.domain.journal import Entry, Status
from shared.domain.next_entry import state_position
from shared.domain.outbox import PendingOutbox, Rerun
from shared.engine.operate.failed_sessions import FailedSessions
from shared.ports import Journal, SessionNeed

log = logging.getLogger("lockstep.compact")

# A transactional batch takes 100 operations, one of which unmarks the milestone.
REMOVED_AT_ONCE = 99
SESSIONS_MAX = 1_000
# Documents that one search looks at.
SEARCHED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Compacted:
    """What one run removed, and in how many sessions it could not."""

    entries: int = 0
    failed: int = 0

    def __add__(self, other: "Compacted") -> "Compacted":
        return Compacted(self.entries + other.entries, self.failed + other.failed)


class Compactor:
    """Keeps journals short, in the background."""

    def __init__(
        self, journal: Journal, regions: tuple[str, ...], *, retention_seconds: float
    ) -> None:
        self.journal = journal
        self.regions = regions
        self.retention_seconds = retention_seconds
        self.failed = FailedSessions()

    async def compact(self, entries_max: int = 10_000) -> Compacted:
        """Remove what is old enough, in the sessions with the oldest milestones first.

        Raises Unavailable when the journal cannot be searched.
        """
        sessions = await self.journal.sessions(
            SessionNeed.COMPACTION,
            older_than_seconds=self.retention_seconds,
            excluded=self.failed.newest(),
            limit=SEARCHED_MAX,
        )
        done = Compacted()
        for session in self.failed.order(sessions)[:SESSIONS_MAX]:
            if done.entries >= entries_max:
                break
            done += await self.try_session(session, entries_max - done.entries)
        return done

    async def try_session(self, session: str, entries_max: int) -> Compacted:
        """Compact one session; one that cannot be is left to a later run."""
        try:
            milestone = await self.journal.milestone(session, self.retention_seconds)
            removed = await self.compact_below(session, milestone, entries_max) if milestone else 0
        except LockstepError as error:
            log.info("session %r is compacted later: %s", session, error)
            self.failed.record(session, succeeded=False)
            return Compacted(failed=1)
        self.failed.record(session, succeeded=milestone is None or removed > 0)
        return Compacted(removed)

    async def compact_below(self, session: str, milestone: int, entries_max: int) -> int:
        """Remove the entries below a milestone that are not needed; how many these were."""
        floor = await self.find_floor(session, milestone)
        removed = 0
        while removed < entries_max:
            oldest = await self.journal.oldest_entries(session, REMOVED_AT_ONCE + 1)
            free = [entry.position for entry in oldest if entry.position < floor]
            is_last = len(free) <= REMOVED_AT_ONCE
            passed = milestone if is_last and floor == milestone else None
            await self.journal.compact(session, free[:REMOVED_AT_ONCE], passed)
            removed += min(len(free), REMOVED_AT_ONCE)
            if is_last:
                break
        return removed

    async def find_floor(self, session: str, milestone: int) -> int:
        """The lowest position that is still needed: everything from there on is kept."""
        head = await self.journal.head(session)
        kept = await self.journal.entry(session, milestone)
        needed = [milestone, state_position(kept)]
        if head is not None:
            needed += needed_by_head(head)
        pending = await self.journal.pending(session, self.regions)
        needed += [await self.needed_by(outbox) for outbox in pending]
        return min(position for position in needed if position is not None)

    async def needed_by(self, pending: PendingOutbox) -> int | None:
        """The lowest position that a pending outbox still needs; None for a producer's."""
        position = pending.position
        if position is None or position == 0 or not isinstance(pending.outbox.location, Rerun):
            return position
        before = await self.journal.entry(pending.session, position - 1)
        state_at = state_position(before)
        return position - 1 if state_at is None else state_at


def needed_by_head(head: Entry) -> list[int | None]:
    """The positions that the head still needs: its fault, and where a claimed handler starts."""
    fault = [head.halt.at] if head.halt else []
    return [*fault, head.position - 1] if head.status is Status.WORKING else [*fault]
