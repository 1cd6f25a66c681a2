"""Remove entries that nothing needs any more: superseded, dispatched, older than the retention.

Only journals with a milestone are looked at, so the work is in proportion to what is removed. The
head is never removed, and neither is what a kept entry builds on.
"""

from dataclasses import dataclass

from shared.domain.errors import LockstepError
from shared.domain.journal import state_position
from shared.domain.outbox import Owing, Rerun
from shared.ports import Journal, Sought

# A transactional batch takes 100 operations, one of which unmarks the milestone.
REMOVED_AT_ONCE = 99
SESSIONS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Compacted:
    """What one run removed, and in how many sessions it could not."""

    entries: int = 0
    failed: int = 0


class Compactor:
    """Keeps journals short, in the background."""

    def __init__(
        self, journal: Journal, regions: tuple[str, ...], *, retention_seconds: float
    ) -> None:
        self.journal = journal
        self.regions = regions
        self.retention_seconds = retention_seconds

    async def compact(self, entries_max: int = 10_000) -> Compacted:
        """Remove what is old enough, in the sessions with the oldest milestones first.

        Raises Unavailable when the journal cannot be searched.
        """
        sessions = await self.journal.sessions(
            Sought.MILESTONE, older_than_seconds=self.retention_seconds, limit=SESSIONS_MAX
        )
        removed = failed = 0
        for session in sessions:
            if removed >= entries_max:
                break
            try:
                removed += await self.compact_session(session, entries_max - removed)
            except LockstepError:
                failed += 1
        return Compacted(removed, failed)

    async def compact_session(self, session: str, entries_max: int) -> int:
        """Remove the entries below the newest old milestone; how many these were."""
        milestone = await self.journal.milestone(session, self.retention_seconds)
        if milestone is None:
            return 0
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
        if head is not None and head.halt is not None:
            needed.append(head.halt.at)
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
