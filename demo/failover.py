"""What the outage looked like from the journal: who did the work before, during and after it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from demo.history import Entry

SECONDARY_SHARE_MIN = 0.2


class Phase(StrEnum):
    """A stretch of the run, seen from the primary region."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Outage:
    """When the primary was killed, and from when it was let back, in seconds since the epoch."""

    killed_at: float
    recovered_at: float

    def phase(self, at: int) -> Phase:
        """Return the phase of an effect; the store's time is cut off to whole seconds."""
        if at <= self.killed_at:
            return Phase.BEFORE
        return Phase.DURING if at <= self.recovered_at else Phase.AFTER


@dataclass(frozen=True, slots=True)
class Failover:
    """Effects by region and phase; `take_over_seconds` is None when nobody took over.

    Take-over runs from the kill to the first effect by the other region and is exact to a second,
    because that is how the journal dates its entries.
    """

    primary: str
    secondary: str
    effects: Mapping[tuple[str, Phase], int]
    take_over_seconds: float | None

    @property
    def secondary_share(self) -> float:
        """Return the part of all effects that the secondary region made."""
        total = sum(self.effects.values())
        return self._made_by(self.secondary) / total if total else 0.0

    def shortfalls(self) -> tuple[str, ...]:
        """Name what keeps this run from showing a failover in mid-flow."""
        found = []
        if not self.effects[self.primary, Phase.BEFORE]:
            found.append(f"{self.primary} made no effect before it was killed")
        if self.secondary_share < SECONDARY_SHARE_MIN:
            share, least = f"{self.secondary_share:.0%}", f"{SECONDARY_SHARE_MIN:.0%}"
            found.append(f"{self.secondary} made {share} of the effects, less than {least}")
        if not self.effects[self.primary, Phase.AFTER]:
            found.append(f"{self.primary} made no effect after it came back")
        return tuple(found)

    def _made_by(self, region: str) -> int:
        return sum(self.effects[region, phase] for phase in Phase)


def failover(effects: Iterable[Entry], outage: Outage, *, primary: str, secondary: str) -> Failover:
    """Count the effects of completed entries by region and phase, and time the take-over."""
    entries = list(effects)
    made: Counter[tuple[str, Phase]] = Counter()
    for entry in entries:
        made[entry.region, outage.phase(entry.at)] += len(entry.covers)
    took_over = [
        entry.at - outage.killed_at
        for entry in entries
        if entry.region == secondary and outage.phase(entry.at) is Phase.DURING
    ]
    return Failover(
        primary=primary,
        secondary=secondary,
        effects={key: made[key] for key in product((primary, secondary), Phase)},
        take_over_seconds=min(took_over, default=None),
    )
