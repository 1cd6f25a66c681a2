"""The outcomes that a message can have. After any of these it may be settled."""

from dataclasses import dataclass, field

from shared.domain.journal import Entry
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


def compare_content(message: Message, digest: str) -> Outcome:
    """Return the outcome of a message whose id or number was used for this digest."""
    return AlreadyDone() if digest == message.digest else report_conflict(message, digest)


def report_conflict(message: Message, digest: str | None = None) -> Conflicting:
    """The outcome for other content under a used id or number, or for a number that was skipped."""
    number = message.number
    used = f"number {number.sequence} of group {number.group!r}" if number else "its id"
    how = "was used before with other content"
    if digest == SKIPPED_DIGEST:
        how = "was skipped by a person before it came"
    return Conflicting(f"message {message.id!r}: {used} {how}")
