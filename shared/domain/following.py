"""The way of a message over sessions: what an entry sent, and by which entry a message was sent.

An entry keeps its outputs, or what their ids derive from; a message that is an output has the
session that sent it as its producer group. So both directions are found without a record of their
own. Nothing is decided by it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.domain.journal import ARRIVALS, Entry, Status
from shared.domain.message import HERE_PREFIX, OUTPUTS_PREFIX, Message, Number, derive_id
from shared.domain.outbox import HERE

# An entry may have thousands of outputs, and be about hundreds of messages: so many are looked at.
OUTPUTS_MAX, MESSAGES_MAX = 20, 5

# An entry by its session and position.
type Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Sender:
    """The session that sent a message as an output, and whether to the app's own queue."""

    session: str
    is_here: bool


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """An output as its entry keeps it; `queue` is named as in a batch."""

    message: Message
    queue: str


@dataclass(frozen=True, slots=True)
class SentBy:
    """The entry that sent the message `id`; `position` is None where it is gone."""

    id: str
    session: str
    position: int | None


@dataclass(frozen=True, slots=True)
class FollowedOutput:
    """An output of an entry, and what became of it as far as is known.

    `position` is that of the entry in its session which names it; `said` is why there is none.
    """

    id: str
    session: str
    type: str | None = None
    queue: str | None = None
    position: int | None = None
    said: str | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """A row of a way, `depth` hops from its beginning.

    `before` counts the row that it follows from, and `output` led to it; the first has neither.
    `entry` is None where there is none, or it was told before. `cause` is what sent its message.
    """

    depth: int
    before: int | None
    output: FollowedOutput | None
    session: str
    position: int | None
    entry: Entry | None = None
    cause: SentBy | None = None


def sender_of(number: Number) -> Sender | None:
    """Return who sent a message by its number; None where that was no session."""
    for prefix, is_here in ((HERE_PREFIX, True), (OUTPUTS_PREFIX, False)):
        if number.group.startswith(prefix):
            return Sender(number.group.removeprefix(prefix), is_here)
    return None


def queues_to(entry: Entry, session: str, *, is_here: bool) -> list[str]:
    """Return the destinations by which an entry, or one before it, sent something to a session."""
    return [
        queue
        for queue, sessions in entry.produced.items()
        if (queue == HERE) is is_here and session in sessions
    ]


def has_sent(entry: Entry, queue: str, session: str, sequence: int) -> bool:
    """Return whether an entry, or one before it, gave a number to an output."""
    return entry.produced.get(queue, {}).get(session, 0) > sequence


def kept_outputs(entry: Entry) -> list[KeptOutput] | None:
    """Return the outputs that an entry keeps in itself, or None where it keeps them elsewhere."""
    if entry.outbox.location is not None:
        return None
    return [KeptOutput(one, b.queue) for b in entry.outbox.batches for one in b.messages]


def derive_output_ids(entry: Entry) -> list[str]:
    """Return the ids that the first outputs of an entry have, whether it has so many or not."""
    ids = list[str]()
    for one in entry.identities[:MESSAGES_MAX]:
        number = None if one.number.group == ARRIVALS else one.number
        cause = Message(one.id, entry.session, one.type, b"{}", number=number, source=one.source)
        parts = cause.identity_parts
        ids += (derive_id(*parts, "output", str(index)) for index in range(OUTPUTS_MAX))
    return ids


def sessions_sent_to(before: Mapping[str, Mapping[str, int]], entry: Entry) -> list[str]:
    """Return the sessions that an entry sent numbered outputs to, given the numbers before it."""
    return list(
        dict.fromkeys(
            session
            for queue, sessions in entry.produced.items()
            for session, following in sessions.items()
            if following > before.get(queue, {}).get(session, 0)
        )
    )


def choose_entry(found: Collection[Entry], message_id: str) -> Entry | None:
    """Return the newest entry of a message; one that parked it only where there is no other."""
    naming = [one for one in found if any(i.id == message_id for i in one.identities)]
    return max(
        naming, key=lambda one: (one.status is not Status.PARKED, one.position), default=None
    )


def order_hops(
    entries: Mapping[Place, Entry],
    causes: Mapping[Place, SentBy],
    outputs: Mapping[Place, Sequence[FollowedOutput]],
) -> list[Hop]:
    """Return a way as its hops, from the first entry on, each with what follows right behind it.

    `entries` begin with the first. An entry that was told before is not told again.
    """
    hops, left = list[Hop](), dict(entries)
    # What is told last is kept lowest, so that no way is too long for the stack.
    waiting: list[Hop] = [Hop(0, None, None, *next(iter(left)))]
    while waiting:
        hop = waiting.pop()
        place = (hop.session, -1 if hop.position is None else hop.position)
        entry = left.pop(place, None)
        hops.append(replace(hop, entry=entry, cause=causes.get(place) if entry else None))
        following = outputs.get(place, ()) if entry else ()
        depth, here = hop.depth + 1, len(hops) - 1
        waiting += (Hop(depth, here, one, one.session, one.position) for one in reversed(following))
    return hops


def trace_of(entry: Entry) -> str | None:
    """Return the trace that an entry's message is in, as far as the entry keeps it."""
    kept = [entry.message, *(one.message for one in kept_outputs(entry) or ())]
    known = (one.traceparent for one in kept if one is not None)
    return next((one.split("-")[1] for one in known if one), None)
