"""The outcomes that a message can have. After any of these it may be settled."""

from dataclasses import dataclass, field

from shared.domain.journal import Entry, Json
from shared.domain.message import Message
from shared.domain.reports import SKIPPED_DIGEST


@dataclass(frozen=True, slots=True)
class Processed:
    """The message's entry is in the journal; its outputs are sent, or pending."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """An earlier copy of the message has its entry; this copy changed nothing."""


@dataclass(frozen=True, slots=True)
class Conflicting:
    """The message's id or number was used before with other content, which stands."""

    reason: str


@dataclass(frozen=True, slots=True)
class Parked:
    """The message is kept beside the journal until its turn comes."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A worker has claimed the message; the claim holds it whole, so that nothing can lose it."""


@dataclass(frozen=True, slots=True)
class Faulted:
    """The message's handler failed for good; its entry says why."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Refused:
    """The message will never be processed; its entry says why."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Expired:
    """The message is older than what is remembered of un-numbered ones; it may be a copy."""

    reason: str


@dataclass(frozen=True, slots=True)
class PassedThrough:
    """An idempotent handler took the message without a journal.

    `fault` says why it failed, and `raised_at` where.
    """

    fault: str | None = None
    raised_at: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class NotYet:
    """No outcome: the message waits for another one, or for the end of a claim."""


type Outcome = (
    Processed
    | AlreadyDone
    | Conflicting
    | Parked
    | Claimed
    | Faulted
    | Refused
    | Expired
    | PassedThrough
)


# The replies to whoever asked, by which the same message is answered however often it is asked.


@dataclass(frozen=True, slots=True)
class Answered:
    """The message took effect at a position of its session.

    `version` is the position at which the session's state was written last, up to there: the state
    is as that entry left it. `answer` is what the handler answered, if anything.
    """

    position: int
    version: int | None
    answer: Json | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The message did not take effect, for the reason that the journal has at this position.

    Where it `halts` the session, a person may have it run again. Otherwise it never takes effect.
    """

    reason: str
    position: int | None = None
    halts: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """The message is safe in the journal and has not come to its end: ask again."""


type Reply = Answered | Failed | Waiting | Conflicting | Expired


def compare_content(message: Message, digest: str) -> Outcome:
    """Return the outcome of a message whose id or number was used for this digest."""
    return AlreadyDone() if digest == message.digest else report_conflict(message, digest)


def report_compacted(message: Message) -> Expired:
    """The reply to a message whose entry is gone, though it is known that there was one."""
    return Expired(f"message {message.id!r} was processed, and what came of it is compacted")


def report_conflict(message: Message, digest: str | None = None) -> Conflicting:
    """The outcome for other content under a used id or number, or for a number that was skipped."""
    number = message.number
    used = f"number {number.sequence} of group {number.group!r}" if number else "its id"
    how = "was used before with other content"
    if digest == SKIPPED_DIGEST:
        how = "was skipped by a person before it came"
    return Conflicting(f"message {message.id!r}: {used} {how}")
