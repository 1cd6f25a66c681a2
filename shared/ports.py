"""What the use cases need of the outside: a journal, a bus and a clock.

Two implementations of each exist, the SDK adapters and the in-memory twin; one contract suite holds
both to what is written here. Every method may raise Unavailable (nothing happened) and, where it
writes, OutcomeUnknown (it may have happened, or may still).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from shared.domain.batch import NOTHING_CARRIED, Appended, Carried, Waiting
from shared.domain.journal import Covered, Entry, Mark
from shared.domain.message import Message, Number
from shared.domain.outbox import NOTHING_OWED, Outbox, Owing, Parcel, Staged
from shared.domain.producer import Ledger


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger and the version it was read at."""

    ledger: Ledger
    version: str


@dataclass(frozen=True, slots=True)
class Held:
    """An entry as stored: its version, and when it was written and read, by the store's clock."""

    entry: Entry
    version: str
    written_at: float
    read_at: float

    @property
    def since(self) -> float:
        """When it was written by its owner: what others parked beside a claim does not count."""
        since = self.entry.lease.since if self.entry.lease else None
        return self.written_at if since is None else since

    @property
    def age_seconds(self) -> float:
        """How long ago that was."""
        return self.read_at - self.since

    @property
    def expired(self) -> bool:
        """Whether this is a claim whose lease has run out."""
        # The store tells times in whole seconds, so an age may be one too high.
        return self.entry.lease is not None and self.age_seconds > self.entry.lease.seconds + 1


class Sought(Enum):
    """What a session is looked for by: something in it that may need somebody."""

    OWING = "owing"  # an outbox owes something to a region
    CLAIMED = "claimed"  # an entry is claimed
    WAITING = "waiting"  # a message is parked
    FAULTED = "faulted"  # an entry is a fault, resolved or not, or an output was refused
    MILESTONE = "milestone"  # there are many entries


type Covers = Sequence[Covered]

# Of a session's unpaid outboxes so many are listed at once.
OWING_MAX = 1_000


class Journal(Protocol):
    """The append-only journals of all sessions, and the producers' ledgers beside them."""

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:
        """The newest entry, as new as any append acknowledged before the call; None if none.

        Where an older one will do (`newest` false), it may be older, and costs half.
        """
        ...

    async def entry(self, session: str, position: int) -> Entry | None:
        """The entry at a position, or None."""
        ...

    async def held(self, session: str, position: int) -> Held | None:
        """The entry at a position with its version and age, or None."""
        ...

    async def covers(self, session: str, position: int, limit: int) -> Mapping[int, Covers]:
        """What the entries from a position on cover, by position: at most `limit` of them.

        The newest ones may be missing, and claims are. A `limit` of one is a point read.
        """
        ...

    async def marked(self, session: str, message_id: str) -> Mark | None:
        """What the marker of an un-numbered message says, while it is kept; a new one may miss."""
        ...

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> Appended:
        """Apply `append_operations`, all or none.

        Of all appends at one position at most one is ever CREATED, and only on an entry before it
        that exists. Raises TooLarge for more than the store takes at once.
        """
        ...

    async def replace(
        self,
        entry: Entry,
        version: str,
        carried: Carried = NOTHING_CARRIED,
        waiting: Waiting | None = None,
    ) -> Appended:
        """Apply `replace_operations`, all or none: CREATED, or TAKEN if the version is another.

        Raises TooLarge for more than the store takes at once.
        """
        ...

    async def parked(self, session: str, number: Number) -> Message | None:
        """The message parked under a number, or None."""
        ...

    async def sessions(
        self,
        sought: Sought,
        *,
        region: str = "",
        older_than_seconds: float = 0.0,
        but_for: Sequence[str] = (),
        limit: int,
    ) -> Sequence[str]:
        """Sessions in which something is sought, the oldest first, each named once.

        Ages are by the store's clock. At most `limit` documents are looked at; those of the
        sessions `but_for` do not count. OWING is asked for one region.
        """
        ...

    async def faults_of(self, session: str) -> Sequence[Entry]:
        """A session's faults, resolved or not, and entries with refused outputs, in order.

        A long list may be cut.
        """
        ...

    async def owing_of(
        self, session: str, regions: Sequence[str], *, limit: int = OWING_MAX
    ) -> Sequence[Owing]:
        """A session's outboxes that owe one of these regions: at most `limit`, the oldest entries'.

        A producer's come after all entries'; they are in no order.
        """
        ...

    async def owe(self, session: str, outbox: Outbox) -> None:
        """Keep a producer's outbox until it is paid. Owing the same twice is owing it once."""
        ...

    async def acknowledge(
        self,
        session: str,
        document_id: str,
        delivered: Sequence[str],
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """Strike regions off an outbox. Doing so twice, or when it is paid already, is harmless.

        `refused` are outputs that no queue takes, by id, with the reason.
        """
        ...

    async def stage(self, session: str, attempt: str, parcels: Sequence[Parcel]) -> None:
        """Keep an attempt's outputs until it commits or has had its time. Raises TooLarge."""
        ...

    async def staged(self, session: str, staged: Staged) -> Sequence[Parcel]:
        """The outputs that were staged; fewer if they are gone."""
        ...

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        """A producer group's ledger in a session."""
        ...

    async def save_ledger(
        self, session: str, ledger: Ledger, version: str | None, owed: Outbox = NOTHING_OWED
    ) -> str | None:
        """Create (version None) or replace a ledger, and keep what its newest numbers owe.

        Both, or neither. The answer is the version stored, or None when another producer was first.
        Raises TooLarge.
        """
        ...

    async def compactable(self, session: str, limit: int) -> Sequence[Entry]:
        """The oldest entries of a session, in order."""
        ...

    async def milestone(self, session: str, older_than_seconds: float) -> int | None:
        """The newest marked position that is older than this by the store's clock."""
        ...

    async def compact(self, session: str, positions: Sequence[int], passed: int | None) -> None:
        """Remove entries, at most 99 at once, and unmark a milestone below which none is left.

        Doing so twice is harmless.
        """
        ...


class Bus(Protocol):
    """The queues of all regions."""

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """Send messages of one session, in order; they become visible after the delay.

        Sending again after OutcomeUnknown or Unavailable is safe: receivers know the numbers.
        Raises InvalidMessage where the queue will never take one of them.
        """
        ...


class Clock(Protocol):
    """Time in this process; never compared with another machine's for a lease."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def today(self) -> float:
        """Seconds since 1970, right to the hour: for windows of days only."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        ...
