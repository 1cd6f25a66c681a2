"""The parts of a region that a run loses, and how they are lost."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum

from local.testing.control import ControlClient
from proof.testbed.faults import components_down, hosts_killed, journal_lost, region_down

# How long the journal's writes have nowhere to go, for which Azure takes minutes.
MOVED_AFTER_SECONDS = 5.0


class LostPart(StrEnum):
    HOST = "host"
    NAMESPACE = "namespace"
    JOURNAL = "journal"
    REGION = "region"

    @property
    def moves_writes(self) -> bool:
        return self in (LostPart.JOURNAL, LostPart.REGION)

    @property
    def is_taken_over(self) -> bool:
        """Return whether the other regions have to do the work of the one that was hit."""
        return self is not LostPart.JOURNAL

    def describe(self, *, is_silent: bool) -> str:
        """Describe what is lost, and how."""
        how = "silent" if is_silent else "down"
        return {
            LostPart.HOST: "its host killed by SIGKILL",
            LostPart.NAMESPACE: f"its namespace {how}",
            LostPart.JOURNAL: f"the journal's write region {how}",
            LostPart.REGION: (
                f"its host killed by SIGKILL, its namespace and the journal's write region {how}"
            ),
        }[self]


def lose(
    control: ControlClient,
    loss: LostPart,
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
        case LostPart.HOST:
            return hosts_killed(control, primary)
        case LostPart.NAMESPACE:
            return components_down(control, f"servicebus.{primary}", action=action)
        case LostPart.JOURNAL:
            return journal_lost(control, primary, away=away, wait=wait, action=action)
        case LostPart.REGION:
            return region_down(control, primary, away=away, wait=wait, action=action)
