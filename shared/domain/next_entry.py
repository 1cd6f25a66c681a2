"""The next entry of a session: one builder for each way an entry can end, all of them pure.

Every entry begins with `open_entry`, which changes nothing but the position; then a second builder
says what came of it. The entry of an effectful handler is stored in between, as a claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.domain.change import find_change
from shared.domain.handler import HandlerResult
from shared.domain.journal import (
    ARRIVALS,
    Attempt,
    Cursor,
    Entry,
    EvictedCursor,
    Halt,
    Json,
    KeptInput,
    Lease,
    MessageIdentity,
    ModelVersion,
    Resolution,
    StateChange,
    Status,
    WholeState,
)
from shared.domain.message import OWN_SOURCE, Message, Number
from shared.domain.outbox import Outbox, Rerun
from shared.domain.steps import NO_STEPS, KnownSteps, StepRecord
from shared.domain.trace import Trace

# So many producer groups have their cursors in an entry; those of the others are evicted: each lies
# in a document of its own. So an entry stays small, however many groups send to its session.
CURSORS_MAX = 64
# A head that names more of them loses at most so many at once, because each is a write in a batch.
EVICTED_AT_ONCE = 10
# A larger state lies in a document of its own beside its entry, and one that a step left as it was
# is not written again. So acknowledging, finding and following an entry costs what a small one
# does. Below, the second document costs more than it saves (docs/adr/operation.md).
STATE_INLINE_BYTES_MAX = 16_384
# Where a step changed little of it, the entry has the change since it was written last, and so has
# each one after it. A change that takes more than such a part of the state would cost more.
CHANGE_PART = 8
# After so many entries it is written again all the same: compaction keeps those that lie between.
STATE_KEPT_ENTRIES = 100
# Of a group's evictions so many are remembered, to find its earlier entries by.
ENDS_MAX = 50


@dataclass(frozen=True, slots=True)
class EntryInput:
    """The input of a new entry: the head, the message, the attempt, the lagging regions.

    `from_parked` says that a message parked under this number is removed with it. `sent_digest` is
    that of the message as it was sent, where a person corrected it. `note` becomes the reason.
    `steps` are those that are known of the message, where its fault is resolved.
    """

    head: Entry | None
    message: Message
    attempt: Attempt
    lagging: tuple[str, ...] = ()
    from_parked: bool = False
    resolution: Resolution | None = None
    sent_digest: str | None = None
    note: str | None = None
    steps: KnownSteps = NO_STEPS


def open_entry(made_from: EntryInput) -> Entry:
    """An entry that has not ended; everything but its position is as it was."""
    head, message = made_from.head, made_from.message
    number = message.number or number_on_arrival(made_from)
    digest = made_from.sent_digest or message.digest
    source = message.source or OWN_SOURCE
    trace = Trace.of(message) if message.traceparent else None
    identity = MessageIdentity(
        message.id, message.type, digest, number, source, trace, saga=message.saga
    )
    parked: Mapping[str, int] = head.parked if head else {}
    cursors: Mapping[str, Cursor] = head.cursors if head else {}
    has_evicted = head is not None and head.has_evicted
    if len(cursors) >= CURSORS_MAX:
        kept = keep_recent(cursors, number.group)
        cursors, has_evicted = kept, has_evicted or len(kept) < len(cursors)
    if made_from.from_parked:
        parked = remove_parked(parked, number.group)
    return Entry(
        session=message.session,
        position=head.position + 1 if head else 0,
        status=Status.WORKING,
        identities=(identity,),
        state=None,
        state_at=state_position(head),
        change=head.change if head else None,
        attempt=made_from.attempt,
        cursors=cursors,
        has_evicted=has_evicted,
        produced=head.produced if head else {},
        reminders=head.reminders if head else {},
        lagging=made_from.lagging,
        parked=parked,
        from_parked=made_from.from_parked,
        # A resolution ends the halt; if its message fails again, a new one begins.
        halt=head.halt if head and not made_from.resolution else None,
        message=message,
        reason=made_from.note,
        resolution=made_from.resolution,
        steps=made_from.steps,
        is_ended=head is not None and head.is_ended,
        silence=head.silence if head else None,
    )


def number_on_arrival(made_from: EntryInput) -> Number:
    """The number that the journal gives to a message without one, for its place of arrival."""
    head = made_from.head
    if head is None:
        return Number(ARRIVALS, 0, 0)
    if made_from.resolution is not None and head.halt is not None:
        # A message that a person resolves keeps the number under which it faulted.
        return head.halt.number
    place = head.cursors.get(ARRIVALS, Cursor()).next
    if not made_from.from_parked:
        # Those that arrived earlier are first: the parked ones, and one that a fault or a claim
        # holds at the cursor itself.
        held = head.halt.number if head.halt else None
        if head.status is Status.WORKING:
            held = head.identities[0].number
        place += head.parked.get(ARRIVALS, 0)
        place += held is not None and held.group == ARRIVALS
    return Number(ARRIVALS, 0, place)


def make_claim(entry: Entry, lease: Lease) -> Entry:
    """The entry as a claim: nobody else can follow the head while the lease holds."""
    return replace(entry, lease=lease)


def take_over_claim(claim: Entry, attempt: Attempt) -> Entry:
    """A claim whose owner is gone, as another attempt's; what the old one brings is refused."""
    lease = claim.lease or Lease(0.0, 0)
    trace = Trace.of(claim.message) if claim.message and claim.message.traceparent else None
    return replace(
        claim,
        attempt=attempt,
        lease=Lease(lease.seconds, lease.tries + 1),
        identities=tuple(replace(identity, trace=trace) for identity in claim.identities),
    )


def count_try(claim: Entry, tries: int) -> Entry:
    """A claim as its owner writes it before another try at its message; its lease begins anew."""
    return replace(claim, lease=claim.lease and Lease(claim.lease.seconds, tries))


def note_steps(claim: Entry, noted: Mapping[str, StepRecord]) -> Entry:
    """A claim as its owner writes it with more of its steps known; its lease begins anew.

    Results that lie beside it are not in it.
    """
    lease = claim.lease and replace(claim.lease, since=None)
    known = {n: replace(one, result=None) if one.beside else one for n, one in noted.items()}
    return replace(claim, steps={**claim.steps, **known}, lease=lease)


def complete(entry: Entry, result: HandlerResult, outbox: Outbox) -> Entry:
    """The handler ran: state, outputs and cursor in one document.

    Where the outputs are made again by running the handler, what that needs is kept as well.
    """
    is_rerun = isinstance(outbox.location, Rerun)
    is_large = (result.state_bytes or 0) > STATE_INLINE_BYTES_MAX
    kept_at = entry.state_at if is_large and result.is_state_kept else None
    if kept_at is not None and entry.position - kept_at >= STATE_KEPT_ENTRIES:
        kept_at = None
    return replace(
        entry,
        status=Status.COMPLETED,
        state=result.state,
        state_at=kept_at,
        state_apart=is_large and kept_at is None,
        change=entry.change if kept_at is not None else None,
        base=result.base if is_large else None,
        model=result.model,
        cursors=advance(entry.cursors, entry.identities[-1].number),
        produced=result.produced,
        reminders=result.reminders,
        captured=result.captured if is_rerun else {},
        outbox=outbox,
        answer=result.answer,
        alert=result.alert,
        state_bytes=result.state_bytes,
        is_ended=result.ends,
        silence=result.silence or entry.silence,
        message=entry.message if is_rerun else None,
        lease=None,
    )


def shorten_state(entry: Entry) -> Entry:
    """A completed entry whose state lies beside it, with only the change where that is short."""
    base, state = entry.base, entry.state or {}
    if (
        base is not None
        and base.model == entry.model
        and entry.position - base.position < STATE_KEPT_ENTRIES
    ):
        bytes_max = min((entry.state_bytes or 0) // CHANGE_PART, STATE_INLINE_BYTES_MAX)
        change = find_change(base.state, state, bytes_max)
        if change is not None:
            now = StateChange(entry.position, change)
            return replace(entry, state_at=base.position, state_apart=False, change=now)
    whole = WholeState(entry.position, state, entry.model)
    return replace(entry, change=StateChange(entry.position), base=whole)


def fold(first: Entry, second: Entry) -> Entry:
    """Two completed entries, the second made on the first, as one entry of both messages.

    Each message keeps its own answer, in its identity.
    """
    outbox = replace(second.outbox, batches=first.outbox.batches + second.outbox.batches)
    if second.outbox.is_empty:
        outbox = first.outbox
    if second.state_at == first.position:
        # The second left the state as the first made it, and both become one entry.
        second = replace(second, state_at=first.state_at, state_apart=first.state_apart)
    return replace(
        second,
        position=first.position,
        identities=keep_answers(first) + keep_answers(second),
        inputs=first.inputs + second.inputs,
        answer=None,
        attempt=first.attempt,
        lagging=first.lagging,
        outbox=outbox,
        alert=second.alert or first.alert,
    )


def keep_input(entry: Entry, kept: KeptInput, *, is_whole: bool) -> Entry:
    """An entry of one message that keeps it for good, or says that its body is not to be kept."""
    if is_whole and entry.message is not None:
        return entry
    return replace(entry, inputs=(kept if is_whole else None,))


def leave_inputs_out(entry: Entry) -> Entry:
    """The entry without the bodies of what its handlers took, which did not fit beside the rest."""
    return replace(entry, inputs=(None,) * len(entry.inputs))


def keep_answers(entry: Entry) -> tuple[MessageIdentity, ...]:
    """The identities of an entry, with its answer where it has one of its own."""
    if not entry.answer:
        return entry.identities
    return tuple(replace(one, answer=entry.answer) for one in entry.identities)


def explain_cancellation(made_from: EntryInput) -> str | None:
    """Return why a reminder has nothing to remind of any more; None for any other message.

    Only the newest entry can say that, and the commit proves that the head was the newest.
    """
    message, head = made_from.message, made_from.head
    if not message.reminder or made_from.resolution is not None:
        return None
    if head is not None and head.reminders.get(message.reminder) == message.id:
        return None
    return f"the reminder {message.reminder!r} was cancelled, or set again, before its time came"


def refuse(entry: Entry, reason: str) -> Entry:
    """The message is not processed and its number stays free: a newer producer uses it."""
    return replace(entry, status=Status.SKIPPED, reason=reason, message=None, lease=None)


def skip(entry: Entry, reason: str) -> Entry:
    """The message is not processed, and the session goes on after it."""
    cursors = advance(entry.cursors, entry.identities[-1].number)
    return replace(refuse(entry, reason), cursors=cursors)


def skip_numbers(made_from: EntryInput, first: int, reason: str) -> Entry:
    """The session goes on after numbers that never came: from the first to that of the message."""
    entry = skip(open_entry(made_from), reason)
    last = entry.identities[0]
    missing = range(first, last.number.sequence + 1)
    # Each is named, so that the message, should it come after all, is told apart from a copy.
    identities = (replace(last, number=replace(last.number, sequence=n)) for n in missing)
    return replace(entry, identities=tuple(identities))


def fail(
    entry: Entry,
    *,
    reason: str,
    raised_at: tuple[str, ...] = (),
    outbox: Outbox,
    halts: bool,
) -> Entry:
    """The message failed for good: kept whole, and either the session halts or it goes on."""
    number = entry.identities[-1].number
    return replace(
        entry,
        status=Status.FAULTED,
        cursors=entry.cursors if halts else advance(entry.cursors, number),
        halt=Halt(entry.position, number) if halts else entry.halt,
        reason=reason,
        raised_at=raised_at,
        outbox=outbox,
        lease=None,
    )


def set_state(
    head: Entry,
    state: Json | None,
    model: ModelVersion | None,
    attempt: Attempt,
    lagging: tuple[str, ...],
    resolution: Resolution | None,
) -> Entry:
    """A person gave the session another state. What halts it, and what waits for it, stays."""
    return Entry(
        session=head.session,
        position=head.position + 1,
        status=Status.COMPLETED,
        identities=(),
        state=state,
        state_at=None,
        attempt=attempt,
        cursors=head.cursors,
        has_evicted=head.has_evicted,
        produced=head.produced,
        lagging=lagging,
        parked=head.parked,
        halt=head.halt,
        resolution=resolution,
        reminders=head.reminders,
        model=model,
        is_ended=head.is_ended,
        silence=head.silence,
    )


def erase(
    head: Entry, attempt: Attempt, lagging: tuple[str, ...], resolution: Resolution | None
) -> Entry:
    """A person had the session's state erased: no entry from here on says where an older one is.

    Reminders that wait are cancelled: there is nothing left that they could remind of.
    """
    return replace(set_state(head, None, None, attempt, lagging, resolution), reminders={})


def end(
    head: Entry,
    attempt: Attempt,
    lagging: tuple[str, ...],
    reason: str | None = None,
    resolution: Resolution | None = None,
) -> Entry:
    """The session ends without a message of its own; its state is as it was, its reminders go."""
    erased = erase(head, attempt, lagging, resolution)
    kept = replace(erased, state_at=state_position(head), change=head.change)
    return replace(kept, reason=reason, is_ended=True)


def park(made_from: EntryInput) -> Entry:
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
    source = message.source or OWN_SOURCE
    return waiting, MessageIdentity(
        message.id, message.type, message.digest, number, source, saga=message.saga
    )


def advance(cursors: Mapping[str, Cursor], number: Number) -> dict[str, Cursor]:
    """The cursors after a message of this number; its group is now the one used last."""
    others = {group: cursor for group, cursor in cursors.items() if group != number.group}
    return {**others, number.group: Cursor(level=number.level, next=number.sequence + 1)}


def keep_recent(cursors: Mapping[str, Cursor], group: str) -> dict[str, Cursor]:
    """The cursors that a next entry names, with room for a message's group.

    The one of arrivals stays: it numbers every message that comes without a number.
    """
    excess = len({*cursors, group}) - CURSORS_MAX
    unused = [name for name in cursors if name not in (group, ARRIVALS)]
    evicted = unused[: max(0, min(excess, EVICTED_AT_ONCE))]
    return {name: cursor for name, cursor in cursors.items() if name not in evicted}


def evicted_cursors(head: Entry, entry: Entry) -> dict[str, Cursor]:
    """The cursors of a head that the entry after it no longer names."""
    return {name: c for name, c in head.cursors.items() if name not in entry.cursors}


def evict(cursor: Cursor, named_at: int, before: EvictedCursor | None) -> EvictedCursor:
    """Return what is kept of a cursor that the entry at `named_at` is for now the last to name."""
    ends = before.ends if before else ()
    if not ends or ends[-1][0] < cursor.next:
        ends = (*ends, (cursor.next, named_at))[-ENDS_MAX:]
    return EvictedCursor(cursor, ends)


def add_parked(waiting: Mapping[str, int], group: str) -> dict[str, int]:
    """The counts of parked messages after one more of a group."""
    return {**waiting, group: waiting.get(group, 0) + 1}


def remove_parked(waiting: Mapping[str, int], group: str) -> dict[str, int]:
    """The counts of parked messages after one was taken; a group with none is not named."""
    left = {**waiting, group: waiting[group] - 1}
    return {name: count for name, count in left.items() if count}


def state_position(head: Entry | None) -> int | None:
    """Return the position of the state after `head`, None while there is none."""
    if head is None:
        return None
    if head.state is not None and head.state_at is None:
        return head.position
    return head.state_at


def changed_position(head: Entry | None) -> int | None:
    """Return the position of the entry that made the state after `head` what it is."""
    return head.change.at if head and head.change else state_position(head)
