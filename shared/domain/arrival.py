"""Messages without a number: which one the journal gives them, and when they may be taken.

A marker proves that a message was seen, and is kept for a time. A message is taken only while its
marker, had there been one, would still be there; so it has to say when it was sent.
"""

from datetime import UTC, datetime

from shared.domain.errors import InvalidMessage
from shared.domain.journal import ARRIVALS, Entry, Status, cursor_of
from shared.domain.message import Message, Number

# How far senders' and workers' clocks may be apart.
CLOCK_SLACK_SECONDS = 3600


def marker_seconds(window_seconds: float) -> int:
    """How long a marker is kept, so that no copy within the window outlives it."""
    return int(window_seconds) + 2 * CLOCK_SLACK_SECONDS


def too_old(message: Message, today: float, window_seconds: float) -> str | None:
    """Why an un-numbered message is not taken, or None.

    `today` is in seconds since 1970. Raises InvalidMessage where the message does not say when it
    was sent, or says that it will be.
    """
    if message.number is not None:
        return None
    age = today - sent_at(message)
    if age < -CLOCK_SLACK_SECONDS:
        raise InvalidMessage(f"message {message.id!r} comes from {-age:.0f} s in the future")
    if age <= window_seconds:
        return None
    return f"un-numbered and {age:.0f} s old, over the {window_seconds:.0f} s that are remembered"


def sent_at(message: Message) -> float:
    """When the message was sent, in seconds since 1970; a time without a zone is UTC."""
    if message.time is None:
        raise InvalidMessage(f"message {message.id!r} has neither a number nor a time")
    try:
        sent = datetime.fromisoformat(message.time)
    except ValueError:
        raise InvalidMessage(f"message {message.id!r} has no ISO 8601 time") from None
    return (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp()


def number_in(
    head: Entry | None, message: Message, *, from_parked: bool = False, resolving: bool = False
) -> Number:
    """The message's own number, or the one the journal gives it for its place of arrival."""
    if message.number is not None:
        return message.number
    if resolving and head is not None and head.halt is not None:
        return head.halt.number
    place = cursor_of(head, ARRIVALS).next
    if head is not None and not from_parked:
        place += head.parked.get(ARRIVALS, 0) + holds_arrival(head)
    return Number(ARRIVALS, 0, place)


def holds_arrival(head: Entry) -> bool:
    """Whether a message by arrival is stuck at its place: at a fault, or in somebody's claim."""
    if head.status is Status.WORKING:
        return head.covers[0].number.group == ARRIVALS
    return head.halt is not None and head.halt.number.group == ARRIVALS
