"""Remove entries that nothing needs any more: superseded, dispatched, older than the retention.

Only journals with an old mark are looked at, so the work is in proportion to what is removed. The
head is never removed, and neither is what a kept entry builds on. Entries are removed oldest first:
a worker that slept on an old head finds that entry gone before the one that it would create again.

Of a session that has ended nothing is left in the end. Once its newest entry is as old as the
retention, its ledgers give no further number; and when nothing has come for it for as long as a
queue may keep a copy, all that is left goes in one batch. A session whose handlers say that silence
ends it is ended here, too. Why that is sound is written in docs/adr (0086).

Where entries keep what their handlers took, nothing goes that the archive does not have.

The regions share the sessions by name. What one of them has not done for a day, the others do.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from shared.domain import next_entry
from shared.domain.decision import cursor_of
from shared.domain.errors import LockstepError
from shared.domain.journal import ARRIVALS, Entry, Status
from shared.domain.measures import ARCHIVE_SECONDS, UNARCHIVED
from shared.domain.message import HERE_PREFIX, OUTPUTS_PREFIX, home_region
from shared.domain.next_entry import state_position
from shared.domain.outbox import PendingOutbox, Rerun
from shared.engine.operate.failed_sessions import FailedSessions
from shared.engine.worker import Worker
from shared.ports import SessionNeed, StoredEntry
from shared.storage.journal import Journal

log = logging.getLogger("lockstep.compact")

# A transactional batch takes 100 operations, one of which changes a mark.
REMOVED_AT_ONCE = 99
# Documents that one search looks at.
SEARCHED_MAX = 10_000
SESSIONS_AT_ONCE = 16
# A run begins no session later than this: well before the host ends it, after five minutes.
RUN_SECONDS = 240.0
# How long after the retention a region leaves the others' sessions to them.
LEFT_SECONDS = 24 * 3600.0
DAY_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Compacted:
    """The entries that one run removed, and the sessions in which it could not."""

    entries: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class OldPart:
    """The old part of a session: what lies below `kept` is superseded, and goes unless needed.

    `pending` may need some of it. `marked` are old marks; with `is_found_again` the session needs
    one more, because it has younger entries without any. `resting` is the newest entry where it is
    old and the session has ended, or may by itself.
    """

    kept: Entry
    head: Entry
    pending: Sequence[PendingOutbox]
    marked: Sequence[int]
    is_found_again: bool = False
    resting: StoredEntry | None = None

    @property
    def floor(self) -> int:
        """The lowest position that the entries themselves need."""
        needed = [self.kept.position, state_position(self.kept), *needed_by_head(self.head)]
        return min(position for position in needed if position is not None)

    def marks_from(self, position: int) -> dict[int, bool]:
        """Return the marks when only entries from a position on are left."""
        rests = self.resting.entry.position if self.resting else None
        marks = {one: False for one in self.marked if one >= position and one != rests}
        return marks | ({self.kept.position: True} if self.is_found_again else {})


class Compactor:
    """Keeps journals short, in the background."""

    def __init__(self, worker: Worker, regions: tuple[str, ...]) -> None:
        self.worker = worker
        self.journal = worker.journal
        # The container of ledgers that lie elsewhere, where there is one.
        self.ledgers: Journal | None = None
        self.clock = worker.clock
        self.region = worker.owner.region
        self.retention_seconds = worker.policy.retention_seconds
        # What is younger is not in the archive, where there has to be one.
        self.unarchived_seconds = 0.0
        self.copies_seconds = worker.policy.copies_seconds
        self.regions = regions
        self.failed = FailedSessions()

    async def compact(self) -> Compacted:
        """Remove what is old enough, the oldest first, until nothing is left or time is up.

        Raises Unavailable when the journal cannot be searched.
        """
        if self.worker.policy.keeps_inputs:
            await self.wait_for_archive()
        stop_at = self.clock.now() + RUN_SECONDS
        slots = asyncio.Semaphore(SESSIONS_AT_ONCE)
        removed: list[int | None] = []
        # Those that were tried in vain are tried once more in each run, after all others.
        sessions = self.failed.order(await self.find_sessions())
        seen: set[str] = set()
        while sessions and self.clock.now() < stop_at:
            seen.update(sessions)
            tries = (self.try_session(session, slots, stop_at) for session in sessions)
            removed += await asyncio.gather(*tries)
            sessions = [one for one in await self.find_sessions() if one not in seen]
        await self.remove_left_ledgers()
        return Compacted(sum(count or 0 for count in removed), removed.count(None))

    async def wait_for_archive(self) -> None:
        """Let this run remove only what the archive has. Raises Unavailable."""
        age, retention = await self.journal.archive_age(), self.worker.policy.retention_seconds
        # What was written since the archive was complete stays too young for as long as a run can
        # take: the host ends it after five minutes.
        self.unarchived_seconds = age + 2 * RUN_SECONDS
        self.retention_seconds = max(retention, self.unarchived_seconds)
        if self.worker.telemetry is not None and age < inf:
            self.worker.telemetry.add(ARCHIVE_SECONDS, age)
        if age > retention:
            if self.worker.telemetry is not None:
                self.worker.telemetry.add(UNARCHIVED)
            since = "ever" if age == inf else f"for {age / DAY_SECONDS:.1f} days"
            log.error(
                "nothing was archived %s: the journal keeps all that the archive lacks", since
            )

    async def find_sessions(self) -> list[str]:
        """Sessions with an old mark: this region's, and the others' that are older by a day."""
        found: dict[str, None] = {}
        for seconds in (self.retention_seconds, self.retention_seconds + LEFT_SECONDS):
            sessions = await self.journal.sessions(
                SessionNeed.COMPACTION,
                older_than_seconds=seconds,
                excluded=self.failed.newest(),
                limit=SEARCHED_MAX,
            )
            is_late = seconds > self.retention_seconds
            found |= dict.fromkeys(s for s in sessions if is_late or self.is_own(s))
        return list(found)

    def is_own(self, session: str) -> bool:
        return home_region(session, self.regions) == self.region

    async def try_session(
        self, session: str, slots: asyncio.Semaphore, stop_at: float
    ) -> int | None:
        """Return how many entries of a session were removed; None leaves it to a later run."""
        async with slots:
            if self.clock.now() >= stop_at:
                return 0
            try:
                removed, is_done = await self.compact_session(session, stop_at)
            except LockstepError as error:
                log.info("session %r is compacted later: %s", session, error)
                self.failed.record(session, succeeded=False)
                return None
        self.failed.record(session, succeeded=is_done or removed > 0)
        return removed

    async def compact_session(self, session: str, stop_at: float) -> tuple[int, bool]:
        """Remove what is not needed: how many entries, and whether no outbox prevented more."""
        removed, most = 0, REMOVED_AT_ONCE
        while True:
            oldest = await self.journal.oldest_entries(session, most + 2)
            is_whole = len(oldest) < most + 2
            part = self.part_of(oldest) if is_whole else await self.read_part(session)
            if part is None:
                return removed, True
            needed = [await self.needed_by(outbox) for outbox in part.pending]
            # What a person has to look at stays until somebody has.
            needed += [one.entry.position for one in oldest if self.is_kept(one)]
            floor = min([part.floor, *(position for position in needed if position is not None)])
            free = [one.entry for one in oldest if one.entry.position < floor]
            positions, states = fit_batch(free, most)
            is_last, is_done = len(positions) == len(free), floor == part.floor
            # A crash between two batches leaves the newer part of the journal, without a hole.
            marks = part.marks_from(floor) if is_last and is_done else {}
            await self.journal.compact(session, positions, marks, states)
            removed += len(positions)
            is_over = is_last and (is_whole or not is_done or part.resting is not None)
            if is_over and is_done and part.resting is not None:
                removed += await self.go_on(part.resting)
            if is_over or self.clock.now() >= stop_at:
                return removed, is_done

    def is_kept(self, one: StoredEntry) -> bool:
        """Say whether an entry stays whatever its age: somebody, or the archive, has to see it."""
        return one.entry.is_open or one.read_at - one.written_at < self.unarchived_seconds

    def part_of(self, entries: Sequence[StoredEntry]) -> OldPart | None:
        """The old part of a session of which these are all entries; None if nothing is old."""
        old = [one for one in entries if one.read_at - one.written_at >= self.retention_seconds]
        if not old:
            return None
        kept = old[-1].entry
        younger = [one for one in entries if one.entry.position > kept.position]
        pending = [
            PendingOutbox(one.entry.session, one.entry.outbox, one.entry.position)
            for one in entries
            if one.entry.outbox.regions or one.entry.outbox.blocked
        ]
        # A session with younger entries has to be found again when they are old. If none of them
        # has a mark, the one that is kept gets it: writing the mark makes it young again. A session
        # of which only the newest entry is left has no mark, and is found no more.
        is_found_again = bool(younger) and not any(one.is_marked for one in younger)
        marked = [one.entry.position for one in old if one.is_marked]
        head = entries[-1].entry
        resting = entries[-1] if not younger and may_rest(head) else None
        return OldPart(kept, head, pending, marked, is_found_again, resting)

    async def read_part(self, session: str) -> OldPart | None:
        """The old part of a longer session, up to its newest old mark; None for no such mark."""
        milestone = await self.journal.milestone(session, self.retention_seconds)
        kept = (
            await self.journal.stored_entry(session, milestone) if milestone is not None else None
        )
        head = await self.journal.head(session)
        if kept is None or head is None:
            return None
        pending = await self.journal.pending(session, self.regions)
        blocked = await self.journal.blocked(session)
        position, is_head = kept.entry.position, kept.entry.position == head.position
        resting = kept if is_head and may_rest(head) else None
        return OldPart(kept.entry, head, [*pending, *blocked], [position], resting=resting)

    async def go_on(self, stored: StoredEntry) -> int:
        """End a session after its silence, or remove it once it has ended; how many entries went.

        `stored` is its newest entry, which is old. It is marked anew where it stays: that makes it
        young, so that the session is looked after once in each retention.
        """
        head, quiet = stored.entry, stored.entry.quiet
        age = stored.read_at - stored.written_at
        if not head.is_ended:
            quiet = (quiet or 0.0) + age
            if head.silence is not None and quiet >= head.silence and is_settled(head):
                reason = f"nothing came for {quiet / DAY_SECONDS:.1f} days"
                ended = next_entry.end(head, self.worker.new_attempt(), (), reason)
                await self.worker.commit(head, ended)
                return 0
        elif is_settled(head):
            numbers = await self.end_ledgers(head.session)
            if numbers is not None and goes_on_elsewhere(head, numbers):
                await self.journal.compact(head.session, (), {head.position: False})
                return 0
            has_all = numbers is not None and all(
                cursor_of(head, group).next >= number for group, number in numbers.items()
            )
            quiet = None if not has_all else 0.0 if quiet is None else quiet + age
            if quiet is not None and quiet >= self.copies_seconds:
                if await self.journal.remove_session(stored):
                    if self.ledgers is not None:
                        await self.ledgers.remove_ledgers(head.session)
                    return 1
                quiet = None
        await self.journal.note_quiet(stored, quiet)
        return 0

    async def end_ledgers(self, session: str) -> Mapping[str, int] | None:
        """Let no ledger of a session give a further number; None where that cannot be yet.

        By group, the next number of each: all below it were given.
        """
        numbers: dict[str, int] = {}
        for journal in (self.journal, self.ledgers):
            if journal is None:
                continue
            are_apart = journal is self.ledgers
            found = await journal.end_all_ledgers(session, are_apart=are_apart)
            if found is None:
                return None
            numbers |= found
        return numbers

    async def remove_left_ledgers(self) -> None:
        """Remove ended ledgers in a container of their own whose session went without them.

        A crash between the two removals leaves them, and their producers are refused by name.
        """
        if self.ledgers is None:
            return
        seconds = self.copies_seconds + 3 * self.retention_seconds
        for session in await self.ledgers.sessions(
            SessionNeed.COMPACTION, older_than_seconds=seconds, limit=SEARCHED_MAX
        ):
            head = await self.journal.head(session)
            if head is None or not head.is_ended:
                await self.ledgers.remove_ledgers(session)

    async def needed_by(self, pending: PendingOutbox) -> int | None:
        """The lowest position that a pending outbox still needs; None for a producer's."""
        position = pending.position
        if position is None or position == 0 or not isinstance(pending.outbox.location, Rerun):
            return position
        before = await self.journal.entry(pending.session, position - 1)
        state_at = state_position(before)
        return position - 1 if state_at is None else state_at


def may_rest(head: Entry) -> bool:
    """Say whether a session that this is the newest entry of has ended, or may by itself."""
    return head.is_ended or head.silence is not None


def is_settled(head: Entry) -> bool:
    """Say whether nothing of a session waits that its newest entry knows of."""
    # Which regions lagged when it was made says nothing of today: older outboxes are looked at.
    is_out = not (head.outbox.regions or head.outbox.blocked)
    has_ended = head.status is not Status.WORKING and head.halt is None
    return is_out and has_ended and not head.parked and not head.is_open


def goes_on_elsewhere(head: Entry, numbers: Collection[str]) -> bool:
    """Say whether somebody numbers messages for a session by what is kept outside of it.

    These numbers go on when the session is gone. So its newest entry stays, and tells them.
    """
    own = {ARRIVALS, HERE_PREFIX + head.session, OUTPUTS_PREFIX + head.session}
    return head.has_evicted or not {*head.cursors} <= own | {*numbers}


def fit_batch(entries: Sequence[Entry], most: int) -> tuple[list[int], list[int]]:
    """The first entries that a batch of so many operations removes, and their states beside them.

    Both as positions.
    """
    sizes = accumulate(1 + entry.state_apart for entry in entries)
    fitting = entries[: sum(size <= most for size in sizes)]
    return [e.position for e in fitting], [e.position for e in fitting if e.state_apart]


def needed_by_head(head: Entry) -> list[int | None]:
    """The positions that the head still needs: its fault, and where a claimed handler starts."""
    fault = [head.halt.at] if head.halt else []
    return [*fault, head.position - 1] if head.status is Status.WORKING else [*fault]
