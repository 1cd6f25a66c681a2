"""Which sessions a background run tried to help in vain, so that the others come first."""

from collections.abc import Sequence

# So many sessions are excluded from a search at most.
EXCLUDED_MAX = 1_000


class FailedSessions:
    """The sessions that were tried in vain, in the order of the last try."""

    def __init__(self) -> None:
        self.tried_at: dict[str, int] = {}
        self.tries = 0

    def newest(self) -> list[str]:
        """Those tried in vain, the last one first: a search may exclude them."""
        return sorted(self.tried_at, key=lambda session: -self.tried_at[session])[:EXCLUDED_MAX]

    def order(self, found: Sequence[str]) -> list[str]:
        """Those found that were not tried yet, in their order, then all that were tried in vain."""
        fresh = [session for session in found if session not in self.tried_at]
        return fresh + sorted(self.tried_at, key=lambda session: self.tried_at[session])

    def record(self, session: str, *, succeeded: bool) -> None:
        if succeeded:
            self.tried_at.pop(session, None)
        else:
            self.tries += 1
            self.tried_at[session] = self.tries
