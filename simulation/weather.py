"""Which misfortunes happen, how often, and until when."""

from dataclasses import dataclass
from enum import StrEnum

from simulation.chance import Chance


class Misfortune(StrEnum):
    """How one call to the outside can go wrong."""

    NONE = "none"
    REFUSED = "refused"  # not applied, and said so
    LOST = "lost"  # not applied, no answer
    UNANSWERED = "unanswered"  # applied, no answer
    DELAYED = "delayed"  # no answer; applied later, if it still can be
    CRASH_BEFORE = "crash before"  # the process dies before the call
    CRASH_AFTER = "crash after"  # the process dies after the call was applied
    PAUSE_BEFORE = "pause before"  # the process stands still past a lease, then calls
    PAUSE_AFTER = "pause after"  # the call is applied, the process stands still past a lease


ON_READS = (
    Misfortune.REFUSED,
    Misfortune.CRASH_BEFORE,
    Misfortune.PAUSE_BEFORE,
    Misfortune.PAUSE_AFTER,
)
ON_WRITES = tuple(m for m in Misfortune if m is not Misfortune.NONE)


@dataclass(frozen=True, slots=True)
class Climate:
    """Probabilities per event, and the virtual second after which nothing goes wrong any more."""

    calls: float = 0.02
    stale_reads: float = 0.1
    lock_losses: float = 0.01
    lost_settlements: float = 0.02
    duplicates: float = 0.03
    reorders: float = 0.02
    outages: float = 0.5
    fair_after: float = 120.0


FAIR = Climate(0, 0, 0, 0, 0, 0, 0, 0)


@dataclass
class Weather:
    """The climate, and the time of the world it rules."""

    climate: Climate
    chance: Chance

    def on_call(self, name: str, now: float, *, writes: bool) -> Misfortune:
        """What happens to one call."""
        if not self.strikes(self.climate.calls, name, now):
            return Misfortune.NONE
        found = self.chance.pick(ON_WRITES if writes else ON_READS)
        self.chance.diary[-1] += f": {found.value} at {now:.3f} s"
        return found

    def strikes(self, probability: float, what: str, now: float) -> bool:
        """Whether something goes wrong now."""
        return now < self.climate.fair_after and self.chance.strikes(probability, what)
