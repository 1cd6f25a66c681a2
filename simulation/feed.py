"""A region's change feed: it shows the newest version of what changed, and does so its own way.

Versions between two looks are never seen. It may show changes again, and whatever becomes of the
function that it calls, it moves on.
"""

from dataclasses import dataclass

from shared.domain.stored_messages import Document
from simulation.loop import now
from simulation.process import Process
from simulation.weather import Weather
from simulation.witness import WitnessedStore

# How many changes are shown again when a lease changes hands.
REPEATED = 20


@dataclass
class Feed:
    """One region's view of the changes; one process at a time follows it."""

    region: str
    store: WitnessedStore
    weather: Weather
    position: int = 0
    follower: Process | None = None

    def is_followed_by(self, process: Process) -> bool:
        """Whether the process holds the lease; it gets that of a dead one."""
        if self.follower is None or self.follower.is_dead:
            self.follower = process
        return self.follower is process

    def read(self) -> list[Document]:
        """What changed since the last look, as it is now."""
        store, climate = self.store, self.weather.climate
        start, self.position = self.position, len(store.changes)
        if start == self.position:
            return []
        if self.weather.strikes(climate.feed_skips, "feed skips", self.region, now()):
            return []
        if self.weather.strikes(climate.feed_repeats, "feed repeats", self.region, now()):
            start = max(0, start - REPEATED)
        changed = dict.fromkeys(store.changes[start:])
        documents = [store.partitions[session].get(name) for session, name in changed]
        return [document for document in documents if document is not None]
