"""What the use cases need of the outside: a journal, a bus and a clock.

Two implementations of each exist, the SDK adapters and the in-memory twin; one contract suite holds
both to what is written here. Every method may raise Unavailable (nothing happened) and, where it
writes, OutcomeUnknown (it may have happened, or may still).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.domain.batch import Appended
from shared.domain.journal import Entry
from shared.domain.message import Message, Number
from shared.domain.outbox import Outbox, Owing
from shared.domain.producer import Ledger


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger and the version it was read at."""

    ledger: Ledger
    version: str


class Journal(Protocol):
    """The append-only journals of all sessions, and the producers' ledgers beside them."""

    async def head(self, session: str) -> Entry | None:
        """The newest entry, as new as any append acknowledged before the call; None if none."""
        ...

    async def entry(self, session: str, position: int) -> Entry | None:
        """The entry at a position, or None."""
        ...

    async def append(self, entry: Entry) -> Appended:
        """Apply `append_operations` of the entry, all or none.

        Of all appends at one position at most one is ever CREATED, and only on an entry before it
        that exists.
        """
        ...

    async def parked(self, session: str, number: Number) -> Message | None:
        """The message parked under a number, or None."""
        ...

    async def sessions_faulted(self, *, limit: int) -> Sequence[str]:
        """Sessions that have a faulted entry, resolved or not, each named once."""
        ...

    async def sessions_owing(self, *, older_than_seconds: float, limit: int) -> Sequence[str]:
        """Sessions with unpaid outboxes, the longest waiting first, aged by the store's clock.

        At most `limit` outboxes are looked at; each session is named once.
        """
        ...

    async def owing_of(self, session: str) -> Sequence[Owing]:
        """Every unpaid outbox of a session, in no particular order."""
        ...

    async def owe(self, session: str, outbox: Outbox) -> None:
        """Keep a producer's outbox until it is paid. Owing the same twice is owing it once."""
        ...

    async def acknowledge(self, session: str, document_id: str, delivered: Sequence[str]) -> None:
        """Strike regions off an outbox. Doing so twice, or when it is paid already, is harmless."""
        ...

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        """A producer group's ledger in a session."""
        ...

    async def save_ledger(self, session: str, ledger: Ledger, version: str | None) -> bool:
        """Create (version None) or replace a ledger; False when another producer was first."""
        ...


class Bus(Protocol):
    """The queues of all regions."""

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """Send messages of one session, in order; they become visible after the delay.

        Sending again after OutcomeUnknown or Unavailable is safe: receivers know the numbers.
        """
        ...


class Clock(Protocol):
    """Time passing in this process; never compared with another machine's."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        ...
