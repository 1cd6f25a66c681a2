"""The health of a region: whether its journal can be read, what is missing, what was heard.

Anybody may ask for it, as often as they like. So one look answers everybody who asks within two
seconds: a flood of questions costs the journal, and the leases that recovery needs, one look.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from shared.domain.errors import LockstepError, Unavailable
from shared.engine.operate.heartbeats import Heard, Heartbeats
from shared.engine.operate.missing_places import MissingPlaces
from shared.ports import StoredRegions
from shared.storage.journal import Journal

# What stands before the apps asks often, and waits no longer.
LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RegionHealth:
    """The health of a region whose journal can be read.

    `missing` has the reason for each place of the settings that cannot be used. `heard` is None
    where that is not known.
    """

    missing: Mapping[str, str]
    heard: Heard | None


class Health:
    """The health of this process's region; `heartbeats` are there in an app."""

    def __init__(self, journal: Journal, missing_places: MissingPlaces) -> None:
        self.journal = journal
        self.missing_places = missing_places
        self.heartbeats: Heartbeats | None = None
        self.began_at = float("-inf")
        self.looks: tuple[asyncio.Task[StoredRegions | None], asyncio.Task[Heard | None]] | None
        self.looks = None

    async def look(self) -> RegionHealth:
        """Return what a look found that began less than two seconds ago.

        Raises LockstepError where the journal cannot be read, or does not answer in two seconds.
        """
        self.missing_places.begin_looking()
        now = asyncio.get_running_loop().time()
        if self.looks is None or now >= self.began_at + LOOK_SECONDS:
            self.began_at = now
            reading = asyncio.ensure_future(self.read())
            self.looks = reading, asyncio.ensure_future(self.listen())
            # One that nobody waits for any more is left to end: the first read of a process opens
            # what later ones find open.
            reading.add_done_callback(lambda late: late.cancelled() or late.exception())
        reading, listening = self.looks
        await asyncio.wait(self.looks, timeout=LOOK_SECONDS)
        if not reading.done():
            raise Unavailable(f"the journal did not answer within {LOOK_SECONDS:g} s")
        reading.result()
        heard = listening.result() if listening.done() else None
        return RegionHealth(dict(self.missing_places.reasons), heard)

    async def read(self) -> StoredRegions | None:
        """Read the one document that is small, whatever anybody sends."""
        return await self.journal.regions()

    async def listen(self) -> Heard | None:
        """Return when feeds, timers and other regions were heard; None where that is not known."""
        if self.heartbeats is None:
            return None
        try:
            return await self.heartbeats.ages()
        except LockstepError:
            return None
