"""What the engine needs of the outside: the journals, the queues of all regions, and a clock.

The journal is split by who reads it: `Entries` for a message's way, `Outboxes` for delivery,
`Ledgers` and `Regions` for producers, `Maintenance` for sweeps, compaction and operators,
`Directory` for pages, and `Repetitions` for the error queue. Two
implementations of everything exist, the SDK adapters and the in-memory twin; one contract suite
holds both to what is written here. Every method may raise Unavailable (nothing happened) and, where
it writes, OutcomeUnknown (it may have happened, or may still).
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Protocol

from shared.domain.journal import (
    Entry,
    EvictedCursor,
    Marker,
    MessageIdentity,
    RecentEntry,
    Repetition,
    Resolution,
)
from shared.domain.measures import Measure
from shared.domain.message import OWN_SOURCE, Message, Number
from shared.domain.outbox import (
    NO_OUTBOX,
    Delivered,
    DestinationBatch,
    Outbox,
    OutputDecision,
    PendingOutbox,
    Staged,
)
from shared.domain.producer import NO_KEYS, BoundNumber, KeptKeys, Ledger
from shared.domain.standstill import ListPlace, Sign

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

    `left` are the regions that the predecessor's outbox still waits for, where that is to be
    recorded: doing so here costs no write of its own. `marker_seconds` is how long the markers of
    its messages are kept. `evicted` are the cursors of producer groups that the predecessor named
    and the entry does not.
    """

    left: tuple[str, ...] | None = None
    marker_seconds: int = MARKER_SECONDS
    evicted: Mapping[str, EvictedCursor] = field(default_factory=dict)


NOTHING_CARRIED = Carried()


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message to be parked beside a claim, and the identity it is parked under."""

    message: Message
    identity: MessageIdentity


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as stored: its version, and when it was written and read, by the store's clock.

    `is_marked` says that compaction finds its session by it.
    """

    entry: Entry
    version: str
    written_at: float
    read_at: float
    is_marked: bool = False

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
class StoredRegions:
    """The regions that a journal is kept for, and the version they were read at."""

    names: tuple[str, ...]
    version: str


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger and the version it was read at."""

    ledger: Ledger
    version: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What the broker gave up on: everything it carries, and why.

    A body that is no binary data, but a value or a sequence of AMQP, is text in UTF-8, or JSON;
    `reason` then says so.
    """

    session: str | None
    properties: Mapping[str, object]
    body: bytes
    reason: str


class SessionNeed(Enum):
    """What a session is searched for by: something in it that may need somebody."""

    DELIVERY = "delivery"  # an outbox waits for a region
    UNBLOCKING = "unblocking"  # an outbox has messages for a blocked queue
    TAKE_OVER = "take-over"  # an entry is claimed, perhaps by an owner that is gone
    DRAINING = "draining"  # a message is parked
    RESOLUTION = "resolution"  # a person has to decide about an entry
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

    async def cursor(self, session: str, group: str) -> EvictedCursor | None:
        """A producer group's cursor as it was evicted last, or None.

        As new as any append acknowledged before the call. It is older than that of an entry that
        names the group.
        """
        ...

    async def marker(
        self, session: str, message_id: str, source: str = OWN_SOURCE
    ) -> Marker | None:
        """The marker of an un-numbered message, while it is kept; a new one may be missed."""
        ...

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> WriteResult:
        """Write the entry with everything that belongs to it, all or none.

        Of all appends at one position at most one is ever CREATED, and only on an entry before it
        that exists. Raises NotStorable for what the store does not take.
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

        CREATED, or TAKEN if the version is another. Raises NotStorable for what the store does not
        take.
        """
        ...

    async def parked(self, session: str, number: Number) -> Message | None:
        """The message parked under a number, or None."""
        ...

    async def parked_run(self, session: str, number: Number, limit: int) -> Sequence[Message]:
        """The messages parked under a number and those right after it, up to the first gap.

        At most `limit`; the owner level of the number is of no account.
        """
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

    async def blocked(self, session: str) -> Sequence[PendingOutbox]:
        """A session's outboxes with blocked queues, the oldest entries first."""
        ...

    async def blocked_queues(self, region: str) -> Sequence[str]:
        """The region's blocked queues, once each; what has been blocked longest comes first."""
        ...

    async def acknowledge(self, pending: PendingOutbox, done: Delivered) -> None:
        """Record what a delivery of an outbox came to. Doing so twice is harmless."""
        ...

    async def leave_pending(self, session: str, position: int, regions: Sequence[str]) -> None:
        """Record which regions an entry's outbox still waits for, in one write without a read.

        For the worker that made the entry and sent its outputs, which must not be staged ones.
        """
        ...

    async def decide(self, pending: PendingOutbox, decisions: Mapping[str, OutputDecision]) -> None:
        """Record what a person decided about the outputs for blocked queues."""
        ...

    async def stage(self, session: str, attempt: str, batches: Sequence[DestinationBatch]) -> None:
        """Keep an attempt's outputs until it commits or has had its time. Raises NotStorable."""
        ...

    async def staged(self, session: str, staged: Staged) -> Sequence[DestinationBatch]:
        """The outputs that were staged; fewer if they are gone."""
        ...


class Ledgers(Protocol):
    """The producers' ledgers, which lie beside the journals."""

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        """A producer group's ledger in a session."""
        ...

    async def key(self, session: str, group: str, message_id: str) -> BoundNumber | None:
        """The number that a kept key is bound to, for as long as it is kept."""
        ...

    async def save_ledger(
        self,
        session: str,
        ledger: Ledger,
        version: str | None,
        pending: Outbox = NO_OUTBOX,
        keys: KeptKeys = NO_KEYS,
    ) -> str | None:
        """Create (version None) or replace a ledger, and keep its newest messages until delivered.

        All of it with its keys, or nothing. The answer is the version stored, or None when another
        producer was first, or one of the keys is kept already. Raises NotStorable.
        """
        ...


class Regions(Protocol):
    """The list of regions that everything in the journal is for."""

    async def regions(self) -> StoredRegions | None:
        """The stored list, or None while nobody has stored one."""
        ...

    async def save_regions(self, names: Sequence[str], version: str | None) -> bool:
        """Create (version None) or replace the list; false when somebody else was first."""
        ...


class Maintenance(Protocol):
    """What sweeps, compaction and operators look for."""

    async def has_work(self, region: str) -> bool:
        """Whether any session may need a sweep in a region: DELIVERY, UNBLOCKING, TAKE_OVER or
        DRAINING, at any age.
        """
        ...

    async def sessions(
        self,
        need: SessionNeed,
        *,
        region: str = "",
        queue: str = "",
        older_than_seconds: float = 0.0,
        of_regions: int = 0,
        excluded: Sequence[str] = (),
        limit: int,
    ) -> Sequence[str]:
        """Sessions with a need, the oldest first, each named once.

        Ages are by the store's clock, since the last change. At most `limit` documents are looked
        at; those of the `excluded` sessions do not count. DELIVERY is asked for one region,
        UNBLOCKING for one queue of it. With `of_regions`, the number of regions, those follow whose
        outbox fewer miss, at any age: another region's acknowledgement was their last change.
        """
        ...

    async def signs(
        self,
        needs: Collection[SessionNeed],
        regions: Sequence[str],
        *,
        session: str | None = None,
        older_than_seconds: float,
        after: ListPlace | None = None,
        limit: int,
    ) -> Sequence[Sign]:
        """What shows a need, in the order of the list, after a place: of all sessions, or of one.

        RESOLUTION, DRAINING and DELIVERY are looked for, the latter for these regions. A sign of
        these two counts once it is older than this, by the store's clock. Fewer than `limit` are
        the last ones.
        """
        ...

    async def first_parked(self, session: str, group: str) -> int | None:
        """The lowest sequence that a message of a group is parked under, or None."""
        ...

    async def close(
        self, session: str, position: int, version: str, closed: Resolution | None
    ) -> bool:
        """Record that an entry asks for nobody any more, and who decided so, where a person did.

        False where the entry was written since this version was read.
        """
        ...

    async def oldest_entries(self, session: str, limit: int) -> Sequence[StoredEntry]:
        """The oldest entries of a session, in order."""
        ...

    async def milestone(self, session: str, older_than_seconds: float) -> int | None:
        """The newest marked position that is older than this by the store's clock."""
        ...

    async def compact(
        self,
        session: str,
        positions: Sequence[int],
        marks: Mapping[int, bool],
        states: Sequence[int] = (),
    ) -> None:
        """Remove entries, and mark others or remove their marks: at most 100 in all, or nothing.

        `states` are those of the entries whose states lie beside them, which go as well. Writing a
        mark makes its entry young. Doing so twice is harmless.
        """
        ...


class Directory(Protocol):
    """What people look at. Nothing is decided by it, so it may be some seconds old."""

    async def listed(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """The sessions whose names begin with a prefix and come after a name, in their order."""
        ...

    async def recent_entries(self, seconds: float, limit: int) -> Sequence[RecentEntry]:
        """The newest entries of all sessions, at most so many seconds old, the newest first."""
        ...

    async def waiting_seconds(
        self, region: str, older_than_seconds: float, limit: int
    ) -> Sequence[float]:
        """For how long outboxes have waited for a region, the oldest first; at least so long."""
        ...


class Repetitions(Protocol):
    """What is recorded of reports in the error queue that a person sends again."""

    async def repetition(self, session: str, report: str) -> Repetition | None:
        """What is recorded of a report, by its session and its id, or None."""
        ...

    async def begin_repetition(
        self, session: str, report: str, repetition: Repetition
    ) -> Repetition:
        """Record it, unless one is recorded already; the answer is what is recorded."""
        ...

    async def end_repetition(self, session: str, report: str) -> None:
        """Record that it was sent. Doing so twice is harmless."""
        ...


class Journal(Entries, Outboxes, Ledgers, Regions, Maintenance, Directory, Repetitions, Protocol):
    """Everything that is kept of all sessions."""


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message that lies in a session queue, and its number there."""

    session: str
    sequence: int
    enqueued_at: datetime | None
    id: str
    type: str
    body: bytes


class Browser(Protocol):
    """A look into session queues that takes nothing; it holds a session's lock for a moment."""

    async def browse_session(
        self, region: str, queue: str, session: str, after: int, limit: int
    ) -> Sequence[BrowsedMessage]:
        """The messages of a session behind a number, in order. Raises Unavailable."""
        ...

    async def browse_sessions(
        self, region: str, queue: str, skip: int, limit: int
    ) -> Sequence[BrowsedMessage]:
        """The first message of each of `limit` sessions, after `skip` others. Raises Unavailable.

        Sessions that somebody else has locked are passed over; their order is the broker's.
        """
        ...


class Bus(Protocol):
    """The queues and topics of all regions."""

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """Send messages, in order; they become visible after the delay.

        They are of one session, unless the caller knows that the queue takes several in a batch.
        Sending again after OutcomeUnknown or Unavailable is safe: receivers know the numbers.
        Raises InvalidMessage where the queue will never take one of them. It has taken none then,
        as long as its own limit is the one that it told its senders.
        """
        ...

    async def end_dead_letters(
        self, region: str, queue: str, limit: int, end: Callable[[DeadLetter], Awaitable[bool]]
    ) -> int:
        """Give a queue's dead letters to `end`, and remove those for which it answers true.

        At most `limit` are given, one after another, and no more after some seconds. What is left
        comes again in a later call. How many were removed is returned.
        """
        ...

    async def look(self, region: str, queue: str) -> None:
        """Connect to a queue as a sender does; nothing is sent.

        Raises Misconfigured where it takes no messages before a person changes something.
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


class Span(Protocol):
    """Some work that is told about while it goes on."""

    @property
    def traceparent(self) -> str | None:
        """What follows from this work names this; None where the work is in no trace."""
        ...

    def describe(self, **attributes: str | float) -> None:
        """Say more of it."""
        ...


class Telemetry(Protocol):
    """What is told of a worker. Nothing depends on it; none of it raises, or holds a body."""

    def span(
        self, name: str, traceparent: str | None, **attributes: str | float
    ) -> AbstractContextManager[Span]:
        """Work in the trace of `traceparent`, or in a new one; what it calls belongs to it."""
        ...

    def commit(self, entry: Entry, seconds: float) -> None:
        """A new entry, and how long it took: a span for each of its messages that has a trace."""
        ...

    def send(
        self, region: str, queue: str, messages: Sequence[Message], seconds: float, failure: str
    ) -> None:
        """What was sent to a queue, in how long; `failure` is empty where the queue took it."""
        ...

    def add(self, measure: Measure, amount: float = 1, **attributes: str) -> None:
        """A value of a measure."""
        ...
