"""Faults that are injected into a run: what can go wrong, how often, and until when.

Everything that is left to chance follows from one seed, so the same seed gives the same run.
"""

import hashlib
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Mishap:
    """Something that went wrong: which one in the order of happening, what, where and when."""

    number: int
    kind: str
    where: str
    at: float

    def __str__(self) -> str:
        """One line of the diary."""
        return f"{self.number}: {self.at:.3f} s {self.where}: {self.kind}"


@dataclass
class Chance:
    """A seeded source of delays and decisions, and the diary of what was decided.

    `allowed` are the misfortunes that may happen, by number; None for all.
    """

    seed: int
    allowed: Collection[int] | None = None
    happened: int = 0
    diary: list[Mishap] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = self.stream("story")
        self.trace = hashlib.sha256()

    def stream(self, name: str) -> random.Random:
        """A source of its own, so that what is drawn from it changes nothing elsewhere."""
        return random.Random(f"{self.seed} {name}")  # noqa: S311 - must repeat, not surprise

    def delay(self, longest: float) -> float:
        """A time between nothing and the longest."""
        return self.random.random() * longest

    def pick[T](self, choices: Sequence[T]) -> T:
        """One of several, all as likely."""
        return choices[int(self.random.random() * len(choices))]

    def strikes(self, probability: float) -> int | None:
        """The number of a misfortune that happens now, by which it can be forbidden; else None."""
        if self.random.random() >= probability:
            return None
        number = self.happened
        self.happened += 1
        return number if self.allowed is None or number in self.allowed else None

    def note(self, event: str) -> None:
        """Add an event to the trace, by which two runs are compared."""
        self.trace.update(event.encode() + b"\n")


class Misfortune(StrEnum):
    """How one call to the outside can go wrong."""

    NONE = "none"
    REFUSED = "refused (503)"  # not applied, and said so
    THROTTLED = "throttled (429)"  # not applied; come again later
    RETRY_WITH = "concurrent (449)"  # not applied; the store asks to try again
    LOST = "lost (408)"  # not applied, no answer
    UNANSWERED = "unanswered (408)"  # applied, no answer
    DELAYED = "applied late"  # no answer; applied later, if it still can be
    ECHOED = "sent twice by the client"  # applied, tried again, answered for the second try
    CRASH_BEFORE = "crash before"  # the process dies before the call
    CRASH_AFTER = "crash after"  # the process dies after the call was applied
    SLOW_BEFORE = "slow request"  # the call is applied when a lease may be over
    SLOW_AFTER = "slow answer"  # the call is applied, its answer comes when a lease may be over
    FROZEN_BEFORE = "frozen before"  # the whole process stands still past a lease, then calls
    FROZEN_AFTER = "frozen after"  # the call is applied, then the whole process stands still


ON_READS = (
    Misfortune.REFUSED,
    Misfortune.THROTTLED,
    Misfortune.CRASH_BEFORE,
    Misfortune.SLOW_BEFORE,
    Misfortune.SLOW_AFTER,
    Misfortune.FROZEN_BEFORE,
    Misfortune.FROZEN_AFTER,
)
ON_WRITES = tuple(m for m in Misfortune if m is not Misfortune.NONE)


@dataclass(frozen=True, slots=True)
class Climate:
    """Probabilities per occasion, and the virtual second after which nothing goes wrong any more.

    `calls` is per call to the store or the bus; `turns`, `activities` and `events` are per
    occasion for a task hub to go wrong. `outages` per namespace, `failovers` of the store's write
    region, `kills` per host, `hub_outages` per task hub and `hub_losses` of one of them are per
    run. `skew_seconds` is how wrong clocks may be.
    """

    name: str
    calls: float = 0.0
    stale_reads: float = 0.0
    lock_losses: float = 0.0
    lost_settlements: float = 0.0
    duplicates: float = 0.0
    reorders: float = 0.0
    feed_repeats: float = 0.0
    feed_skips: float = 0.0
    outages: float = 0.0
    failovers: float = 0.0
    kills: float = 0.0
    turns: float = 0.0
    activities: float = 0.0
    events: float = 0.0
    hub_outages: float = 0.0
    hub_losses: float = 0.0
    skew_seconds: float = 0.0
    fair_after: float = 0.0

    @property
    def is_fair(self) -> bool:
        """Whether nothing ever goes wrong."""
        return self.fair_after == 0


FAIR = Climate("fair")
MILD = Climate(
    "mild",
    calls=0.006,
    stale_reads=0.05,
    lock_losses=0.01,
    lost_settlements=0.01,
    duplicates=0.02,
    reorders=0.02,
    feed_repeats=0.05,
    feed_skips=0.05,
    outages=0.2,
    failovers=0.1,
    kills=0.1,
    turns=0.01,
    activities=0.01,
    events=0.02,
    hub_outages=0.1,
    hub_losses=0.05,
    skew_seconds=60.0,
    fair_after=40.0,
)
ROUGH = Climate(
    "rough",
    calls=0.03,
    stale_reads=0.2,
    lock_losses=0.05,
    lost_settlements=0.05,
    duplicates=0.05,
    reorders=0.08,
    feed_repeats=0.2,
    feed_skips=0.3,
    outages=0.5,
    failovers=0.4,
    kills=0.4,
    turns=0.05,
    activities=0.04,
    events=0.08,
    hub_outages=0.4,
    hub_losses=0.15,
    skew_seconds=1_200.0,
    fair_after=50.0,
)
CLIMATES = {climate.name: climate for climate in (FAIR, MILD, ROUGH)}


@dataclass
class Weather:
    """The climate, and the misfortunes it brought so far."""

    climate: Climate
    chance: Chance

    def on_call(self, where: str, now: float, *, writes: bool) -> Misfortune:
        """What happens to one call."""
        if now >= self.climate.fair_after:
            return Misfortune.NONE
        number = self.chance.strikes(self.climate.calls)
        if number is None:
            return Misfortune.NONE
        found = self.chance.pick(ON_WRITES if writes else ON_READS)
        self.chance.diary.append(Mishap(number, found.value, where, now))
        return found

    def strikes(self, probability: float, kind: str, where: str, now: float) -> bool:
        """Whether something goes wrong now."""
        if now >= self.climate.fair_after:
            return False
        number = self.chance.strikes(probability)
        if number is None:
            return False
        self.chance.diary.append(Mishap(number, kind, where, now))
        return True

    def interval(self, probability: float, kind: str, where: str) -> tuple[float, float] | None:
        """A time during which something is out of reach; it is over when the weather is fair."""
        begin = self.chance.delay(self.climate.fair_after * 0.7)
        seconds = self.chance.delay(self.climate.fair_after * 0.5)
        if self.climate.is_fair or not self.strikes(probability, kind, where, 0.0):
            return None
        return begin, min(begin + seconds, self.climate.fair_after)
