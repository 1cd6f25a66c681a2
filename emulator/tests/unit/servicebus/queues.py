"""Queues for tests in virtual time: tokens are counted, nothing is stored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from uuid import UUID

from local.servicebus.config import QueueConfig
from local.servicebus.entities.plain_queue import PlainQueue
from local.servicebus.entities.queue import QueueOptions
from local.servicebus.entities.session_queue import SessionQueue
from local.servicebus.entities.store import MessageStore
from local.servicebus.message import BrokeredMessage, StoredMessage
from local.servicebus.rules import RuleSet, SubscriptionRule

LOCK_SECONDS = 10.0


def counted_tokens() -> Callable[[], UUID]:
    numbers = count(1)
    return lambda: UUID(int=next(numbers))


def dead_letter_queue() -> PlainQueue:
    config = QueueConfig("dead", lock_seconds=LOCK_SECONDS)
    return PlainQueue(config, QueueOptions(MessageStore(), new_lock_token=counted_tokens()))


def rule_set(rules: Sequence[SubscriptionRule] | None) -> RuleSet | None:
    return None if rules is None else RuleSet(rules)


@dataclass(eq=False)
class Consumer:
    """Holds a session; counts how often it was told that the session is lost."""

    name: str = ""
    connection: object = None
    losses: int = 0

    def accept_ready(self) -> None:
        raise AssertionError("it does not wait")

    def deliver(self) -> None:
        """It receives by itself."""

    def on_session_lost(self) -> None:
        self.losses += 1


def plain_queue(
    max_delivery_count: int = 3,
    rules: Sequence[SubscriptionRule] | None = None,
    **limits: float | bool | None,
) -> PlainQueue:
    config = QueueConfig("q", False, LOCK_SECONDS, max_delivery_count, **limits)  # type: ignore[arg-type]
    return PlainQueue(
        config,
        QueueOptions(
            store=MessageStore(),
            new_lock_token=counted_tokens(),
            dead_letters=dead_letter_queue(),
            rules=rule_set(rules),
        ),
    )


def session_queue(
    max_delivery_count: int = 3,
    rules: Sequence[SubscriptionRule] | None = None,
    count_expired_lock: Callable[[], None] = lambda: None,
) -> SessionQueue:
    config = QueueConfig("q", True, LOCK_SECONDS, max_delivery_count)
    return SessionQueue(
        config,
        QueueOptions(
            store=MessageStore(),
            new_lock_token=counted_tokens(),
            dead_letters=dead_letter_queue(),
            rules=rule_set(rules),
            count_expired_lock=count_expired_lock,
        ),
    )


def message(body: str, session_id: str | None = None, **times: float) -> BrokeredMessage:
    return BrokeredMessage(body.encode(), session_id, **times)  # type: ignore[arg-type]


def body(stored: StoredMessage | None) -> str | None:
    return None if stored is None else stored.message.encoded.decode()


def token(stored: StoredMessage | None) -> UUID:
    assert stored is not None
    assert stored.lock is not None
    return stored.lock.token
