"""The producer's ledger: which numbers are bound to which content, per group and session.

A number is bound to a digest from its first attempt. A retry finds its old number; other content
never gets a number whose fate is unknown. The ledger keeps the newest numbers only, so it does not
grow; a retry older than that is a new message to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shared.domain.errors import ContentConflict, InvalidClientState, ProducerDisconnected
from shared.domain.message import Message, Number, content_digest

# How many numbers a ledger remembers for retries: an HTTP client's patience, not a history.
REMEMBERED_MAX = 64


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that has no number yet."""

    id: str
    type: str
    body: bytes
    time: str | None = None


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Who publishes. A higher owner level fences a lower one of the same group.

    `starting_sequence_number` continues from state the caller kept; it must agree with the ledger.
    """

    producer_group_id: str
    owner_level: int = 0
    starting_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A number and the content it was first used for."""

    id: str
    digest: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a producer group has numbered in one session."""

    group: str
    level: int = 0
    next: int = 0
    remembered: tuple[Bound, ...] = ()


def number(
    ledger: Ledger, session: str, drafts: Sequence[Draft], options: ProducerOptions
) -> tuple[Ledger, tuple[Message, ...]]:
    """Give every draft its number; the ledger returned must be stored before anything is sent.

    Raises ProducerDisconnected for an owner level below the ledger's, InvalidClientState when the
    caller's starting number is not the ledger's next, ContentConflict for an id with new content.
    """
    ledger = taken_over(ledger, options)
    messages = []
    for draft in drafts:
        ledger, sequence = bind(ledger, draft)
        bound = Number(group=ledger.group, level=ledger.level, sequence=sequence)
        messages.append(Message(draft.id, session, draft.type, draft.body, bound, draft.time))
    return ledger, tuple(messages)


def taken_over(ledger: Ledger, options: ProducerOptions) -> Ledger:
    """The ledger as this producer's, if it may have it."""
    if options.owner_level < ledger.level:
        raise ProducerDisconnected(
            f"group {ledger.group!r} is owned at level {ledger.level}, above {options.owner_level}"
        )
    start = options.starting_sequence_number
    if start is not None and start != ledger.next:
        raise InvalidClientState(f"starting number {start} given, the ledger expects {ledger.next}")
    return replace(ledger, level=options.owner_level)


def bind(ledger: Ledger, draft: Draft) -> tuple[Ledger, int]:
    """The number of a draft: its old one if the ledger remembers its id, else the next."""
    digest = content_digest(draft.type, draft.body)
    for known in ledger.remembered:
        if known.id == draft.id and known.digest != digest:
            raise ContentConflict(f"id {draft.id!r} was used before with other content")
        if known.id == draft.id:
            return ledger, known.sequence
    bound = Bound(draft.id, digest, ledger.next)
    remembered = (*ledger.remembered, bound)[-REMEMBERED_MAX:]
    return replace(ledger, next=ledger.next + 1, remembered=remembered), bound.sequence
