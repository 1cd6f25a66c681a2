"""What a queue tells its keeper, so that its content can outlive the process."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from local.servicebus.duplicates import Seen
from local.servicebus.message import StoredMessage
from local.servicebus.rules import Rule


@dataclass(frozen=True, slots=True)
class Kept:
    """What a ledger holds of one queue."""

    last_sequence_number: int = 0
    messages: tuple[StoredMessage, ...] = ()
    session_states: dict[str, bytes] = field(default_factory=dict)
    seen: tuple[Seen, ...] = ()


class Ledger(Protocol):
    """Records changes. A change counts as kept only when the caller has committed the ledger."""

    def load(self, queue: str) -> Kept:
        """What was kept of the queue. Locks are not kept: a locked message comes back active."""
        ...

    def keep(self, queue: str, stored: StoredMessage) -> None:
        """Record a message as it now is."""
        ...

    def forget(self, queue: str, sequence_number: int) -> None:
        """Record that a message has left the queue."""
        ...

    def number(self, queue: str, last_sequence_number: int) -> None:
        """Record the last sequence number given out."""
        ...

    def keep_session_state(self, queue: str, session_id: str, state: bytes | None) -> None:
        """Record a session's state; None clears it."""
        ...

    def remember(self, queue: str, seen: Seen) -> None:
        """Record that a message id was sent."""
        ...

    def unremember(self, queue: str, message_id: str) -> None:
        """Record that a message id may be sent again."""
        ...

    def load_rules(self, subscription: str) -> list[Rule] | None:
        """The rules as clients left them; None if they never changed the declared ones."""
        ...

    def keep_rules(self, subscription: str, rules: Sequence[Rule]) -> None:
        """Record all rules of a subscription, in their order."""
        ...

    def commit(self) -> None:
        """Make everything recorded so far outlive the process."""
        ...

    def close(self) -> None:
        """Commit and let go."""
        ...


class NoLedger:
    """Keeps nothing: the queues live as long as the process."""

    def load(self, queue: str) -> Kept:  # noqa: ARG002
        """Nothing was kept."""
        return Kept()

    def keep(self, queue: str, stored: StoredMessage) -> None:
        """Forgotten."""

    def forget(self, queue: str, sequence_number: int) -> None:
        """Already forgotten."""

    def number(self, queue: str, last_sequence_number: int) -> None:
        """Forgotten."""

    def keep_session_state(self, queue: str, session_id: str, state: bytes | None) -> None:
        """Forgotten."""

    def remember(self, queue: str, seen: Seen) -> None:
        """Forgotten."""

    def unremember(self, queue: str, message_id: str) -> None:
        """Already forgotten."""

    def load_rules(self, subscription: str) -> list[Rule] | None:  # noqa: ARG002
        """Nothing was kept."""
        return None

    def keep_rules(self, subscription: str, rules: Sequence[Rule]) -> None:
        """Forgotten."""

    def commit(self) -> None:
        """Nothing to commit."""

    def close(self) -> None:
        """Nothing to let go."""
