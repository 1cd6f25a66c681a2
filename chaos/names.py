"""What the processes of a run call the same: message types, queues, settings."""

from signal import SIGUSR1

GROUP = "chaos"
PURE = "flight.status"
EFFECTFUL = "flight.announced"
CURSED = "flight.cursed"
UNKNOWN = "flight.unheard-of"
SEEN = "chaos.seen"
# Messages that are to end as faults, by their type.
POISONED = frozenset({CURSED, UNKNOWN})
EFFECTS_QUEUE = "chaos-effects"
ERROR_QUEUE = "lockstep-errors"
RUNS_SETTING = "CHAOS_RUNS"
# Tells a sender that was calm so far to be as fast as it may.
HURRY = SIGUSR1
