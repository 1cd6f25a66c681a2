"""Message ids seen lately: how a repeated send is recognised."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """A message id, when it was first sent (seconds since 1970), and the number it was given."""

    message_id: str
    at: float
    sequence_number: int


class Duplicates:
    """Remembers each id for a window of time from its first send; without a window, nothing."""

    def __init__(self, window_seconds: float | None) -> None:
        self._window_seconds = window_seconds
        self._seen: dict[str, Seen] = {}  # in the order of time

    def restore(self, seen: Iterable[Seen]) -> None:
        """Begin with what an earlier process remembered, earliest first."""
        self._seen = {one.message_id: one for one in seen}

    def find(self, message_id: str | None, now: float) -> Seen | None:
        """The earlier send of this id, if there was one in the window."""
        seen = self._seen.get(message_id) if message_id is not None else None
        return None if seen is None or self._is_old(seen, now) else seen

    def note(self, message_id: str | None, sequence_number: int, now: float) -> Seen | None:
        """Remember a send; returns what there is now to remember, if anything."""
        if message_id is None or self._window_seconds is None:
            return None
        self._seen.pop(message_id, None)
        seen = self._seen[message_id] = Seen(message_id, now, sequence_number)
        return seen

    def forget_old(self, now: float) -> list[str]:
        """Drop the ids whose window is over; returns them."""
        old: list[str] = []
        for message_id, seen in self._seen.items():
            if not self._is_old(seen, now):
                break
            old.append(message_id)
        for message_id in old:
            del self._seen[message_id]
        return old

    def _is_old(self, seen: Seen, now: float) -> bool:
        return self._window_seconds is None or now - seen.at >= self._window_seconds
