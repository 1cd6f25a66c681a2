"""Look once a minute at all regions, and keep what was found where every region can read it.

The look costs the same whoever reads it and however often, and the record lies beside the leases,
where it wakes no feed. A page that is open reads small documents, and none of the journal.
"""

import asyncio
from collections.abc import Mapping, Sequence

from shared.domain.errors import LockstepError
from shared.domain.overview import (
    Minute,
    RegionRecord,
    add_look,
    count_attention,
    count_sagas,
    count_times,
    cut_causes,
    decode_look,
    encode_look,
    measure_rate,
    merge_records,
)
from shared.engine.operate.heartbeats import SWEEP, Leases, record_id
from shared.engine.operate.standstills import Standstills
from shared.ports import StoreClock
from shared.storage.journal import Journal

# A look measures the minute before it by so many entries at most, and counts so many sagas and
# reports.
LOOK_SECONDS, ENTRIES_MAX, SAGAS_MAX, REPORTS_MAX = 60.0, 500, 500, 200
# Where a count found more than so many standstills, the next one is so much later.
COUNTED_OFTEN_MAX, COUNT_SECONDS = 1_000, 300.0
# One answer of a process is good for so long.
SHOWN_SECONDS = 15.0


class Overview:
    """The records of all regions: this one's is written by its sweep, and each can be read."""

    def __init__(
        self,
        standstills: Standstills,
        leases: Leases,
        region: str,
        regions: Sequence[str],
        *,
        has_sagas: bool,
    ) -> None:
        self.standstills = standstills
        self.journal: Journal = standstills.worker.journal
        self.policy = standstills.worker.policy
        self.leases = leases
        self.region = region
        self.regions = tuple(regions)
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
            kept = decode_look(self.kept)
            attention, causes = kept.attention, kept.causes
            often = sum(one.count for one in attention.values()) <= COUNTED_OFTEN_MAX
            if causes is None or often or now >= causes.at + COUNT_SECONDS:
                causes = await self.standstills.causes(now=now)
                attention = count_attention(causes)
            waiting = [
                await journal.waiting_seconds(now, region, self.policy.lag_seconds, 1)
                for region in self.regions
            ]
            reports = count_times(await journal.open_report_times(REPORTS_MAX), REPORTS_MAX)
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
        sagas = count_sagas(running, now, self.policy.standstill_seconds, SAGAS_MAX)
        added = add_look(kept, now, attention, looked, reports, sagas, cut_causes(causes))
        self.kept = encode_look(added)
        return self.kept

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
