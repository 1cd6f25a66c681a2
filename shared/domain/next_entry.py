"""What the next entry looks like: one builder for each way an entry can end, all of them pure.

Every entry begins with `open_entry`, which changes nothing but the position; then a second builder
says what came of it. The entry of an effectful handler is stored in between, as a claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.domain.decision import cursor_of
from shared.domain.handler import HandlerResult
from shared.domain.journal import (
    ARRIVALS,
    Attempt,
    Cursor,
    Entry,
    Halt,
    Lease,
    MessageIdentity,
    Resolution,
    Status,
)
from shared.domain.message import Message, Number
from shared.domain.outbox import Outbox, Rerun


@dataclass(frozen=True, slots=True)
class EntryInput:
    """What a new entry is made from: the head, the message, the attempt, the lagging regions.

    `from_parked` says that a message parked under this number is removed with it. `sent_digest` is
    that of the message as it was sent, where a person corrected it. `note` becomes the reason.
    """

    head: Entry | None
    message: Message
    attempt: Attempt
    lagging: tuple[str, ...] = ()
    from_parked: bool = False
    resolution: Resolution | None = None
    sent_digest: str | None = None
    note: str | None = None


def open_entry(made_from: EntryInput) -> Entry:
    """An entry that has not ended; everything but its position is as it was."""
    head, message = made_from.head, made_from.message
    number = message.number or number_on_arrival(made_from)
    identity = MessageIdentity(
        message.id, message.type, made_from.sent_digest or message.digest, number
    )
    parked: Mapping[str, int] = head.parked if head else {}
    if made_from.from_parked:
        parked = remove_parked(parked, number.group)
    return Entry(
        session=message.session,
        position=head.position + 1 if head else 0,
        status=Status.WORKING,
        identities=(identity,),
        state=None,
        state_at=state_position(head),
        attempt=made_from.attempt,
        cursors=head.cursors if head else {},
        produced=head.produced if head else {},
        lagging=made_from.lagging,
        parked=parked,
        from_parked=made_from.from_parked,
        # A resolution ends the halt; if its message fails again, a new one begins.
        halt=head.halt if head and not made_from.resolution else None,
        message=message,
        reason=made_from.note,
        resolution=made_from.resolution,
    )


def number_on_arrival(made_from: EntryInput) -> Number:
    """The number that the journal gives to a message without one, for its place of arrival."""
    head = made_from.head
    if made_from.resolution is not None and head is not None and head.halt is not None:
        # A message that a person resolves keeps the number under which it faulted.
        return head.halt.number
    place = cursor_of(head, ARRIVALS).next
    if head is not None and not made_from.from_parked:
        # Those that arrived earlier are first: the parked ones, and one that a fault or a claim
        # holds at the cursor itself.
        place += head.parked.get(ARRIVALS, 0) + holds_arrival(head)
    return Number(ARRIVALS, 0, place)


def holds_arrival(head: Entry) -> bool:
    """Whether a message without a number is at the cursor: in a claim, or at the fault."""
    if head.status is Status.WORKING:
        return head.identities[0].number.group == ARRIVALS
    return head.halt is not None and head.halt.number.group == ARRIVALS


def make_claim(entry: Entry, lease: Lease) -> Entry:
    """The entry as a claim: nobody else can follow the head while the lease holds."""
    return replace(entry, lease=lease)


def take_over_claim(claim: Entry, attempt: Attempt) -> Entry:
    """A claim whose owner is gone, as another attempt's; what the old one brings is refused."""
    lease = claim.lease or Lease(0.0, 0)
    return replace(claim, attempt=attempt, lease=Lease(lease.seconds, lease.tries + 1))


def renew_claim(claim: Entry) -> Entry:
    """A claim as its owner writes it again: the lease begins anew."""
    return replace(claim, lease=claim.lease and replace(claim.lease, since=None))


def complete(entry: Entry, result: HandlerResult, outbox: Outbox) -> Entry:
    """The handler ran: state, outputs and cursor in one document.

    Where the outputs are made again by running the handler, what that needs is kept as well.
    """
    is_rerun = isinstance(outbox.location, Rerun)
    return replace(
        entry,
        status=Status.COMPLETED,
        state=result.state,
        state_at=None,
        cursors=advance(entry.cursors, entry.identities[-1].number),
        produced=result.produced,
        captured=result.captured if is_rerun else {},
        outbox=outbox,
        answer=result.answer,
        message=entry.message if is_rerun else None,
        lease=None,
    )


def fold(first: Entry, second: Entry) -> Entry:
    """Two completed entries, the second made on the first, as one entry of both messages."""
    outbox = replace(second.outbox, batches=first.outbox.batches + second.outbox.batches)
    if second.outbox.is_empty:
        outbox = first.outbox
    return replace(
        second,
        position=first.position,
        identities=first.identities + second.identities,
        attempt=first.attempt,
        lagging=first.lagging,
        outbox=outbox,
    )


def refuse(entry: Entry, reason: str) -> Entry:
    """The message is not processed and its number stays free: a newer producer uses it."""
    return replace(entry, status=Status.SKIPPED, reason=reason, message=None, lease=None)


def skip(entry: Entry, reason: str) -> Entry:
    """The message is not processed, and the session goes on after it."""
    cursors = advance(entry.cursors, entry.identities[-1].number)
    return replace(refuse(entry, reason), cursors=cursors)


def fail(entry: Entry, *, reason: str, outbox: Outbox, halts: bool) -> Entry:
    """The message failed for good: kept whole, and either the session halts or it goes on."""
    number = entry.identities[-1].number
    return replace(
        entry,
        status=Status.FAULTED,
        cursors=entry.cursors if halts else advance(entry.cursors, number),
        halt=Halt(entry.position, number) if halts else entry.halt,
        reason=reason,
        outbox=outbox,
        lease=None,
    )


def park(made_from: EntryInput) -> Entry:
    """The message waits beside the journal."""
    entry = open_entry(made_from)
    waiting = add_parked(entry.parked, entry.identities[0].number.group)
    return replace(entry, status=Status.PARKED, parked=waiting)


def park_beside(claim: Entry, claimed_at: float, message: Message) -> tuple[Entry, MessageIdentity]:
    """A claim that one more message waits for, and the identity of that message.

    The lease goes on from `claimed_at`, when the claim's owner wrote it last: parking a message
    beside a claim must not renew it.
    """
    made_from = EntryInput(claim, message, claim.attempt)
    number = message.number or number_on_arrival(made_from)
    lease = claim.lease and replace(claim.lease, since=claimed_at)
    waiting = replace(claim, lease=lease, parked=add_parked(claim.parked, number.group))
    return waiting, MessageIdentity(message.id, message.type, message.digest, number)


def advance(cursors: Mapping[str, Cursor], number: Number) -> dict[str, Cursor]:
    """The cursors after a message of this number."""
    return {**cursors, number.group: Cursor(level=number.level, next=number.sequence + 1)}


def add_parked(waiting: Mapping[str, int], group: str) -> dict[str, int]:
    """The counts of parked messages after one more of a group."""
    return {**waiting, group: waiting.get(group, 0) + 1}


def remove_parked(waiting: Mapping[str, int], group: str) -> dict[str, int]:
    """The counts of parked messages after one was taken; a group with none is not named."""
    left = {**waiting, group: waiting[group] - 1}
    return {name: count for name, count in left.items() if count}


def state_position(head: Entry | None) -> int | None:
    """Where the state after `head` is kept; None while there is none."""
    if head is None:
        return None
    return head.state_at if head.state is None else head.position
