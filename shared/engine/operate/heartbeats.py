"""The heartbeats of a region: when each feed and timer was last heard, on any instance.

An instance sees only itself, so what is asked is kept where all see it: beside the leases of the
change feed. The feed's own leases say when it was last followed; a timer leaves a record there.
Only the trigger of the queue is told about by its own worker: it has no reason to run while
nobody sends, so what counts is whether the deliveries that it has in hand come to an end.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from shared.domain.errors import LockstepError

log = logging.getLogger("lockstep.heartbeats")

SWEEP, COMPACT = "sweep", "compact"
# The sweep runs more often than it has to be heard: once a minute, by its default schedule.
NOTED_SECONDS_MIN = 50.0
# A lease is renewed every 5 s; the sweep runs every 15 s and compaction every 10 min by default.
# Longer silence than this is worth a look, a restart of the app among its reasons.
FEED_SECONDS_MAX, SWEEP_SECONDS_MAX, COMPACT_SECONDS_MAX = 60.0, 120.0, 1_500.0
# A failing delivery is paused for two minutes, and after five the host ends the worker.
RECEIVE_SECONDS_MAX = 240.0
# Of so many messages it is known that they come again because of an exception.
RAISED_MAX = 10_000


class Leases(Protocol):
    """The container of the change feed's leases; both raise LockstepError."""

    async def ages(self) -> Mapping[str, float]:
        """Return for each document how many seconds ago it was written, by the store's clock."""

    async def record(self, document_id: str) -> None:
        """Write a document of this id, and nothing else into it."""


@dataclass(frozen=True, slots=True)
class Age:
    """The age of what was heard last; None means never."""

    seconds: float | None
    seconds_max: float

    @property
    def is_silent(self) -> bool:
        return self.seconds is None or self.seconds > self.seconds_max


@dataclass(slots=True)
class InHand:
    """The deliveries that a worker has in hand: when each began, and when one ended last.

    `raised` counts by the broker's number how often a message's delivery ended here by an
    exception, the newest last: so often it comes again without having ended a worker.
    """

    began: dict[int, float] = field(default_factory=dict)
    ended_at: float = 0.0
    raised: dict[int, int] = field(default_factory=dict)

    def note_raised(self, sequence: int) -> None:
        """Count an exception; of very many messages the oldest are forgotten."""
        self.raised[sequence] = self.raised.pop(sequence, 0) + 1
        if len(self.raised) > RAISED_MAX:
            del self.raised[next(iter(self.raised))]

    def age(self) -> Age:
        """Return for how long none has ended, though there are some."""
        now = time.monotonic()
        since = max(self.ended_at, min(self.began.values(), default=now))
        return Age(now - since if self.began else 0.0, RECEIVE_SECONDS_MAX)


class Heartbeats:
    """The heartbeats of the feeds and timers of one region, and of its own worker's deliveries."""

    def __init__(
        self, leases: Leases, region: str, regions: Iterable[str], in_hand: InHand | None = None
    ) -> None:
        self.leases = leases
        self.region = region
        self.in_hand = in_hand or InHand()
        self.noted_at: float | None = None
        # The lease prefixes of every region (recover.py and sagas.py in functions/triggers): the
        # name of one may begin with the name of another.
        self.prefixes = [prefix for name in regions for prefix in (name, f"sagas-{name}")]

    def is_due(self) -> bool:
        """Return whether this instance's sweep has to be heard again; the first has, at once."""
        now = time.monotonic()
        if self.noted_at is not None and now < self.noted_at + NOTED_SECONDS_MIN:
            return False
        self.noted_at = now
        return True

    async def note(self, timer: str) -> None:
        """Record that a timer ran; what cannot be recorded now is at its next run."""
        try:
            await self.leases.record(self.record_id(timer))
        except LockstepError as error:
            log.warning("the run of %s could not be recorded: %s", timer, error)

    async def ages(self) -> dict[str, Age]:
        """Return how long ago each feed and timer was heard. Raises as the store does."""
        found = await self.leases.ages()
        newest: dict[str, float] = {}
        for document, seconds in found.items():
            fitting = [prefix for prefix in self.prefixes if document.startswith(prefix)]
            name = max(fitting, key=len) if fitting else document
            newest[name] = min(seconds, newest.get(name, seconds))
        return {
            "recover": Age(newest.get(self.region), FEED_SECONDS_MAX),
            "begin_sagas": Age(newest.get(f"sagas-{self.region}"), FEED_SECONDS_MAX),
            SWEEP: Age(newest.get(self.record_id(SWEEP)), SWEEP_SECONDS_MAX),
            COMPACT: Age(newest.get(self.record_id(COMPACT)), COMPACT_SECONDS_MAX),
            "receive": self.in_hand.age(),
        }

    async def report(self) -> None:
        """Log what is silent; an alert waits for these words."""
        try:
            ages = await self.ages()
        except LockstepError as error:
            log.warning("when feeds and timers were heard is not known: %s", error)
            return
        for name, age in ages.items():
            if age.is_silent and name != COMPACT:
                log.error("nothing was heard of %s for %g s or more", name, age.seconds_max)

    def record_id(self, timer: str) -> str:
        # No lease has this beginning: a region is named by letters and digits.
        return f"$timer-{self.region}-{timer}"
