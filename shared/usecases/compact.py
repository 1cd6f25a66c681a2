"""Remove entries that nothing needs any more: superseded, dispatched, older than the retention.

Only journals with a milestone are looked at, so the work is in proportion to what is removed. The
head is never removed, and neither is what a kept entry builds on.
"""

import logging
from dataclasses import dataclass

from shared.domain.errors import LockstepError
from shared.domain.journal import Entry, Status, state_position
from shared.domain.outbox import Owing, Rerun
from shared.ports import Journal, Sought
from shared.usecases.turns import Tried

log = logging.getLogger("lockstep.compact")

# A transactional batch takes 100 operations, one of which unmarks the milestone.
REMOVED_AT_ONCE = 99
SESSIONS_MAX = 1_000
# Documents that one search looks at.
LOOKED_AT_MAX = 10_000


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
        self.tried = Tried()

    async def compact(self, entries_max: int = 10_000) -> Compacted:
        """Remove what is old enough, in the sessions with the oldest milestones first.

        Raises Unavailable when the journal cannot be searched.
        """
        sessions = await self.journal.sessions(
            Sought.MILESTONE,
            older_than_seconds=self.retention_seconds,
            but_for=self.tried.in_vain(),
            limit=LOOKED_AT_MAX,
        )
        done = Compacted()
        for session in self.tried.in_turn(sessions)[:SESSIONS_MAX]:
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
            self.tried.note(session, helped=False)
            return Compacted(failed=1)
        self.tried.note(session, helped=milestone is None or removed > 0)
        return Compacted(removed)

    async def compact_below(self, session: str, milestone: int, entries_max: int) -> int:
        """Remove the entries below a milestone that are not needed; how many these were."""
        floor = await self.floor(session, milestone)
        removed = 0
        while removed < entries_max:
            oldest = await self.journal.compactable(session, REMOVED_AT_ONCE + 1)
            free = [entry.position for entry in oldest if entry.position < floor]
            is_last = len(free) <= REMOVED_AT_ONCE
            passed = milestone if is_last and floor == milestone else None
            await self.journal.compact(session, free[:REMOVED_AT_ONCE], passed)
            removed += min(len(free), REMOVED_AT_ONCE)
            if is_last:
                break
        return removed

    async def floor(self, session: str, milestone: int) -> int:
        """The lowest position that is still needed: everything from there on is kept."""
        head = await self.journal.head(session)
        kept = await self.journal.entry(session, milestone)
        needed = [milestone, state_position(kept)]
        if head is not None:
            needed += needed_by_head(head)
        owings = await self.journal.owing_of(session, self.regions)
        needed += [await self.needed_by(owing) for owing in owings]
        return min(position for position in needed if position is not None)

    async def needed_by(self, owing: Owing) -> int | None:
        """The lowest position that an unpaid outbox still needs."""
        if not owing.of_entry:
            return None
        position = int(owing.document_id)
        if not isinstance(owing.outbox.elsewhere, Rerun) or position == 0:
            return position
        before = await self.journal.entry(owing.session, position - 1)
        state_at = state_position(before)
        return position - 1 if state_at is None else state_at


def needed_by_head(head: Entry) -> list[int | None]:
    """The positions that the head still needs: its fault, and where a claimed handler starts."""
    fault = [head.halt.at] if head.halt else []
    return [*fault, head.position - 1] if head.status is Status.WORKING else [*fault]
