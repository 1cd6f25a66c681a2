"""The sessions that a background run tried to help in vain: the others come first."""

from collections.abc import Sequence
from dataclasses import dataclass

# So many sessions are excluded from a search at most.
EXCLUDED_MAX = 1_000
# A session that is tried in vain again and again is tried once in so many seconds.
PAUSE_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class FailedTry:
    """The last try at a session: its place among all tries, and when the next one is due."""

    place: int
    pause_seconds: float
    due: float


class FailedSessions:
    """The sessions that were tried in vain, in the order of the last try.

    Each try in vain doubles the pause before the next one, from `pause_seconds` on.
    """

    def __init__(self, pause_seconds: float = 0.0) -> None:
        self.pause_seconds = pause_seconds
        self.tried: dict[str, FailedTry] = {}
        self.tries = 0

    def newest(self) -> list[str]:
        """Return the sessions tried in vain, the last one first: a search may exclude them."""
        return sorted(self.tried, key=lambda session: -self.tried[session].place)[:EXCLUDED_MAX]

    def order(self, found: Sequence[str], now: float = 0.0) -> list[str]:
        """Return the found sessions in order: untried ones, then those tried in vain and due."""
        fresh = [session for session in found if session not in self.tried]
        due = [session for session, last in self.tried.items() if last.due <= now]
        return fresh + sorted(due, key=lambda session: self.tried[session].place)

    def record(self, session: str, *, succeeded: bool, now: float = 0.0) -> None:
        """Note the result of a try. A session that was helped is as good as new."""
        last = self.tried.pop(session, None)
        if succeeded:
            return
        self.tries += 1
        pause = min(2 * last.pause_seconds, PAUSE_SECONDS_MAX) if last else self.pause_seconds
        self.tried[session] = FailedTry(self.tries, pause, now + pause)
