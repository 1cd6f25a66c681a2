"""The heartbeats: when each feed and timer of a region was last heard, and each other region.

An instance sees only itself, so what is asked is kept where all see it: beside the leases of the
change feed. The feed's own leases say when it was last followed; a timer leaves a record there.
A plan that scales to zero runs no feed while nothing is written, and then nobody renews its leases.
So a feed is silent only where something was written that it has not seen. That there is such a
thing, now and then and at each start, is what the beacon is for.
A region that is lost can tell nobody, so its peers tell by the same documents.
Only the trigger of the queue is told about by its own worker: it has no reason to run while
nobody sends, so what counts is whether the deliveries that it has in hand come to an end.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from shared.domain.errors import LockstepError
from shared.domain.measures import POSTPONED, SILENCE_SECONDS, SILENCES
from shared.ports import StoreClock, Telemetry
from shared.storage.journal import Journal

log = logging.getLogger("lockstep.heartbeats")

SWEEP, COMPACT, BEACON, SAGAS = "sweep", "compact", "beacon", "sagas"
# The sweep runs more often than it has to be heard: once a minute, by its default schedule.
NOTED_SECONDS_MIN = 50.0
# How often the feeds are given something to see. What they do for it wakes them where they stand at
# zero, so that more often would be nearly always.
BEACON_SECONDS = 300.0
# A feed that stands at zero has to be started first; one that runs renews its lease every 5 s. The
# sweep runs every 15 s and compaction every 10 min by default. Longer silence than this is worth a
# look, a restart of the app among its reasons.
FEED_SECONDS_MAX, SWEEP_SECONDS_MAX, COMPACT_SECONDS_MAX = 120.0, 120.0, 1_500.0
# What a feed starts has to be started, too, once it has seen the beacon. A beacon is recorded after
# it was written, which in a store that is slow takes longer than the saga that it begins.
SAGAS_SECONDS_MAX, BEACON_WRITTEN_SECONDS_MAX = 180.0, 30.0
# Of a region at work its sweep is heard once a minute.
REGION_SECONDS_MAX, DAY_SECONDS = 120.0, 86_400.0
# A failing delivery is paused for two minutes, and after five the host ends the worker.
RECEIVE_SECONDS_MAX = 240.0
# Of so many messages it is known that they come again because of an exception.
RAISED_MAX = 10_000


class Leases(Protocol):
    """The container of the change feed's leases; all raise LockstepError."""

    async def ages(self) -> Mapping[str, float]:
        """Return for each document how many seconds ago it was written, by the store's clock."""

    async def record(self, document_id: str, text: str | None = None) -> None:
        """Write a document of this id, and nothing but a text into it."""

    async def read(self, document_id: str, clock: StoreClock | None = None) -> str | None:
        """Return the text of a document, some seconds old perhaps; None where there is none.

        `clock` is set to the time.
        """


@dataclass(frozen=True, slots=True)
class Age:
    """The age of what was heard last; None means never.

    `asked` is how long ago something was written for it to see, infinite where nothing was; None
    says that it has to be heard all the time.
    """

    seconds: float | None
    seconds_max: float
    asked: float | None = None

    @property
    def heard(self) -> float:
        return inf if self.seconds is None else self.seconds

    @property
    def is_awaited(self) -> bool:
        """Return whether it has not seen yet what was written for it."""
        return self.asked is not None and self.heard > self.asked

    @property
    def is_silent(self) -> bool:
        if self.asked is not None:
            return self.is_awaited and self.asked > self.seconds_max
        return self.heard > self.seconds_max


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


@dataclass(frozen=True, slots=True)
class Heard:
    """The ages of each feed and timer of this region, and of each other region as a whole."""

    here: Mapping[str, Age]
    regions: Mapping[str, Age]

    @property
    def seconds(self) -> float | None:
        """Return how long ago what was heard least recently was; None: one of them never was.

        What need not be heard every three minutes is not looked at.
        """
        often = (age.heard for age in self.here.values() if age.seconds_max <= SAGAS_SECONDS_MAX)
        oldest = max(often)
        return None if oldest == inf else oldest


class Heartbeats:
    """The heartbeats of one region's feeds, timers and worker, and those of the other regions."""

    def __init__(
        self,
        leases: Leases,
        region: str,
        regions: Iterable[str],
        in_hand: InHand | None = None,
        telemetry: Telemetry | None = None,
        *,
        journal: Journal,
        ledgers: Journal | None = None,
        has_sagas: bool,
    ) -> None:
        # By the lease prefix of each feed, its name; and the journals that they follow.
        self.feeds = {region: "recover"}
        if has_sagas:
            self.feeds[f"sagas-{region}"] = "begin_sagas"
        self.has_sagas = has_sagas
        self.journals = [journal]
        if ledgers is not None:
            self.feeds[f"ledgers-{region}"] = "recover_ledgers"
            self.journals.append(ledgers)
        self.lit_at: float | None = None
        self.leases = leases
        self.region = region
        self.others = [name for name in regions if name != region]
        self.in_hand = in_hand or InHand()
        self.telemetry = telemetry
        self.noted_at: float | None = None
        # Since when each record of this process was taken; None while none is.
        self.writes_since: float | None = None
        # The regions that the log calls silent, and when each was heard last by this clock.
        self.silent: dict[str, float] = {}
        # The lease prefixes of every region (recover.py and sagas.py in functions/triggers) and the
        # beginnings of its records: the name of one region may begin with the name of another.
        self.prefixes = {
            prefix: name
            for name in (region, *self.others)
            for prefix in (name, f"sagas-{name}", f"ledgers-{name}", f"$timer-{name}-")
        }

    def is_due(self) -> bool:
        """Return whether this instance's sweep has to be heard again; the first has, at once."""
        now = time.monotonic()
        if self.noted_at is not None and now < self.noted_at + NOTED_SECONDS_MIN:
            return False
        if self.noted_at is not None and now > self.noted_at + REGION_SECONDS_MAX:
            # Whether the account took writes meanwhile was not seen here.
            self.writes_since = None
        self.noted_at = now
        return True

    async def note(self, timer: str, text: str | None = None) -> None:
        """Record that a timer ran, and a text; what cannot be recorded now is at its next run."""
        try:
            await self.leases.record(record_id(self.region, timer), text)
        except LockstepError as error:
            # An alert waits for this measure: it is the write that an idle region makes.
            log.warning("the run of %s could not be recorded: %s", timer, error)
            if self.telemetry is not None:
                self.telemetry.add(POSTPONED)
            self.writes_since = None
        else:
            if self.writes_since is None:
                self.writes_since = time.monotonic()

    async def ages(self) -> Heard:
        """Return how long ago everything was heard. Raises as the store does."""
        found = await self.leases.ages()
        newest: dict[str, float] = {}
        for document, seconds in found.items():
            fitting = [prefix for prefix in self.prefixes if document.startswith(prefix)]
            if fitting:
                prefix = max(fitting, key=len)
                # A timer is its document, a feed its prefix, and both speak for their region.
                for name in (document, prefix, f"of {self.prefixes[prefix]}"):
                    newest[name] = min(seconds, newest.get(name, seconds))
        asked = newest.get(record_id(self.region, BEACON), inf)
        here = {
            SWEEP: Age(newest.get(record_id(self.region, SWEEP)), SWEEP_SECONDS_MAX),
            COMPACT: Age(newest.get(record_id(self.region, COMPACT)), COMPACT_SECONDS_MAX),
            "receive": self.in_hand.age(),
        } | {
            name: Age(newest.get(prefix), FEED_SECONDS_MAX, asked)
            for prefix, name in self.feeds.items()
        }
        if self.has_sagas:
            due = asked + BEACON_WRITTEN_SECONDS_MAX
            here[SAGAS] = Age(newest.get(record_id(self.region, SAGAS)), SAGAS_SECONDS_MAX, due)
        regions = {name: Age(newest.get(f"of {name}"), REGION_SECONDS_MAX) for name in self.others}
        return Heard(here, regions)

    async def report(self) -> None:
        """Log and measure what is silent; alerts wait for the measures.

        A process lights a beacon at its start, and later where every feed has seen the last one.
        """
        try:
            heard = await self.ages()
        except LockstepError as error:
            log.warning("when feeds and timers were heard is not known: %s", error)
            return
        for name, age in heard.here.items():
            if age.is_silent and name != COMPACT:
                log.error("nothing was heard of %s for %g s or more", name, age.seconds_max)
                if self.telemetry is not None:
                    self.telemetry.add(SILENCES, of=name)
        for name, age in heard.regions.items():
            self.report_region(name, age)
        # What was not seen yet goes on waiting: a newer one would hide for how long it does. But
        # each start lights one, by which a deployment shows that every feed of it works.
        is_seen = not any(age.is_awaited for age in heard.here.values())
        if self.lit_at is None or (is_seen and time.monotonic() >= self.lit_at + BEACON_SECONDS):
            await self.light_beacons()

    async def light_beacons(self) -> None:
        """Give each feed something to see, and record that it has; a later run tries again."""
        try:
            for journal in self.journals:
                await journal.light_beacon(self.region)
        except LockstepError as error:
            log.warning("the beacon could not be recorded: %s", error)
        else:
            self.lit_at = time.monotonic()
            # Afterwards: what was not written yet is not waited for.
            await self.note(BEACON)

    def silences(self) -> dict[str, float]:
        """Return for how many seconds nothing was heard of each region that is silent."""
        now = time.monotonic()
        return {name: now - heard_at for name, heard_at in self.silent.items()}

    def report_region(self, name: str, age: Age) -> None:
        """Log once that nothing is heard of another region, and once that it is heard again.

        While the journal's account takes no writes every region is silent, so nothing is said
        before each had the time to be heard after this one was.
        """
        since = self.writes_since
        if since is None or time.monotonic() - since <= age.seconds_max:
            return
        if self.telemetry is not None and age.seconds is not None:
            self.telemetry.add(SILENCE_SECONDS, age.seconds, of=name)
        if age.is_silent and name not in self.silent:
            self.silent[name] = time.monotonic() - min(age.heard, DAY_SECONDS)
            log.error("nothing was heard of region %s %s", name, describe_age(age))
        elif not age.is_silent and name in self.silent:
            self.silent.pop(name)
            log.warning("region %s is heard again", name)


def record_id(region: str, timer: str) -> str:
    # No lease has this beginning: a region is named by letters and digits.
    return f"$timer-{region}-{timer}"


def describe_age(age: Age) -> str:
    """Return in words for how long nothing was heard."""
    return "ever" if age.seconds is None else f"for {age.seconds:.0f} s"
