"""The sort of world that a seed gets: how many, how large, and with which of the settings."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from unittest.mock import patch

from proof.simulation.world.faults import SeededRandom
from shared.domain import next_entry, producer
from shared.engine.dispatch import deliver
from shared.engine.operate import compact
from shared.engine.worker import Policy, WaitLimits
from shared.storage import documents, entries, limits

type Limit = tuple[ModuleType, str, int]

SMALL: tuple[Limit, ...] = (
    (entries, "MILESTONE_EVERY", 5),
    # Shorter than a pause, so that a slow attempt finds its stages gone.
    (documents, "STAGED_SECONDS", 20),
    (compact, "REMOVED_AT_ONCE", 4),
    (limits, "INLINE_BYTES_MAX", 1_600),
    (limits, "STAGED_BYTES_MAX", 1_400),
    # Two or three messages fill a batch.
    (deliver, "BATCH_BYTES_MAX", 2_400),
    (producer, "REMEMBERED_MAX", 4),
    # Larger states lie beside their entries, and some of them are not written again.
    (next_entry, "STATE_INLINE_BYTES_MAX", 120),
    (next_entry, "STATE_KEPT_ENTRIES", 4),
    # Of so small a state every change is a large part.
    (next_entry, "CHANGE_PART", 1),
)

# With two senders the cursor of one is always evicted.
FEW_CURSORS: Limit = (next_entry, "CURSORS_MAX", 1)


@contextmanager
def small_limits(*, wanted: bool, few_cursors: bool = False) -> Iterator[None]:
    limits = (*(SMALL if wanted else ()), *([FEW_CURSORS] if few_cursors else ()))
    with ExitStack() as changes:
        for module, name, value in limits:
            changes.enter_context(patch.object(module, name, value))
        yield


# Longer than any backlog of a run without faults.
LONG_DELAY_SECONDS = 40.0
COPIES_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Variant:
    """`small_limits` makes the engine stage outputs and compact journals within a short run.

    `calls` is how many messages of a session a host hands over at once.
    `write_seconds` is how far away the store is; a read takes half as long as a write.
    With `few_cursors` it evicts cursors of sessions that have more than one sender.
    """

    sessions: int = 2
    messages: int = 6
    hosts: int = 2
    calls: int = 1
    delay_seconds: float = 3.0
    affinity: bool = False
    acknowledge_seconds: float = 1.0
    small_limits: bool = False
    write_seconds: float = 0.0
    few_cursors: bool = False

    @property
    def policy(self) -> Policy:
        """The settings of every function app; times are short, so that much happens in a run."""
        return Policy(
            waits=WaitLimits(gap_seconds=3.0, poll_seconds=0.5),
            lag_seconds=2.0,
            acknowledge_seconds=self.acknowledge_seconds,
            lease_seconds=6.0,
            retention_seconds=15.0 if self.small_limits else 7 * 24 * 3600.0,
            # Longer than any copy of a run is under way.
            copies_seconds=COPIES_SECONDS if self.small_limits else 14 * 24 * 3600.0,
        )


def variant_of(rng: SeededRandom) -> Variant:
    draw = rng.stream("variant")
    is_long = draw.random() < 0.12
    return Variant(
        sessions=1 if is_long else draw.choice((1, 1, 2, 2, 3)),
        messages=draw.randint(9, 12) if is_long else draw.randint(1, 4),
        hosts=draw.randint(1, 2),
        calls=draw.choice((1, 1, 4, 4)),
        # Both regions see a message at once, or one after the other, or long after it is done.
        delay_seconds=draw.choice((0.0, 3.0, 3.0, 3.0, LONG_DELAY_SECONDS)),
        affinity=draw.random() < 0.25,
        acknowledge_seconds=draw.choice((0.0, 1.0)),
        small_limits=is_long or draw.random() < 0.2,
        write_seconds=draw.choice((0.0, 0.0, 0.0, 0.13)),
        few_cursors=draw.random() < 0.5,
    )
