"""The store of a queue's content, so that it can outlive the process.

The base class stores nothing: content then lives as long as the process. `SqliteMessageStore`
stores on disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from local.servicebus.config import QueueConfig, SubscriptionConfig, TopicConfig
from local.servicebus.entities.indexes import SentMessageId
from local.servicebus.message import StoredMessage
from local.servicebus.rules import SubscriptionRule

type EntityConfig = QueueConfig | TopicConfig | SubscriptionConfig


@dataclass(frozen=True, slots=True)
class SessionState:
    """The bytes that were kept with a session, and when, in seconds since 1970."""

    content: bytes
    updated_at: float


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """The stored content of one queue or topic."""

    last_sequence_number: int = 0
    messages: tuple[StoredMessage, ...] = ()
    session_states: dict[str, SessionState] = field(default_factory=dict)
    sent_ids: tuple[SentMessageId, ...] = ()


class MessageStore:
    """Records changes. A change is durable only when the caller has committed."""

    def load(self, queue: str) -> StoredQueue:  # noqa: ARG002
        """Return what was stored. Locks are not: a locked message comes back active."""
        return StoredQueue()

    def save_message(self, queue: str, stored: StoredMessage) -> None:
        """Record a message as it now is."""

    def delete_message(self, queue: str, sequence_number: int) -> None:
        """Record that a message has left the queue."""

    def save_last_sequence_number(self, queue: str, number: int) -> None:
        """Record the last sequence number given out."""

    def save_session_state(self, queue: str, session_id: str, state: SessionState | None) -> None:
        """Record a session's state; None clears it."""

    def save_sent_id(self, queue: str, sent: SentMessageId) -> None:
        """Record that a message id was sent."""

    def delete_sent_id(self, queue: str, message_id: str) -> None:
        """Record that a message id may be sent again."""

    def load_rules(self, subscription: str) -> list[SubscriptionRule] | None:  # noqa: ARG002
        """The rules as clients left them; None if they never changed the declared ones."""
        return None

    def save_rules(self, subscription: str, rules: Sequence[SubscriptionRule]) -> None:
        """Record all rules of a subscription, in their order."""

    def load_declarations(self) -> dict[str, EntityConfig | None]:
        """Return what clients declared by the name of the entity; None where they removed it."""
        return {}

    def save_declaration(self, entity: str, declaration: EntityConfig | None) -> None:
        """Record that an entity was declared so, or removed."""

    def forget(self, queue: str) -> None:
        """Record that a queue or topic is gone with all that is stored of it."""

    def commit(self) -> None:
        """Make everything recorded so far outlive the process."""

    def close(self) -> None:
        """Commit and close the files, if there are any."""
