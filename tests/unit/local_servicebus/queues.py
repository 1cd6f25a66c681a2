"""Queues for tests in virtual time: tokens are counted, nothing is kept."""

from collections.abc import Callable
from itertools import count
from uuid import UUID

from local.servicebus.config import QueueConfig
from local.servicebus.ledger import NoLedger
from local.servicebus.message import Message, StoredMessage
from local.servicebus.plain_queue import PlainQueue
from local.servicebus.session_queue import SessionQueue

LOCK_SECONDS = 10.0


def counted_tokens() -> Callable[[], UUID]:
    numbers = count(1)
    return lambda: UUID(int=next(numbers))


def dead_letter_queue() -> PlainQueue:
    config = QueueConfig("dead", lock_seconds=LOCK_SECONDS)
    return PlainQueue(config, tokens=counted_tokens(), ledger=NoLedger(), dead_letters=None)


def plain_queue(max_delivery_count: int = 3, **limits: float | bool | None) -> PlainQueue:
    config = QueueConfig("q", False, LOCK_SECONDS, max_delivery_count, **limits)  # type: ignore[arg-type]
    return PlainQueue(
        config, tokens=counted_tokens(), ledger=NoLedger(), dead_letters=dead_letter_queue()
    )


def session_queue(max_delivery_count: int = 3) -> SessionQueue:
    config = QueueConfig("q", True, LOCK_SECONDS, max_delivery_count)
    return SessionQueue(
        config, tokens=counted_tokens(), ledger=NoLedger(), dead_letters=dead_letter_queue()
    )


def message(body: str, session_id: str | None = None, **times: float) -> Message:
    return Message(body.encode(), session_id, **times)  # type: ignore[arg-type]


def body(stored: StoredMessage | None) -> str | None:
    return None if stored is None else stored.message.encoded.decode()


def token(stored: StoredMessage | None) -> UUID:
    assert stored is not None
    assert stored.lock is not None
    return stored.lock.token
