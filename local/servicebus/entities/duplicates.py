"""Duplicate detection: a message id that was sent before in a window of time."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SentMessageId:
    """A message id, when it was first sent (seconds since 1970), and its sequence number."""

    message_id: str
    at: float
    sequence_number: int


class DuplicateDetection:
    """Remembers each message id for a window of time from its first send."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._sent: dict[str, SentMessageId] = {}  # in the order of time

    def restore(self, sent: Iterable[SentMessageId]) -> None:
        """Begin with what an earlier process stored, earliest first."""
        self._sent = {one.message_id: one for one in sent}

    def find(self, message_id: str, now: float) -> SentMessageId | None:
        """The earlier send of this id, if there was one in the window."""
        sent = self._sent.get(message_id)
        return None if sent is None or now - sent.at >= self._window_seconds else sent

    def add(self, message_id: str, sequence_number: int, now: float) -> SentMessageId:
        self._sent.pop(message_id, None)  # so that it goes to the end of the order
        sent = self._sent[message_id] = SentMessageId(message_id, now, sequence_number)
        return sent

    def remove_expired(self, now: float) -> list[str]:
        """Drop the ids whose window is over; returns them."""
        expired: list[str] = []
        for message_id, sent in self._sent.items():
            if now - sent.at < self._window_seconds:
                break
            expired.append(message_id)
        for message_id in expired:
            del self._sent[message_id]
        return expired
