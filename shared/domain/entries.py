"""What the next entry looks like: one builder per status, all pure.

Every entry starts `opened` on its head, which changes nothing; then it is said what came of it. An
effectful handler's entry is stored in between, as a claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.domain.arrival import number_in
from shared.domain.journal import (
    Attempt,
    Covered,
    Entry,
    Halt,
    Lease,
    Resolution,
    Status,
    advanced,
    state_position,
)
from shared.domain.message import Message, Number
from shared.domain.outbox import Outbox, Rerun
from shared.domain.running import Result


@dataclass(frozen=True, slots=True)
class Step:
    """What every new entry is made from: the head, the message, the try, and who is behind.

    `from_parked` says that a message parked under this number is taken with it. `sent_digest` is
    that of the message as it was sent, where a person corrected it. `note` becomes the reason.
    """

    head: Entry | None
    message: Message
    attempt: Attempt
    behind: tuple[str, ...] = ()
    from_parked: bool = False
    resolution: Resolution | None = None
    sent_digest: str | None = None
    note: str | None = None


def opened(step: Step) -> Entry:
    """An entry of which nothing is known yet; everything but its position is as it was."""
    head = step.head
    covered = cover(step)
    parked = dict(head.parked) if head else {}
    return Entry(
        session=step.message.session,
        position=head.position + 1 if head else 0,
        status=Status.WORKING,
        covers=(covered,),
        state=None,
        state_at=state_position(head),
        attempt=step.attempt,
        cursors=head.cursors if head else {},
        produced=head.produced if head else {},
        behind=step.behind,
        parked=one_fewer(parked, covered.number.group) if step.from_parked else parked,
        from_parked=step.from_parked,
        halt=head.halt if head and not step.resolution else None,
        message=step.message,
        reason=step.note,
        resolution=step.resolution,
    )


def claimed(entry: Entry, lease: Lease) -> Entry:
    """The entry as a claim: nobody else can follow the head while the lease holds."""
    return replace(entry, lease=lease)


def taken_over(claim: Entry, attempt: Attempt) -> Entry:
    """A claim whose owner is gone, as another attempt's; what the old one brings is refused."""
    lease = claim.lease or Lease(0.0, 0)
    return replace(claim, attempt=attempt, lease=Lease(lease.seconds, lease.tries + 1))


def renewed(claim: Entry) -> Entry:
    """A claim as its owner writes it again: the lease begins anew."""
    return replace(claim, lease=claim.lease and replace(claim.lease, since=None))


def left_as_it_was(claim: Entry, since: float) -> Entry:
    """A claim as others write it: the lease goes on from when its owner wrote it."""
    return replace(claim, lease=claim.lease and replace(claim.lease, since=since))


def completed(entry: Entry, result: Result, outbox: Outbox) -> Entry:
    """The handler ran: state, outputs and cursor in one document.

    Where the outputs are made again by running it again, what that needs is kept as well.
    """
    again = isinstance(outbox.elsewhere, Rerun)
    return replace(
        entry,
        status=Status.COMPLETED,
        state=result.state,
        state_at=None,
        cursors=advanced(entry.cursors, entry.covers[-1].number),
        produced=result.produced,
        captured=result.captured if again else {},
        outbox=outbox,
        answer=result.answer,
        message=entry.message if again else None,
        lease=None,
    )


def joined(first: Entry, second: Entry) -> Entry:
    """Two completed entries, the second made on the first, as one that covers both."""
    outbox = replace(second.outbox, parcels=first.outbox.parcels + second.outbox.parcels)
    if second.outbox.is_empty:
        outbox = first.outbox
    return replace(
        second,
        position=first.position,
        covers=first.covers + second.covers,
        attempt=first.attempt,
        behind=first.behind,
        outbox=outbox,
    )


def refused(entry: Entry, reason: str) -> Entry:
    """The message is not processed and its number stays free: a newer producer uses it."""
    return replace(entry, status=Status.SKIPPED, reason=reason, message=None, lease=None)


def skipped(entry: Entry, reason: str) -> Entry:
    """The message is not processed, and the session goes on after it."""
    cursors = advanced(entry.cursors, entry.covers[-1].number)
    return replace(refused(entry, reason), cursors=cursors)


def faulted(entry: Entry, *, reason: str, outbox: Outbox, halts: bool) -> Entry:
    """The message failed for good: kept whole, and either the session halts or it goes on."""
    number = entry.covers[-1].number
    return replace(
        entry,
        status=Status.FAULTED,
        cursors=entry.cursors if halts else advanced(entry.cursors, number),
        halt=Halt(entry.position, number) if halts else entry.halt,
        reason=reason,
        outbox=outbox,
        lease=None,
    )


def parked(step: Step) -> Entry:
    """The message waits beside the journal."""
    entry = opened(step)
    waiting = one_more(entry.parked, entry.covers[0].number.group)
    return replace(entry, status=Status.PARKED, parked=waiting)


def parked_beside(claim: Entry, number: Number) -> Entry:
    """A claim that one more message waits for; whoever holds it finds the message afterwards."""
    return replace(claim, parked=one_more(claim.parked, number.group))


def with_parked(entry: Entry, parked: Mapping[str, int]) -> Entry:
    """The entry, with the messages that came to wait for it meanwhile."""
    return replace(entry, parked=parked)


def cover_as(message: Message, number: Number) -> Covered:
    """What is kept of a message that has this number."""
    return Covered(message.id, message.type, message.digest, number)


def cover(step: Step) -> Covered:
    """What an entry keeps of a message: enough to know it again as it was sent."""
    message = step.message
    number = number_in(
        step.head, message, from_parked=step.from_parked, resolving=step.resolution is not None
    )
    return replace(cover_as(message, number), digest=step.sent_digest or message.digest)


def one_more(waiting: Mapping[str, int], group: str) -> dict[str, int]:
    """The counts of parked messages after one more of a group."""
    return {**waiting, group: waiting.get(group, 0) + 1}


def one_fewer(waiting: Mapping[str, int], group: str) -> dict[str, int]:
    """The counts of parked messages after one was taken; a group with none is not named."""
    left = {**waiting, group: waiting[group] - 1}
    return {name: count for name, count in left.items() if count}
