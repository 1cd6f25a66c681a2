"""A region's change feed: it shows the newest version of what changed, and does so its own way.

Versions between two looks are never seen. It may show changes again; and unless it calls a function
again that failed, it moves on whatever becomes of it.
"""

from dataclasses import dataclass

from shared.storage.documents import Document
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
        start, self.position = self.position, len(self.store.changes)
        if start == self.position:
            return []
        skips = self.weather.climate.feed_skips
        if self.weather.strikes(skips, "feed skips", self.region, now()):
            return []
        return self.documents(start)

    def documents(self, start: int) -> list[Document]:
        """What changed from a position on, as it is now; perhaps some more that was shown."""
        repeats = self.weather.climate.feed_repeats
        if self.weather.strikes(repeats, "feed repeats", self.region, now()):
            start = max(0, start - REPEATED)
        changed = dict.fromkeys(self.store.changes[start:])
        documents = [self.store.partitions[session].get(name) for session, name in changed]
        return [document for document in documents if document is not None]


@dataclass(frozen=True, slots=True)
class Shown:
    """Changes, and where the feed goes on after them."""

    documents: list[Document]
    upto: int


@dataclass
class SagaFeed(Feed):
    """The feed of a function that the platform calls again until it succeeds: nothing is lost.

    Whoever follows it moves it on.
    """

    def look(self) -> Shown:
        """What changed since whoever follows was done with something."""
        upto = len(self.store.changes)
        if self.position == upto:
            return Shown([], upto)
        return Shown(self.documents(self.position), upto)
