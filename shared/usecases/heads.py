"""The heads a worker remembers between messages."""

from collections import OrderedDict

from shared.domain.journal import Entry


class KnownHeads:
    """A bounded memory of heads. A stale one costs a conflict and a read, never correctness."""

    def __init__(self, sessions_max: int = 10_000) -> None:
        self.sessions_max = sessions_max
        self.heads: OrderedDict[str, Entry] = OrderedDict()

    def get(self, session: str) -> Entry | None:
        """The remembered head, if any."""
        return self.heads.get(session)

    def learn(self, session: str, head: Entry | None) -> None:
        """Remember a head; the session heard of longest ago is forgotten first."""
        self.forget(session)
        if head is not None:
            self.heads[session] = head
        if len(self.heads) > self.sessions_max:
            self.heads.popitem(last=False)

    def forget(self, session: str) -> None:
        """Trust nothing about a session."""
        self.heads.pop(session, None)
