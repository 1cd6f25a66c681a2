"""The producer's ledger: which numbers are bound to which content, per group and session.

A number is bound to a digest from its first attempt. A retry finds its old number; other content
never gets a number that was given before, whatever became of it. The ledger keeps the newest
numbers only, so it does not grow; a retry older than that is a new message to it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from shared.domain.errors import (
    ContentConflict,
    InvalidClientState,
    InvalidMessage,
    InvalidOptions,
    NumbersExhausted,
    ProducerDisconnected,
    SessionEnded,
)
from shared.domain.message import (
    HERE_PREFIX,
    OUTPUTS_PREFIX,
    OWN_SOURCE,
    OWNER_LEVEL_MAX,
    RESERVED_PREFIX,
    SAGA_SESSION_PREFIX,
    SEQUENCE_MAX,
    Message,
    Number,
    digest_content,
    require_text,
)

# How many numbers a ledger remembers for retries: an HTTP client's patience, not a history. A
# larger operation is remembered whole until the next one.
REMEMBERED_MAX = 64
# What begins so is the app's own: the journal's arrivals, the outputs of sessions, sagas.
RESERVED_PREFIXES = (RESERVED_PREFIX, OUTPUTS_PREFIX, HERE_PREFIX, SAGA_SESSION_PREFIX)
# The group of HTTP ingest, and the source of what is asked over HTTP: one key is one message, by
# whichever of the two ways it comes.
HTTP_GROUP = "http"
HTTP_SOURCE = "lockstep/http"


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
    traceparent: str | None = None
    source: str = OWN_SOURCE
    delay: float | None = None

    def in_session(self, session: str, number: Number | None = None) -> Message:
        """The message it becomes; raises InvalidMessage where it becomes none."""
        return Message(session=session, number=number, **asdict(self))


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The publisher. A higher owner level fences a lower one of the same group.

    `starting_sequence_number` continues from state the caller kept; it must agree with the ledger.
    `is_ingest` is for the app's own HTTP ingest, whose group is no other's. Raises InvalidOptions.
    """

    producer_group_id: str
    owner_level: int = 0
    starting_sequence_number: int | None = None
    is_ingest: bool = False

    def __post_init__(self) -> None:
        group = self.producer_group_id
        try:
            require_text("group id", group)
        except InvalidMessage as error:
            raise InvalidOptions(str(error)) from None
        if group.startswith(RESERVED_PREFIXES) or (group == HTTP_GROUP) is not self.is_ingest:
            raise InvalidOptions(f"group id {group!r} is reserved for the app itself")
        require_range("owner level", self.owner_level, OWNER_LEVEL_MAX)
        if self.starting_sequence_number is not None:
            require_range("starting number", self.starting_sequence_number, SEQUENCE_MAX)


@dataclass(frozen=True, slots=True)
class BoundNumber:
    """A number and the content it was first used for; no number where that was asked."""

    id: str
    digest: str
    sequence: int | None


@dataclass(frozen=True, slots=True)
class KeptKeys:
    """Ids that are remembered by time and not by count: a document each, stored with the ledger.

    `kept` are the numbers that ids are bound to, for so many seconds. `forgotten` are kept ids of
    which no queue took the message.
    """

    kept: tuple[BoundNumber, ...] = ()
    seconds: int = 0
    forgotten: tuple[str, ...] = ()


NO_KEYS = KeptKeys()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The numbers that a producer group has given in one session.

    `next` is the next free number, `began` the first one of the newest operation. `is_ended` says
    that the session has ended, so that no further number is given.
    """

    group: str
    level: int = 0
    next: int = 0
    began: int = 0
    remembered: tuple[BoundNumber, ...] = ()
    is_ended: bool = False


@dataclass(frozen=True, slots=True)
class Numbered:
    """Drafts with their numbers, and the ledger that must be stored before anything is sent.

    `messages` answers the drafts one by one; `fresh` are those that had no number before. What
    was asked before gets none: it is in the session's journal.
    """

    ledger: Ledger
    messages: tuple[Message, ...]
    fresh: tuple[Message, ...]
    keys: KeptKeys = NO_KEYS


def number_drafts(
    ledger: Ledger,
    session: str,
    drafts: Sequence[Draft],
    options: ProducerOptions,
    *,
    keep_seconds: int = 0,
) -> Numbered:
    """Give every draft its number: its old one if the ledger remembers its id, else the next.

    Raises ProducerDisconnected for an owner level below the ledger's, InvalidClientState when the
    caller's starting number contradicts the ledger, ContentConflict for an id with new content,
    NumbersExhausted at the end of the group's numbers, InvalidMessage for what is no message, and
    SessionEnded for what is new in a session that has ended. With
    `keep_seconds` the ids are kept for so long, each in a document of its own.
    """
    ledger = take_over_ledger(ledger, options)
    bound_ids = {bound.id: bound for bound in ledger.remembered}
    messages: list[Message] = []
    fresh: list[Message] = []
    for draft in drafts:
        bound = bound_ids.get(draft.id) or bind_next(ledger, len(fresh), draft)
        if bound.digest != digest_content(draft.type, draft.body):
            raise ContentConflict(f"id {draft.id!r} was used before with other content")
        place = None
        if bound.sequence is not None:
            place = Number(ledger.group, ledger.level, bound.sequence)
        messages.append(draft.in_session(session, place))
        if draft.id not in bound_ids:
            bound_ids[draft.id] = bound
            fresh.append(messages[-1])
    # Where ids are kept by time, the ledger need not remember them. What it remembers still goes
    # one by one: a release that kept no ids may have numbered it a moment ago.
    limit = len(ledger.remembered) - 1 if keep_seconds else REMEMBERED_MAX
    bounds = tuple(bound_ids.values())
    newest = bounds[-max(limit, len(fresh)) :]
    remembered = tuple(bound for bound in newest if bound.sequence is not None)
    kept = KeptKeys(bounds[len(bounds) - len(fresh) :], keep_seconds) if keep_seconds else NO_KEYS
    if fresh and ledger.is_ended:
        raise SessionEnded(f"session {session!r} has ended: send what is new to another one")
    if fresh:
        after = ledger.next + len(fresh)
        ledger = replace(ledger, began=ledger.next, next=after, remembered=remembered)
    return Numbered(ledger, tuple(messages), tuple(fresh), kept)


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


def require_range(what: str, value: int, highest: int) -> None:
    """Raise InvalidOptions unless the value is a whole number from 0 to `highest`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        # Python writes down no number of thousands of digits.
        is_huge = isinstance(value, int) and value.bit_length() > 64
        shown = "of over 64 bits" if is_huge else repr(value)
        raise InvalidOptions(f"{what} {shown} is not a whole number within 0..{highest}")
