"""A message as a producer sent it, and as a queue keeps it."""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class State(StrEnum):
    """Where a stored message stands; each message is counted in exactly one."""

    ACTIVE = "active"  # may be delivered now
    LOCKED = "locked"  # delivered, not yet settled
    SCHEDULED = "scheduled"  # its time has not come
    DEFERRED = "deferred"  # set aside; served by sequence number only


class Settlement(StrEnum):
    """What a receiver decides about a message it holds; the values name counted operations."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEAD_LETTER = "dead-letter"
    DEFER = "defer"
    RELEASE = "release"  # handed back unseen: spends no delivery


@dataclass(frozen=True, slots=True)
class Message:
    """What was sent. `encoded` is never altered, so bodies and properties stay as they were.

    Times are seconds since 1970; `time_to_live_seconds` None leaves it to the queue. `message_id`
    is for those who take the message: it is not kept apart from `encoded`.
    """

    encoded: bytes
    session_id: str | None = None
    time_to_live_seconds: float | None = None
    scheduled_for: float | None = None
    message_id: str | None = None

    def shortest(self, limit_seconds: float | None) -> float | None:
        """Its time to live where there is a limit: the shorter counts."""
        limits = (self.time_to_live_seconds, limit_seconds)
        return min((limit for limit in limits if limit is not None), default=None)

    def expiry(self, enqueued_at: float, limit_seconds: float | None) -> float | None:
        """When it expires if it is enqueued now."""
        seconds = self.shortest(limit_seconds)
        return None if seconds is None else enqueued_at + seconds


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a message was moved to the dead-letter sub-queue."""

    reason: str | None
    description: str | None

    @classmethod
    def after_failures(cls, count: int) -> "DeadLetter":
        """It was delivered so often without success."""
        description = f"Message could not be consumed after {count} delivery attempts."
        return cls("MaxDeliveryCountExceeded", description)

    @classmethod
    def after_expiry(cls) -> "DeadLetter":
        """Its time to live was over."""
        return cls("TTLExpiredException", "The message expired and was dead lettered.")

    @classmethod
    def without_session(cls, description: str) -> "DeadLetter":
        """A subscription with sessions wanted it, but it has no session id."""
        return cls("Session ID is null", description)


@dataclass(frozen=True, slots=True)
class Lock:
    """The right to settle one delivery, until a time in seconds since 1970."""

    token: UUID
    until: float


@dataclass(slots=True)
class StoredMessage:
    """A message in a queue. `delivery_count` counts failed deliveries: abandoned or expired."""

    sequence_number: int
    message: Message
    enqueued_at: float
    state: State = State.ACTIVE
    expires_at: float | None = None
    delivery_count: int = 0
    lock: Lock | None = None
    set_aside: bool = False  # deferred once: it never goes back into the line
    dead_letter: DeadLetter | None = None
    comes_again: bool = False  # once, after it was completed: a fault

    def is_expired(self, now: float) -> bool:
        """Whether its time to live is over."""
        return self.expires_at is not None and self.expires_at <= now
