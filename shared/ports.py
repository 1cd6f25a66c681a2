"""What the engine needs of the outside: the journals, the queues of all regions, and a clock.

The journal is split by who reads it: `Entries` for a message's way, `Outboxes` for delivery,
`Ledgers` for producers, `Maintenance` for sweeps, compaction and operators. Two implementations of
everything exist, the SDK adapters and the in-memory twin; one contract suite holds both to what is
written here. Every method may raise Unavailable (nothing happened) and, where it writes,
OutcomeUnknown (it may have happened, or may still).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from shared.domain.journal import Entry, Marker, MessageIdentity
from shared.domain.message import Message, Number
from shared.domain.outbox import NO_OUTBOX, DestinationBatch, Outbox, PendingOutbox, Staged
from shared.domain.producer import Ledger

# How long the proof that an un-numbered message was seen is kept.
MARKER_SECONDS = 7 * 24 * 3600
# Of a session's pending outboxes so many are listed at once.
PENDING_MAX = 1_000


class WriteResult(Enum):
    """What became of a write at the end of a journal."""

    CREATED = auto()
    # The position holds another entry or version, which may be our own earlier try: compare.
    TAKEN = auto()
    # Something the entry builds on is gone: its head is out of date.
    ORPHANED = auto()
    # The message to be parked is parked already.
    PARKED_BEFORE = auto()
    # The un-numbered message has its entry already.
    SEEN_BEFORE = auto()


@dataclass(frozen=True, slots=True)
class Carried:
    """What an entry's batch does beside creating it.

    `acknowledges` says that every region took the predecessor's outbox: saying so here costs no
    write of its own. `marker_seconds` is how long the markers of its messages are kept.
    """

    acknowledges: bool = False
    marker_seconds: int = MARKER_SECONDS


NOTHING_CARRIED = Carried()


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message to be parked beside a claim, and the identity it is parked under."""

    message: Message
    identity: MessageIdentity


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as stored: its version, and when it was written and read, by the store's clock."""

    entry: Entry
    version: str
    written_at: float
    read_at: float

    @property
    def claimed_at(self) -> float:
        """When its owner wrote it last; what others parked beside a claim does not count."""
        since = self.entry.lease.since if self.entry.lease else None
        return self.written_at if since is None else since

    @property
    def age_seconds(self) -> float:
        """How long ago that was."""
        return self.read_at - self.claimed_at

    @property
    def is_expired(self) -> bool:
        """Whether this is a claim whose lease has run out."""
        # The store tells times in whole seconds, so an age may be one too high.
        return self.entry.lease is not None and self.age_seconds > self.entry.lease.seconds + 1


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger and the version it was read at."""

    ledger: Ledger
    version: str


class SessionNeed(Enum):
    """What a session is searched for by: something in it that may need somebody."""

    DELIVERY = "delivery"  # an outbox waits for a region
    TAKE_OVER = "take-over"  # an entry is claimed, perhaps by an owner that is gone
    DRAINING = "draining"  # a message is parked
    RESOLUTION = "resolution"  # an entry is a fault, resolved or not, or an output was refused
    COMPACTION = "compaction"  # there are many entries


class Entries(Protocol):
    """The entries of all sessions, and the messages that wait beside them."""

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:
        """The newest entry, as new as any append acknowledged before the call; None if none.

        With `newest` false it may be an older one, and costs half.
        """
        ...

    async def entry(self, session: str, position: int) -> Entry | None:
        """The entry at a position, or None."""
        ...

    async def stored_entry(self, session: str, position: int) -> StoredEntry | None:
        """The entry at a position with its version and age, or None."""
        ...

    async def processed(
        self, session: str, position: int, limit: int
    ) -> Mapping[int, Sequence[MessageIdentity]]:
        """Which messages the entries from a position on processed: at most `limit` entries.

        The newest entries may be missing, and claims are. A `limit` of one is a point read.
        """
        ...

    async def marker(self, session: str, message_id: str) -> Marker | None:
        """The marker of an un-numbered message, while it is kept; a new one may be missed."""
        ...

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> WriteResult:
        """Write the entry with everything that belongs to it, all or none.

        Of all appends at one position at most one is ever CREATED, and only on an entry before it
        that exists. Raises TooLarge for more than the store takes at once.
        """
        ...

    async def replace(
        self,
        entry: Entry,
        version: str,
        carried: Carried = NOTHING_CARRIED,
        waiting: ParkedMessage | None = None,
    ) -> WriteResult:
        """Replace a claim, and park a message beside it, all or none.

        CREATED, or TAKEN if the version is another. Raises TooLarge for more than the store takes
        at once.
        """
        ...

    async def parked(self, session: str, number: Number) -> Message | None:
        """The message parked under a number, or None."""
        ...


class Outboxes(Protocol):
    """What waits to be delivered to regions."""

    async def pending(
        self, session: str, regions: Sequence[str], *, limit: int = PENDING_MAX
    ) -> Sequence[PendingOutbox]:
        """A session's outboxes that wait for one of these regions: at most `limit`, oldest first.

        A producer's come after all entries'; they are in no order.
        """
        ...

    async def add_pending(self, session: str, outbox: Outbox) -> None:
        """Keep a producer's outbox until it is delivered. Adding it twice is adding it once."""
        ...

    async def acknowledge(
        self,
        pending: PendingOutbox,
        delivered: Sequence[str],
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """Strike regions off an outbox. Doing so twice, or when all have it already, is harmless.

        `refused` are outputs that no queue takes, by id, with the reason.
        """
        ...

    async def stage(self, session: str, attempt: str, batches: Sequence[DestinationBatch]) -> None:
        """Keep an attempt's outputs until it commits or has had its time. Raises TooLarge."""
        ...

    async def staged(self, session: str, staged: Staged) -> Sequence[DestinationBatch]:
        """The outputs that were staged; fewer if they are gone."""
        ...


class Ledgers(Protocol):
    """The producers' ledgers, which lie beside the journals."""

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        """A producer group's ledger in a session."""
        ...

    async def save_ledger(
        self, session: str, ledger: Ledger, version: str | None, pending: Outbox = NO_OUTBOX
    ) -> str | None:
        """Create (version None) or replace a ledger, and keep its newest messages until delivered.

        Both, or neither. The answer is the version stored, or None when another producer was first.
        Raises TooLarge.
        """
        ...


class Maintenance(Protocol):
    """What sweeps, compaction and operators look for."""

    async def sessions(
        self,
        need: SessionNeed,
        *,
        region: str = "",
        older_than_seconds: float = 0.0,
        excluded: Sequence[str] = (),
        limit: int,
    ) -> Sequence[str]:
        """Sessions with a need, the oldest first, each named once.

        Ages are by the store's clock. At most `limit` documents are looked at; those of the
        `excluded` sessions do not count. DELIVERY is asked for one region.
        """
        ...

    async def faulted_entries(self, session: str) -> Sequence[Entry]:
        """A session's faults, resolved or not, and entries with refused outputs, in order.

        A long list may be cut.
        """
        ...

    async def oldest_entries(self, session: str, limit: int) -> Sequence[Entry]:
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


class Journal(Entries, Outboxes, Ledgers, Maintenance, Protocol):
    """Everything that is kept of all sessions."""


class Bus(Protocol):
    """The queues and topics of all regions."""

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
