"""Look once a minute at all regions, and keep what was found where every region can read it.

The look costs the same whoever reads it and however often, and the record lies beside the leases,
where it wakes no feed. A page that is open reads small documents, and none of the journal.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from shared.domain.errors import LockstepError
from shared.domain.overview import (
    Minute,
    RegionRecord,
    Reports,
    add_look,
    count_attention,
    count_sagas,
    decode_look,
    encode_look,
    measure_rate,
    merge_records,
)
from shared.domain.reports import REJECTED_TYPE
from shared.engine.operate.heartbeats import SWEEP, Leases, record_id
from shared.ports import StoreClock
from shared.storage.journal import Journal

# A look measures the minute before it by so many entries at most, and counts so many signs and
# sagas.
LOOK_SECONDS, ENTRIES_MAX, SIGNS_MAX, SAGAS_MAX = 60.0, 500, 500, 500
# How often the region's error queue is counted, which holds its sessions for a moment, and so many
# of its messages at most: each takes a read.
COUNT_SECONDS, REPORTS_MAX, REPORTS_AT_ONCE = 300.0, 50, 16
# One answer of a process is good for so long.
SHOWN_SECONDS = 15.0


class Overview:
    """The records of all regions: this one's is written by its sweep, and each can be read."""

    def __init__(
        self,
        journal: Journal,
        leases: Leases,
        region: str,
        regions: Sequence[str],
        errors: Any,  # an ErrorQueue
        *,
        lag_seconds: float,
        standstill_seconds: float,
        has_sagas: bool,
    ) -> None:
        self.journal = journal
        self.leases = leases
        self.region = region
        self.regions = tuple(regions)
        self.errors = errors
        self.lag_seconds = lag_seconds
        self.standstill_seconds = standstill_seconds
        self.has_sagas = has_sagas
        self.kept: str | None = None
        self.began_at = float("-inf")
        self.reading: asyncio.Task[RegionRecord] | None = None

    async def look(self, silent: Mapping[str, float]) -> str | None:
        """Return the region's record as text, with a new look in it if there could be one.

        `silent` says for how many seconds nothing was heard of a region that is silent. None is a
        record of which nothing is known yet.
        """
        clock = StoreClock()
        try:
            # Another instance may have written it: the timer moves among them.
            self.kept = await self.leases.read(record_id(self.region, SWEEP), clock)
            # A store does not tell the time of a record that is not there.
            now = clock.seconds or await self.journal.time()
            journal = self.journal
            # One after another: nobody waits for a look.
            recent = await journal.recent_entries(now, LOOK_SECONDS, ENTRIES_MAX)
            signs = await journal.oldest_signs(
                now, self.regions, self.standstill_seconds, SIGNS_MAX
            )
            waiting = [
                await journal.waiting_seconds(now, region, self.lag_seconds, 1)
                for region in self.regions
            ]
            running = await journal.sagas_due_first(SAGAS_MAX) if self.has_sagas else []
        except LockstepError:
            return self.kept
        looked = {
            region: Minute(
                measure_rate(recent, region, LOOK_SECONDS, ENTRIES_MAX),
                max(waits, default=0.0),
                silent.get(region, 0.0),
            )
            for region, waits in zip(self.regions, waiting, strict=True)
        }
        kept, attention = decode_look(self.kept), count_attention(signs, SIGNS_MAX)
        reports = await self.count_reports(kept.reports.get(self.region), now)
        sagas = count_sagas(running, now, self.standstill_seconds, SAGAS_MAX)
        self.kept = encode_look(add_look(kept, now, attention, looked, reports, sagas))
        return self.kept

    async def count_reports(self, counted: Reports | None, now: float) -> dict[str, Reports]:
        """Return the count of the region's own reports, which may be that of an earlier look."""
        last = {self.region: counted} if counted is not None else {}
        browser, queue = self.errors.browser, self.errors.queue
        if browser is None or (counted is not None and now < counted.at + COUNT_SECONDS):
            return last
        slots = asyncio.Semaphore(REPORTS_AT_ONCE)
        try:
            found = await browser.browse_sessions(self.region, queue, REPORTS_MAX)
            rejected = {
                (one.session, one.id): one for one in found.messages if one.type == REJECTED_TYPE
            }
            reports = await asyncio.gather(
                *(self.errors.read(one, slots) for one in rejected.values())
            )
        except LockstepError:
            return last
        # The lowest rank asks for somebody.
        count = sum(one.place.rank == 0 for one in reports)
        return {self.region: Reports(count, now, not found.is_all)}

    async def show(self) -> RegionRecord:
        """Return the newest look of any region with everybody's minutes, at most 15 s late.

        One read of a small document for each region, for everybody who asks this process within
        that time. Raises LockstepError where none can be read.
        """
        now = asyncio.get_running_loop().time()
        if self.reading is None or now >= self.began_at + SHOWN_SECONDS:
            self.began_at = now
            self.reading = asyncio.ensure_future(self.read())
            # One that nobody waits for any more is left to end.
            self.reading.add_done_callback(lambda late: late.cancelled() or late.exception())
        return await asyncio.shield(self.reading)

    async def read(self) -> RegionRecord:
        texts = await asyncio.gather(
            *(self.leases.read(record_id(region, SWEEP)) for region in self.regions)
        )
        return merge_records(map(decode_look, texts))
