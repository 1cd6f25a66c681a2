"""A bulk decision: a person's decision about everything of one kind and cause, made in pieces.

What it is about is searched from the newest down to the oldest that was there when it began. What
fails again, or is written again, is newer than that: it is left, and nothing is decided twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from shared.domain.standstill import ListPlace, StandstillKind

# So many outcomes are kept by session, and so much of each reason; those beyond are counted.
SHOWN_MAX, TEXT_CHARACTERS_MAX = 50, 160
# How often one that cannot be carried out for the moment is tried, in a piece each.
TRIES_MAX = 5


class BulkState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


class BulkOutcome(StrEnum):
    """The end of one decision among the many."""

    DONE = "done"  # it was carried out, and nothing is left
    RECORDED = "recorded"  # it was, and a sweep carries it out where that is not possible yet
    FAILED = "failed"  # the message failed again, or outputs are still missing
    OVER = "over"  # by then it needed none: somebody decided it, or this one did and was cut short
    REFUSED = "refused"  # it was not carried out: the text says why


@dataclass(frozen=True, slots=True)
class BulkMember:
    """One decision that is still to be made: a session, and the verb as a standstill names it."""

    session: str
    verb: Mapping[str, Any]
    tries: int = 0


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """The end of one decision, and why in a sentence."""

    session: str
    outcome: BulkOutcome
    text: str


@dataclass(frozen=True, slots=True)
class BulkDecision:
    """A bulk decision, and how far it has come.

    It is about what `kind`, `causes` and `queue` say; without `causes` about every cause, and
    without a `kind` about its first `members` alone. `about` is how many were counted when it
    began, at `begun_at` in seconds since 1970 by the store's clock. `members` are carried out next,
    and after them the search goes on behind the place `after`; None where it came to the end.
    `later` are those that the next piece tries again. `worker` carries it out until `until`, by the
    store's clock, and then anybody may.
    """

    id: str
    action: str
    who: str
    why: str
    to: str | None = None
    kind: StandstillKind | None = None
    causes: tuple[str, ...] | None = None
    queue: str | None = None
    about: int = 0
    begun_at: float = 0.0
    members: tuple[BulkMember, ...] = ()
    later: tuple[BulkMember, ...] = ()
    after: ListPlace | None = None
    state: BulkState = BulkState.RUNNING
    cancelled: str = ""
    counts: Mapping[BulkOutcome, int] = field(default_factory=dict)
    shown: tuple[MemberOutcome, ...] = ()
    worker: str = ""
    until: float = 0.0

    @property
    def decided(self) -> int:
        """Return how many have come to an end."""
        return sum(self.counts.values())


def add_outcomes(
    decision: BulkDecision, results: Sequence[MemberOutcome | BulkMember]
) -> BulkDecision:
    """Count what came to an end, and keep the members that did not.

    The first outcomes are shown by session: those that a person may have to look at before others,
    and what is done only where somebody chose the sessions one by one.
    """
    ended = [one for one in results if isinstance(one, MemberOutcome)]
    left = [one for one in results if isinstance(one, BulkMember)]
    counts = dict(decision.counts)
    for one in ended:
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    is_shown = decision.kind is None
    shown = [
        replace(one, text=one.text[:TEXT_CHARACTERS_MAX])
        for one in ended
        if is_shown or one.outcome is not BulkOutcome.DONE
    ]
    shown = sorted((*decision.shown, *shown), key=lambda one: one.outcome is BulkOutcome.DONE)
    return replace(
        decision,
        counts=counts,
        shown=tuple(shown[:SHOWN_MAX]),
        members=tuple(one for one in left if not one.tries),
        later=(*decision.later, *(one for one in left if one.tries)),
    )
