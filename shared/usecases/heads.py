"""The heads a worker remembers between messages."""

from dataclasses import dataclass

from shared.domain.journal import Entry
from shared.usecases.recent import Recent


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head, and whether this worker made it: then it is probably still the newest."""

    entry: Entry
    is_ours: bool


class KnownHeads:
    """A bounded memory of heads. A stale one costs a conflict and a read, never correctness."""

    def __init__(self, sessions_max: int = 10_000) -> None:
        self.heads: Recent[str, KnownHead] = Recent(sessions_max)

    def get(self, session: str) -> Entry | None:
        """The remembered head, if any."""
        known = self.heads.get(session)
        return known.entry if known else None

    def ours(self, session: str) -> Entry | None:
        """The remembered head, if this worker made it."""
        known = self.heads.get(session)
        return known.entry if known and known.is_ours else None

    def learn(self, session: str, head: Entry | None, *, is_ours: bool = False) -> None:
        """Remember a head, or that none is known."""
        if head is None:
            self.forget(session)
        else:
            self.heads[session] = KnownHead(head, is_ours)

    def forget(self, session: str) -> None:
        """Trust nothing about a session."""
        self.heads.pop(session, None)
