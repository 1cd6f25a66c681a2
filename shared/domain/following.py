"""The way of a message over sessions: what an entry sent, and by which entry a message was sent.

An entry keeps its outputs, or what their ids derive from; a message that is an output has the
session that sent it as its producer group. So both directions are found without a record of their
own. Nothing is decided by it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from shared.domain.journal import ARRIVALS, Entry, Status
from shared.domain.message import HERE_PREFIX, OUTPUTS_PREFIX, Message, Number, derive_id
from shared.domain.outbox import HERE

# An entry may have thousands of outputs, and be about hundreds of messages: so many are looked at.
OUTPUTS_MAX, MESSAGES_MAX = 20, 5


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
