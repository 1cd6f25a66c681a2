"""The parts of a region that a run loses, and how they are lost."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum

from local.testing.control import ControlClient
from proof.testbed.faults import components_down, hosts_killed, journal_lost, region_down

# How long the journal's writes have nowhere to go, for which Azure takes minutes.
MOVED_AFTER_SECONDS = 5.0


class Loss(StrEnum):
    HOST = "host"
    NAMESPACE = "namespace"
    JOURNAL = "journal"
    REGION = "region"

    @property
    def moves_writes(self) -> bool:
        return self in (Loss.JOURNAL, Loss.REGION)

    @property
    def is_taken_over(self) -> bool:
        """Return whether the other regions have to do the work of the one that was hit."""
        return self is not Loss.JOURNAL

    def describe(self, *, is_silent: bool) -> str:
        """Describe what is lost, and how."""
        how = "silent" if is_silent else "down"
        return {
            Loss.HOST: "its host killed by SIGKILL",
            Loss.NAMESPACE: f"its namespace {how}",
            Loss.JOURNAL: f"the journal's write region {how}",
            Loss.REGION: (
                f"its host killed by SIGKILL, its namespace and the journal's write region {how}"
            ),
        }[self]


def lose(
    control: ControlClient,
    loss: Loss,
    regions: Sequence[str],
    *,
    is_silent: bool,
    wait: Callable[[], object],
) -> AbstractContextManager[None]:
    """Lose a part of the first region for a `with` block.

    The journal's writes go to the second one after `wait`.
    """
    primary, away, *_ = regions
    action = "silent" if is_silent else "down"
    match loss:
        case Loss.HOST:
            return hosts_killed(control, primary)
        case Loss.NAMESPACE:
            return components_down(control, f"servicebus.{primary}", action=action)
        case Loss.JOURNAL:
            return journal_lost(control, primary, away=away, wait=wait, action=action)
        case Loss.REGION:
            return region_down(control, primary, away=away, wait=wait, action=action)
