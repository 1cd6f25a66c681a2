"""A message as a producer sent it, and as a queue stores it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID


class MessageState(StrEnum):
    """The state of a stored message, which is counted in exactly one."""

    ACTIVE = "active"  # may be delivered now
    LOCKED = "locked"  # delivered, not yet settled
    SCHEDULED = "scheduled"  # its enqueue time has not come
    DEFERRED = "deferred"  # received by sequence number only


# What the dead letters of a queue are called, beside the states of its own messages.
DEAD_LETTERED = "dead_lettered"


class Settlement(StrEnum):
    """The decision of a receiver about a message it has locked; the values name operations."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEAD_LETTER = "dead-letter"
    DEFER = "defer"
    RELEASE = "release"  # given back unprocessed: does not count as a delivery


@dataclass(frozen=True, slots=True)
class BrokeredMessage:
    """A message as sent. Receivers may set properties in `encoded`, and a topic notes its number.

    Times are seconds since 1970. A `time_to_live_seconds` of None leaves it to the queue.
    `message_id` is only for duplicate detection on arrival: it is not stored beside `encoded`.
    `hops` counts how often it was forwarded, which it is at once, and so is not stored either.
    """

    encoded: bytes
    session_id: str | None = None
    time_to_live_seconds: float | None = None
    scheduled_for: float | None = None
    message_id: str | None = None
    hops: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetterReason:
    reason: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Disposition:
    """A receiver's decision. `properties` are application properties to set, as encoded values."""

    settlement: Settlement
    reason: DeadLetterReason | None = None
    properties: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeliveryLock:
    """The right to settle one delivery, until a time in seconds since 1970."""

    token: UUID
    until: float


@dataclass(slots=True)
class StoredMessage:
    """A message in a queue. `delivery_count` counts failed deliveries: abandoned or expired."""

    sequence_number: int
    message: BrokeredMessage
    enqueued_at: float
    state: MessageState = MessageState.ACTIVE
    expires_at: float | None = None
    delivery_count: int = 0
    lock: DeliveryLock | None = None
    was_deferred: bool = False  # once deferred, it never becomes active again
    dead_letter: DeadLetterReason | None = None
    redeliver_once: bool = False  # after it was completed: an injected fault
