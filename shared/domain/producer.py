"""The producer's ledger: which numbers are bound to which content, per group and session.

A number is bound to a digest from its first attempt. A retry finds its old number; other content
never gets a number that was given before, whatever became of it. The ledger keeps the newest
numbers only, so it does not grow; a retry older than that is a new message to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shared.domain.errors import (
    ContentConflict,
    InvalidClientState,
    InvalidOptions,
    NumbersExhausted,
    ProducerDisconnected,
)
from shared.domain.message import (
    ID_CHARACTERS_MAX,
    OWNER_LEVEL_MAX,
    SEQUENCE_MAX,
    Message,
    Number,
    digest_content,
)

# How many numbers a ledger remembers for retries: an HTTP client's patience, not a history. A
# larger operation is remembered whole until the next one.
REMEMBERED_MAX = 64
# What begins so is the journal's own: its arrivals, and the outputs of sessions.
RESERVED_GROUPS = ("$", "session:")


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that has no number yet; its fields are those of Message."""

    id: str
    type: str
    body: bytes
    time: str | None = None
    reply_to: str | None = None
    reply_session: str | None = None
    correlation: str | None = None

    def in_session(self, session: str, number: Number | None = None) -> Message:
        """The message it becomes; raises InvalidMessage where it becomes none."""
        return Message(
            id=self.id,
            session=session,
            type=self.type,
            body=self.body,
            number=number,
            time=self.time,
            reply_to=self.reply_to,
            reply_session=self.reply_session,
            correlation=self.correlation,
        )


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Who publishes. A higher owner level fences a lower one of the same group.

    `starting_sequence_number` continues from state the caller kept; it must agree with the ledger.
    Raises InvalidOptions.
    """

    producer_group_id: str
    owner_level: int = 0
    starting_sequence_number: int | None = None

    def __post_init__(self) -> None:
        group = self.producer_group_id
        if not 0 < len(group) <= ID_CHARACTERS_MAX:
            raise InvalidOptions(f"a group id has 1 to {ID_CHARACTERS_MAX} characters: {group!r}")
        if group.startswith(RESERVED_GROUPS):
            raise InvalidOptions(f"group id {group!r} is reserved: it begins as the journal's own")
        require_range("owner level", self.owner_level, OWNER_LEVEL_MAX)
        if self.starting_sequence_number is not None:
            require_range("starting number", self.starting_sequence_number, SEQUENCE_MAX)


@dataclass(frozen=True, slots=True)
class BoundNumber:
    """A number and the content it was first used for."""

    id: str
    digest: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a producer group has numbered in one session.

    `next` is the next free number, `began` the first one of the newest operation.
    """

    group: str
    level: int = 0
    next: int = 0
    began: int = 0
    remembered: tuple[BoundNumber, ...] = ()


@dataclass(frozen=True, slots=True)
class Numbered:
    """Drafts with their numbers, and the ledger that must be stored before anything is sent.

    `messages` answers the drafts one by one; `fresh` are those that had no number before.
    """

    ledger: Ledger
    messages: tuple[Message, ...]
    fresh: tuple[Message, ...]


def number_drafts(
    ledger: Ledger, session: str, drafts: Sequence[Draft], options: ProducerOptions
) -> Numbered:
    """Give every draft its number: its old one if the ledger remembers its id, else the next.

    Raises ProducerDisconnected for an owner level below the ledger's, InvalidClientState when the
    caller's starting number contradicts the ledger, ContentConflict for an id with new content,
    NumbersExhausted at the end of the group's numbers, InvalidMessage for what is no message.
    """
    ledger = take_over_ledger(ledger, options)
    bound_ids = {bound.id: bound for bound in ledger.remembered}
    messages: list[Message] = []
    fresh: list[Message] = []
    for draft in drafts:
        bound = bound_ids.get(draft.id) or bind_next(ledger, len(fresh), draft)
        require_same_content(bound, draft)
        place = Number(ledger.group, ledger.level, bound.sequence)
        messages.append(draft.in_session(session, place))
        if draft.id not in bound_ids:
            bound_ids[draft.id] = bound
            fresh.append(messages[-1])
    remembered = tuple(bound_ids.values())[-max(REMEMBERED_MAX, len(fresh)) :]
    return Numbered(extend_ledger(ledger, len(fresh), remembered), tuple(messages), tuple(fresh))


def take_over_ledger(ledger: Ledger, options: ProducerOptions) -> Ledger:
    """The ledger as this producer's, if it may have it.

    A starting number agrees when it is the ledger's next, or where the newest operation began: a
    caller whose last answer was lost cannot know of that one.
    """
    if options.owner_level < ledger.level:
        raise ProducerDisconnected(
            f"group {ledger.group!r} is owned at level {ledger.level}, above {options.owner_level}"
        )
    start = options.starting_sequence_number
    if start is not None and start not in (ledger.began, ledger.next):
        raise InvalidClientState(f"starting number {start} given, the ledger expects {ledger.next}")
    return replace(ledger, level=options.owner_level)


def bind_next(ledger: Ledger, ahead: int, draft: Draft) -> BoundNumber:
    """A draft bound to the next number after `ahead` others."""
    sequence = ledger.next + ahead
    if sequence > SEQUENCE_MAX:
        raise NumbersExhausted(
            f"group {ledger.group!r} has no number left after {SEQUENCE_MAX}: begin a new group"
        )
    return BoundNumber(draft.id, digest_content(draft.type, draft.body), sequence)


def require_same_content(bound: BoundNumber, draft: Draft) -> None:
    """Raise ContentConflict where the id was bound to other content."""
    if bound.digest != digest_content(draft.type, draft.body):
        raise ContentConflict(f"id {draft.id!r} was used before with other content")


def extend_ledger(ledger: Ledger, count: int, remembered: tuple[BoundNumber, ...]) -> Ledger:
    """The ledger after `count` new numbers; without any only its level may have changed."""
    if not count:
        return ledger
    return replace(ledger, began=ledger.next, next=ledger.next + count, remembered=remembered)


def require_range(what: str, value: int, highest: int) -> None:
    """Raise InvalidOptions unless the value is a whole number from 0 to `highest`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        raise InvalidOptions(f"{what} {value!r} is not a whole number within 0..{highest}")
