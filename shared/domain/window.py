"""How long a message without a number is told from its copies, and when it is too old to be taken.

A marker proves that such a message was seen, and is kept for a time. A message is taken only while
its marker, had there been one, would still be there; so it has to say when it was sent.
"""

from datetime import UTC, datetime

from shared.domain.errors import InvalidMessage
from shared.domain.message import Message

# How far senders' and workers' clocks may be apart.
CLOCK_SLACK_SECONDS = 3600


def marker_seconds(window_seconds: float) -> int:
    """How long a marker is kept, so that no copy within the window outlives it."""
    return int(window_seconds) + 2 * CLOCK_SLACK_SECONDS


def explain_expiry(message: Message, today: float, window_seconds: float) -> str | None:
    """Why an un-numbered message is too old to be taken, or None where it is not.

    `today` is in seconds since 1970. Raises InvalidMessage where the message does not say when it
    was sent, or says that it will be.
    """
    if message.number is not None:
        return None
    age = today - sending_time(message)
    if age < -CLOCK_SLACK_SECONDS:
        raise InvalidMessage(f"message {message.id!r} comes from {-age:.0f} s in the future")
    if age <= window_seconds:
        return None
    return f"un-numbered and {age:.0f} s old, over the {window_seconds:.0f} s that are remembered"


def sending_time(message: Message) -> float:
    """When the message was sent, in seconds since 1970; a time without a zone is UTC."""
    if message.time is None:
        raise InvalidMessage(f"message {message.id!r} has neither a number nor a time")
    try:
        sent = datetime.fromisoformat(message.time)
    except ValueError:
        raise InvalidMessage(f"message {message.id!r} has no ISO 8601 time") from None
    return (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp()
