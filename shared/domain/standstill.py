"""The standstills: what does not go on by itself, since when, and why.

A sign is what one stored record shows. Most signs are a standstill by themselves. Those of faults
and of parked messages are one only as long as the session's head says so.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from shared.domain.decision import cursor_of
from shared.domain.journal import Entry, Status
from shared.domain.message import derive_id
from shared.domain.outbox import ERRORS, EVERY_QUEUE, HERE, OUTPUTS

QUEUE_NAMES = {
    OUTPUTS: "the app's output queue",
    ERRORS: "the app's error queue",
    HERE: "the app's own queue",
    EVERY_QUEUE: "the outputs of the entry",
}
# UUIDs, other long hexadecimal ids with a digit in them, and numbers.
VARYING = re.compile(
    r"(?<![^\W_])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![^\W_])"
    r"|(?<![^\W_])(?=[a-z]*\d)[0-9a-f]{8,}(?![^\W_])|\d+",
    re.IGNORECASE,
)
# What Azure adds to an error for its support: several times, or cut off.
TRACKING = re.compile(r"(?:Reference:\S+ )?TrackingId:(?:.*Timestamp:[^\s,)]*|.*)", re.DOTALL)
# A namespace, as Service Bus names it in its errors: by its host, or before the kind of the queue.
NAMESPACE = re.compile(r"(?<![\w-])[\w-]+(?=\.servicebus\.|:(?:queue|topic):)", re.IGNORECASE)


class StandstillKind(StrEnum):
    HALT = "halt"  # a session, because of a fault
    UNKNOWN = "unknown"  # a session, because nobody knows whether a step of a handler happened
    GAP = "gap"  # parked messages, because an earlier number or newer code has not come for long
    ALERT = "alert"  # what came of a message whose handler asked for a person
    BLOCKED = "blocked"  # outputs, because their queue takes none before a person changes something
    REFUSED = "refused"  # outputs that no queue takes; tombstones went out in their places
    PENDING = "pending"  # outputs that a region has missed for long


# The order in which an operator wants them: what stops a session comes first.
URGENCY = (
    StandstillKind.UNKNOWN,
    StandstillKind.HALT,
    StandstillKind.BLOCKED,
    StandstillKind.REFUSED,
    StandstillKind.GAP,
    StandstillKind.ALERT,
    StandstillKind.PENDING,
)


@dataclass(frozen=True, slots=True)
class ListPlace:
    """The place of a sign in the list: the newest first, and of one second the lowest key."""

    since: float
    key: str

    @property
    def order(self) -> tuple[float, str]:
        return (-self.since, self.key)


@dataclass(frozen=True, slots=True)
class Sign:
    """The fact that a stored record shows, and the version it was read at.

    `since` is when the store wrote the record last, in seconds on its clock. `position` is None for
    what is no entry; `key` is the store's own. `asks` says that a person has to look at an entry.
    `waits` says that messages are parked; it and `regions` are told only after they had their time,
    and `late_seconds` is for how long that time has been over, by the store's clock.
    """

    session: str
    key: str
    version: str
    since: float
    position: int | None = None
    asks: bool = False
    halts: bool = False
    reason: str | None = None
    raised_at: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    alert: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    blocked: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    regions: tuple[str, ...] = ()
    waits: bool = False
    late_seconds: float = field(default=0.0, compare=False)

    @property
    def place(self) -> ListPlace:
        return ListPlace(self.since, derive_id(self.session, self.key))


@dataclass(frozen=True, slots=True)
class Standstill:
    """One thing that stands still. `since` is in seconds since 1970, by the store's clock.

    `position` is that of the entry it is about, if it is one, and `raised_at` where the handler of
    a fault raised. `parked` counts the messages that wait for it. `outputs` are ids with the reason
    of each, `regions` those that miss outputs, and `queue` is the one that takes none, as the
    outbox names it. `group`, `first` and `last` name the numbers that are missing. `steps` are
    those of which a person has to say whether they happened.
    """

    kind: StandstillKind
    session: str
    since: float
    cause: str
    position: int | None = None
    parked: int = 0
    outputs: Mapping[str, str] = field(default_factory=dict)
    regions: tuple[str, ...] = ()
    queue: str | None = None
    group: str | None = None
    first: int | None = None
    last: int | None = None
    raised_at: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    @property
    def general_cause(self) -> str:
        """The cause without what differs from message to message: its session, ids and numbers.

        What blocks outputs at a queue is one cause in all regions, so it names none of them.
        """
        cause, names = self.cause, [self.session]
        if self.kind is StandstillKind.BLOCKED:
            cause, names = NAMESPACE.sub("…", cause), [*names, *self.regions]
        if "TrackingId:" in cause:
            cause = TRACKING.sub("…", cause)
        named = "|".join(map(re.escape, names))
        return VARYING.sub("…", re.sub(rf"(?<!\w)(?:{named})(?!\w)", "…", cause))


@dataclass(frozen=True, slots=True)
class Cause:
    """A count of the standstills of a kind that have one general cause.

    `example` is the cause of the newest as it is, and `since` is when the oldest came, in seconds
    since 1970.
    """

    kind: StandstillKind
    cause: str
    example: str
    count: int
    since: float


@dataclass(frozen=True, slots=True)
class CountedCauses:
    """The causes that a count found, the urgent kinds first, and when it was made.

    `at` is in seconds since 1970, by the store's clock, and `newest` is when the newest of what was
    counted was written. `is_more` says that there are more than were counted, all of them older,
    and `is_cut` that some causes are left out here.
    """

    causes: tuple[Cause, ...]
    is_more: bool
    at: float
    newest: float
    is_cut: bool = False


NOTHING_COUNTED = CountedCauses((), is_more=False, at=-1.0, newest=-1.0)


def count_causes(standstills: Iterable[Standstill], counted: Iterable[Cause] = ()) -> list[Cause]:
    """Return the causes of standstills, given the newest first: urgent kinds first, then many.

    What was counted before is added; its example then stays.
    """
    found = {(one.kind, one.cause): one for one in counted}
    for one in standstills:
        key = (one.kind, one.general_cause)
        known = found.get(key, Cause(*key, one.cause, 0, one.since))
        found[key] = replace(known, count=known.count + 1, since=min(known.since, one.since))
    return sorted(found.values(), key=lambda one: (URGENCY.index(one.kind), -one.count, one.cause))


def explain(
    sign: Sign,
    head: Entry | None,
    first_parked: Mapping[str, int | None],
    newer: str | None = None,
) -> list[Standstill]:
    """Return what a sign shows; `first_parked` is each group's lowest parked sequence.

    `newer` says why what is parked waits for newer code, where it does.
    """
    if sign.waits and head is not None:
        groups = sorted(head.parked)
        gaps = (explain_gap(sign, head, group, first_parked.get(group)) for group in groups)
        found = [gap for gap in gaps if gap is not None]
        if newer is not None and not found and head.status is not Status.WORKING:
            waiting, kind = sum(head.parked.values()), StandstillKind.GAP
            return [Standstill(kind, sign.session, sign.since, newer, parked=waiting)]
        return found
    waiting = sum(head.parked.values()) if head is not None else 0
    return list(explain_record(sign, is_halted=is_halted_by(head, sign), parked=waiting))


def explain_record(sign: Sign, *, is_halted: bool, parked: int = 0) -> Iterator[Standstill]:
    """Yield the standstills that the record itself shows, whatever is parked in its session."""
    still = partial(Standstill, session=sign.session, since=sign.since, position=sign.position)
    if sign.halts and is_halted:
        kind = StandstillKind.UNKNOWN if sign.unknown else StandstillKind.HALT
        cause, where = sign.reason or "its message failed", sign.raised_at
        yield still(kind, cause=cause, parked=parked, raised_at=where, steps=sign.unknown)
    if sign.asks and sign.alert:
        yield still(StandstillKind.ALERT, cause=sign.alert)
    if sign.asks and sign.refused:
        cause = f"no queue takes {len(sign.refused)} of its outputs"
        yield still(StandstillKind.REFUSED, cause=cause, outputs=sign.refused)
    queues = dict.fromkeys(queue for reasons in sign.blocked.values() for queue in reasons)
    # Each queue once for all its regions. Of dropped outputs only tombstones are left: they go out
    # by themselves once the queue is back.
    for queue in [queue for queue in queues if queue not in sign.dropped]:
        regions = tuple(region for region, reasons in sign.blocked.items() if queue in reasons)
        cause = f"{QUEUE_NAMES.get(queue, repr(queue))}: {sign.blocked[regions[0]][queue]}"
        yield still(StandstillKind.BLOCKED, cause=cause, regions=regions, queue=queue)
    if sign.regions:
        cause = f"outputs have not reached {' and '.join(sign.regions)}"
        yield still(StandstillKind.PENDING, cause=cause, regions=sign.regions)


def is_halted_by(head: Entry | None, sign: Sign) -> bool:
    """Return whether the fault that a sign is of stops its session now."""
    return head is not None and head.halt is not None and head.halt.at == sign.position


def is_over(sign: Sign, head: Entry | None) -> bool:
    """Return whether a sign asks for a person though nothing is left to do."""
    # Entries of earlier versions ask for ever: of resolved faults, and of sessions that went on.
    return sign.asks and not (sign.alert or sign.refused or is_halted_by(head, sign))


def explain_gap(sign: Sign, head: Entry, group: str, first_parked: int | None) -> Standstill | None:
    """Return what the parked messages of a group wait for, if that is a number."""
    first = cursor_of(head, group).next
    # Behind a fault or a claim, or with nothing missing, they wait for something else.
    is_stopped = head.halt is not None or head.status is Status.WORKING
    if is_stopped or first_parked is None or first >= first_parked:
        return None
    last = first_parked - 1
    missing = f"number {first}" if first == last else f"numbers {first} to {last}"
    return Standstill(
        StandstillKind.GAP,
        sign.session,
        sign.since,
        f"{missing} of group {group!r} did not come",
        parked=head.parked[group],
        group=group,
        first=first,
        last=last,
    )


def take_page(signs: Iterable[Sign], after: ListPlace | None, limit: int) -> list[Sign]:
    """The next signs of a list after a place."""
    rest = (sign for sign in signs if after is None or sign.place.order > after.order)
    return sorted(rest, key=lambda sign: sign.place.order)[:limit]
