"""The heads a worker remembers between messages."""

from collections import OrderedDict
from dataclasses import dataclass

from shared.domain.journal import Entry


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head, and whether this worker made it: then it is probably still the newest."""

    entry: Entry
    is_ours: bool


class KnownHeads:
    """A bounded memory of heads. A stale one costs a conflict and a read, never correctness."""

    def __init__(self, sessions_max: int = 10_000) -> None:
        self.sessions_max = sessions_max
        self.heads: OrderedDict[str, KnownHead] = OrderedDict()

    def get(self, session: str) -> Entry | None:
        """The remembered head, if any."""
        known = self.heads.get(session)
        return known.entry if known else None

    def ours(self, session: str) -> Entry | None:
        """The remembered head, if this worker made it."""
        known = self.heads.get(session)
        return known.entry if known and known.is_ours else None

    def learn(self, session: str, head: Entry | None, *, is_ours: bool = False) -> None:
        """Remember a head; the session heard of longest ago is forgotten first."""
        self.forget(session)
        if head is not None:
            self.heads[session] = KnownHead(head, is_ours)
        if len(self.heads) > self.sessions_max:
            self.heads.popitem(last=False)

    def forget(self, session: str) -> None:
        """Trust nothing about a session."""
        self.heads.pop(session, None)
