"""The patience of a run: it waits as long as anything moves, however slowly.

How fast it moves says something of the machine and nothing of the promises.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from local.testing.cloud import CloudProcess
from proof.demo.checker import HeldMessage

# Longer than anything waits for by itself: a lock, a lease, the next sweep, a Java that starts.
STALLED_SECONDS = 180.0
# Each look at the journal costs it some request units.
LOOK_SECONDS = 3.0


class RunStalled(Exception):
    """A run in which nothing moved for STALLED_SECONDS; the message says what it waited for."""


@dataclass(slots=True)
class Movement:
    """Tells what is slow from what stands still, by whatever a run looks at again and again."""

    clock: Callable[[], float] = time.monotonic
    seen: dict[str, object] = field(default_factory=dict)
    moved_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.moved_at = self.clock()

    def see(self, what: str, value: object) -> None:
        """Note how something is now; a value that differs from its last one is a movement."""
        if what not in self.seen or self.seen[what] != value:
            self.seen[what] = value
            self.moved_at = self.clock()

    def require(self, awaited: str) -> None:
        """Raise RunStalled when nothing moved for STALLED_SECONDS."""
        if self.clock() - self.moved_at > STALLED_SECONDS:
            raise RunStalled(f"nothing moved for {STALLED_SECONDS:.0f} s, waited for {awaited}")


def read_queued(cloud: CloudProcess) -> dict[str, tuple[HeldMessage, ...]]:
    """Return what is in each region's queue, dead letters included."""
    read, queue = cloud.control.read_queue, cloud.queue
    return {
        region: tuple(HeldMessage(one["session"], one["id"]) for one in read(region, queue))
        for region in cloud.regions
    }
