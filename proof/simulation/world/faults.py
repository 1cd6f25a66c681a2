"""Faults that are injected into a run: what can go wrong, how often, and until when.

Everything random follows from one seed, so the same seed gives the same run.
"""

import hashlib
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """Something that went wrong in a run; `number` counts what went wrong before it."""

    number: int
    kind: str
    where: str
    at: float

    def __str__(self) -> str:
        return f"{self.number}: {self.at:.3f} s {self.where}: {self.kind}"


class SeededRandom:
    """A seeded source of delays and faults; only `allowed` faults happen, None allows all."""

    def __init__(self, seed: int, allowed: Collection[int] | None = None) -> None:
        self.seed = seed
        self.allowed = allowed
        self.faults_drawn = 0
        self.trace = hashlib.sha256()
        # The names of streams are part of every seed: another name makes all runs other ones.
        self.random = self.stream("story")

    def stream(self, name: str) -> random.Random:
        """Return a source of its own, so that what is drawn from it changes nothing elsewhere."""
        return random.Random(f"{self.seed} {name}")  # noqa: S311 - must repeat, not surprise

    def delay(self, longest: float) -> float:
        return self.random.random() * longest

    def pick[T](self, choices: Sequence[T]) -> T:
        return choices[int(self.random.random() * len(choices))]

    def draw_fault(self, probability: float) -> int | None:
        """Draw the number of a fault that happens now; None if none does, or it is not allowed."""
        if self.random.random() >= probability:
            return None
        number = self.faults_drawn
        self.faults_drawn += 1
        return number if self.allowed is None or number in self.allowed else None

    def trace_event(self, event: str) -> None:
        """Add an event to the trace, by which two runs are compared."""
        self.trace.update(event.encode() + b"\n")


class NetworkFault(StrEnum):
    NONE = "none"
    REFUSED = "refused (503)"  # not applied, and said so
    THROTTLED = "throttled (429)"  # not applied; try again later
    RETRY_WITH = "concurrent (449)"  # not applied; the store asks to try again
    LOST = "lost (408)"  # not applied, no answer
    UNANSWERED = "unanswered (408)"  # applied, no answer
    APPLIED_LATE = "applied late"  # no answer; applied later, if it still can be
    SENT_TWICE = "sent twice by the client"  # applied, tried again, answered for the second try
    CRASH_BEFORE = "crash before"  # the process dies before the call
    CRASH_AFTER = "crash after"  # the process dies after the call was applied
    SLOW_BEFORE = "slow request"  # the call is applied when a lease may be over
    SLOW_AFTER = "slow answer"  # the call is applied, its answer comes when a lease may be over
    FROZEN_BEFORE = "frozen before"  # the whole process stands still past a lease, then calls
    FROZEN_AFTER = "frozen after"  # the call is applied, then the whole process stands still


ON_READS = (
    NetworkFault.REFUSED,
    NetworkFault.THROTTLED,
    NetworkFault.CRASH_BEFORE,
    NetworkFault.SLOW_BEFORE,
    NetworkFault.SLOW_AFTER,
    NetworkFault.FROZEN_BEFORE,
    NetworkFault.FROZEN_AFTER,
)
ON_WRITES = tuple(m for m in NetworkFault if m is not NetworkFault.NONE)


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """Probabilities per occasion, and the virtual second after which nothing goes wrong any more.

    `calls` is per call to the store or the bus; `turns`, `activities` and `events` are per
    occasion for a task hub to go wrong. `outages` and `silences` per namespace, `refusals` of one
    queue per namespace, `lost_rights` of a region at the store, `failovers` of the store's write
    region, `kills` per host, `hub_outages` per task hub and `hub_losses` of one of them are per
    run. `skew_seconds` is how wrong clocks may be.
    """

    name: str = "rough"
    calls: float = 0.03
    stale_reads: float = 0.2
    lock_losses: float = 0.05
    lost_settlements: float = 0.05
    duplicates: float = 0.05
    reorders: float = 0.08
    feed_repeats: float = 0.2
    feed_skips: float = 0.3
    outages: float = 0.5
    silences: float = 0.3
    refusals: float = 0.3
    lost_rights: float = 0.15
    failovers: float = 0.4
    kills: float = 0.4
    turns: float = 0.05
    activities: float = 0.04
    events: float = 0.08
    hub_outages: float = 0.4
    hub_losses: float = 0.15
    skew_seconds: float = 1_200.0
    faults_end_at: float = 50.0

    @property
    def is_fault_free(self) -> bool:
        return self.faults_end_at == 0


ROUGH = FaultProfile()
FAIR = FaultProfile("fair", *[0.0] * (len(fields(FaultProfile)) - 1))
PROFILES = {profile.name: profile for profile in (FAIR, ROUGH)}


class FaultInjector:
    def __init__(self, profile: FaultProfile, rng: SeededRandom) -> None:
        self.profile = profile
        self.rng = rng
        self.faults: list[InjectedFault] = []

    def draw_network_fault(self, where: str, now: float, *, writes: bool) -> NetworkFault:
        ends_at = self.profile.faults_end_at
        if now >= ends_at or (number := self.rng.draw_fault(self.profile.calls)) is None:
            return NetworkFault.NONE
        found = self.rng.pick(ON_WRITES if writes else ON_READS)
        self.faults.append(InjectedFault(number, found.value, where, now))
        return found

    def inject(self, probability: float, kind: str, where: str, now: float) -> bool:
        ends_at = self.profile.faults_end_at
        if now >= ends_at or (number := self.rng.draw_fault(probability)) is None:
            return False
        self.faults.append(InjectedFault(number, kind, where, now))
        return True

    def draw_outage(self, probability: float, kind: str, where: str) -> tuple[float, float] | None:
        """Draw a time during which something is unavailable; it ends before the faults do."""
        begin = self.rng.delay(self.profile.faults_end_at * 0.7)
        seconds = self.rng.delay(self.profile.faults_end_at * 0.5)
        if self.profile.is_fault_free or not self.inject(probability, kind, where, 0.0):
            return None
        return begin, min(begin + seconds, self.profile.faults_end_at)
