"""Follow a session from any region: its entries, once each has ended, in order and without a hole.

A watcher names the position that it knows and gets what follows it. The answer does not wait for
more once there is something to tell, because a function answers whole bodies only; the watcher then
comes again. A journal is only ever added to at its end and removed from at its beginning, so a hole
means that compaction removed what was there, and is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, takewhile

from shared.domain.errors import TooManyWatchers
from shared.domain.journal import Status
from shared.engine.worker import Worker
from shared.ports import StoredEntry

# So many entries are looked at for one answer.
ENTRIES_MAX = 50
# Each watcher holds a call of its host while it waits, so others must find some free.
WATCHERS_MAX = 32
# The pauses between two looks at a position that nobody has written yet: each is twice as long.
FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.25, 2.0
# A place comes free when a watcher that waits has its answer.
RETRY_SECONDS = 5.0
# What a watcher knows who knows nothing.
BEFORE_ALL = -1


@dataclass(frozen=True, slots=True)
class Changes:
    """The entries that ended after a position, one after the other.

    `oldest` is the position of the oldest entry that is left, where compaction removed some of
    these. `newest` is that of the newest one, where the journal ends before the position: it was
    restored, or the position is another session's.
    """

    entries: tuple[StoredEntry, ...] = ()
    oldest: int | None = None
    newest: int | None = None


NOTHING = Changes()


def changes_after(position: int, found: Sequence[StoredEntry]) -> Changes:
    """Return what followed a position, of entries in order: up to a hole, or to a claim.

    A claim is no change: it may be replaced, and the entries after it cannot be there yet.
    """
    later = [one for one in found if one.entry.position > position]
    if not later:
        return NOTHING
    first = later[0].entry.position
    run = takewhile(
        lambda pair: pair[0].entry.position == pair[1] and pair[0].entry.status != Status.WORKING,
        zip(later, count(first)),
    )
    ended = tuple(one for one, _ in run)
    return Changes(ended, oldest=first if first > position + 1 else None)


class Watch:
    """Tells watchers of any session what changed, for one worker."""

    def __init__(self, worker: Worker) -> None:
        self.journal = worker.journal
        self.clock = worker.clock
        self.watchers = 0

    async def changes(self, session: str, after: int, wait_seconds: float) -> Changes:
        """Return what followed a position of a session, as soon as there is something.

        NOTHING where nothing was there within the time, and for a session that has not begun. Of
        what was acknowledged before a look, the look sees all. It costs one query and, while it
        waits, one read for each look. Raises TooManyWatchers where this worker has no place left,
        and Unavailable when the journal cannot be read, one call's time after the wait at the
        latest.
        """
        if self.watchers >= WATCHERS_MAX:
            raise TooManyWatchers(f"{WATCHERS_MAX} watchers wait here already", RETRY_SECONDS)
        self.watchers += 1
        try:
            return await self.follow(session, after, self.clock.now() + wait_seconds)
        finally:
            self.watchers -= 1

    async def follow(self, session: str, after: int, stop_at: float) -> Changes:
        # The entry at the known position is among them: it tells that the journal is so long.
        found = await self.journal.oldest_entries(session, ENTRIES_MAX, max(after, 0))
        changes = changes_after(after, found)
        if not found and after >= 0:
            head = await self.journal.head(session)
            if head is not None and head.position < after:
                return Changes(newest=head.position)
        pause = FIRST_PAUSE_SECONDS
        while changes == NOTHING and (left := stop_at - self.clock.now()) > 0:
            await self.clock.sleep(min(pause, left))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
            next_one = await self.journal.stored_entry(session, after + 1)
            changes = changes_after(after, [next_one] if next_one else [])
        return changes
