"""What the next entry looks like: one builder per status, all pure.

Every entry starts as `following` its head, which changes nothing, and says what it changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.domain.journal import (
    Attempt,
    Covered,
    Cursor,
    Entry,
    Halt,
    Json,
    Resolution,
    Status,
    next_position,
    require_number,
    state_position,
)
from shared.domain.message import Message, Number
from shared.domain.outbox import Outbox


@dataclass(frozen=True, slots=True)
class Step:
    """What every new entry is made from: the head, the message, the try, and who is behind."""

    head: Entry | None
    message: Message
    attempt: Attempt
    behind: tuple[str, ...] = ()
    from_parked: bool = False
    resolution: Resolution | None = None


def following(step: Step, status: Status) -> Entry:
    """An entry after which everything but its position is as it was."""
    head = step.head
    parked = dict(head.parked) if head else {}
    return Entry(
        session=step.message.session,
        position=next_position(head),
        status=status,
        covers=(cover(step.message),),
        state=None,
        state_at=state_position(head),
        attempt=step.attempt,
        cursors=head.cursors if head else {},
        produced=head.produced if head else {},
        behind=step.behind,
        parked=one_fewer(parked, step.message) if step.from_parked else parked,
        from_parked=step.from_parked,
        halt=head.halt if head and not step.resolution else None,
        resolution=step.resolution,
    )


def completed(step: Step, *, state: Json, outbox: Outbox, produced: Mapping[str, int]) -> Entry:
    """The handler ran: state, outputs and cursor in one document."""
    return replace(
        following(step, Status.COMPLETED),
        state=state,
        state_at=None,
        cursors=advanced(step),
        produced=produced,
        outbox=outbox,
    )


def refused(step: Step, reason: str) -> Entry:
    """The message is not processed and its number stays free: a newer producer uses it."""
    return replace(following(step, Status.SKIPPED), reason=reason)


def skipped(step: Step, reason: str) -> Entry:
    """The message is not processed, and the session goes on after it."""
    return replace(following(step, Status.SKIPPED), cursors=advanced(step), reason=reason)


def parked(step: Step) -> Entry:
    """The message waits beside the journal."""
    group = require_number(step.message).group
    waiting = dict(step.head.parked) if step.head else {}
    waiting[group] = waiting.get(group, 0) + 1
    return replace(following(step, Status.PARKED), parked=waiting, message=step.message)


def faulted(step: Step, *, reason: str, outbox: Outbox, halts: bool) -> Entry:
    """The message failed for good: kept whole, and either the session halts or it goes on."""
    entry = following(step, Status.FAULTED)
    return replace(
        entry,
        cursors=entry.cursors if halts else advanced(step),
        halt=Halt(entry.position, require_number(step.message)) if halts else entry.halt,
        message=step.message,
        reason=reason,
        outbox=outbox,
    )


def cover(message: Message) -> Covered:
    """What an entry keeps of a message."""
    return Covered(message.id, message.type, message.digest, require_number(message))


def advanced(step: Step) -> dict[str, Cursor]:
    """The cursors after the message."""
    number: Number = require_number(step.message)
    cursors = dict(step.head.cursors) if step.head else {}
    cursors[number.group] = Cursor(level=number.level, next=number.sequence + 1)
    return cursors


def one_fewer(waiting: Mapping[str, int], message: Message) -> dict[str, int]:
    """The counts of parked messages after this one was taken; a group with none is not named."""
    group = require_number(message).group
    left = {**waiting, group: waiting[group] - 1}
    return {name: count for name, count in left.items() if count}
