"""The outside as the product needs it: a container, the queues of all regions, and a clock.

A container keeps documents; what is kept in them of sessions is for shared/storage/journal.py to
say, which is written once over any container. Two implementations of each exist: over the SDKs in
shared/adapters, and in memory in shared/testkit. One contract suite holds both to what is written
here. Every method may raise Unavailable (nothing happened) and, where it writes, OutcomeUnknown (it
may have happened, or may still).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Any, Protocol

from shared.domain.journal import Entry, EvictedCursor, MessageIdentity
from shared.domain.measures import Measure
from shared.domain.message import Message
from shared.domain.producer import Ledger

# How long the proof that an un-numbered message was seen is kept.
MARKER_SECONDS = 7 * 24 * 3600
# No id of a document is lower than the first, and none is higher than the second.
EVERY_ID = ("", "\U0010ffff")


class WriteResult(Enum):
    """The result of a write at the end of a journal."""

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
    """The part of an entry's batch beside its creation.

    `left` are the regions that the predecessor's outbox still waits for, where that is to be
    recorded: doing so here costs no write of its own. `marker_seconds` is how long the markers of
    its messages are kept. `evicted` are the cursors of producer groups that the predecessor named
    and the entry does not. `version` is that of the predecessor, where it must not have changed.
    `results` are those of steps, by name, that are put beside a claim.
    """

    left: tuple[str, ...] | None = None
    marker_seconds: int = MARKER_SECONDS
    evicted: Mapping[str, EvictedCursor] = field(default_factory=dict)
    version: str | None = None
    results: Mapping[str, Any] = field(default_factory=dict)


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
        """Return when its owner wrote it last; what others parked beside a claim does not count."""
        since = self.entry.lease.since if self.entry.lease else None
        return self.written_at if since is None else since

    @property
    def age_seconds(self) -> float:
        """Return how long ago that was."""
        return self.read_at - self.claimed_at

    @property
    def is_expired(self) -> bool:
        """Say whether this is a claim whose lease has run out."""
        # The store tells times in whole seconds, so an age may be one too high.
        return self.entry.lease is not None and self.age_seconds > self.entry.lease.seconds + 1


@dataclass(frozen=True, slots=True)
class StoredRegions:
    """The regions that a journal is kept for, and the version they were read at.

    `kept_for` are settings of the application that it belongs to, as far as one said so.
    """

    names: tuple[str, ...]
    version: str
    kept_for: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger and the version it was read at."""

    ledger: Ledger
    version: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A delivery that the broker gave up on: everything it carries, and why.

    A body that is no binary data, but a value or a sequence of AMQP, is text in UTF-8, or JSON;
    `reason` then says so, and it `is_unbound`: no host can give it to a function. `enqueued_at` is
    when the queue took it.
    """

    session: str | None
    properties: Mapping[str, object]
    body: bytes
    reason: str
    is_unbound: bool = False
    enqueued_at: datetime | None = None


class SessionNeed(Enum):
    """A need that sessions are searched by: something in one may need somebody."""

    DELIVERY = "delivery"  # an outbox waits for a region
    UNBLOCKING = "unblocking"  # an outbox has messages for a blocked queue
    TAKE_OVER = "take-over"  # an entry is claimed, perhaps by an owner that is gone
    DRAINING = "draining"  # a message is parked
    RESOLUTION = "resolution"  # a person has to decide about an entry
    COMPACTION = "compaction"  # there are many entries


type Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """Prove that a document exists."""

    document_id: str
    refused: WriteResult


@dataclass(frozen=True, slots=True)
class CreateDocument:
    """Create a document that must not exist."""

    document: Document
    refused: WriteResult


@dataclass(frozen=True, slots=True)
class UpsertDocument:
    """Store a document whether it exists or not."""

    document: Document
    refused: WriteResult = WriteResult.TAKEN


@dataclass(frozen=True, slots=True)
class ReplaceDocument:
    """Replace a document that must still be of this version."""

    document: Document
    version: str
    refused: WriteResult


@dataclass(frozen=True, slots=True)
class PatchDocument:
    """Set fields of a document that must exist, and be of this version where one is given.

    With `unless_empty`, the name of a field that is a list, this must have something in it.
    """

    document_id: str
    fields: Mapping[str, Any]
    refused: WriteResult
    version: str | None = None
    unless_empty: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteDocument:
    """Delete a document that must exist, and be of this version where one is given."""

    document_id: str
    refused: WriteResult
    version: str | None = None


# `refused` says what it means that the store does not take the operation.
type Operation = (
    ReadDocument
    | CreateDocument
    | UpsertDocument
    | ReplaceDocument
    | PatchDocument
    | DeleteDocument
)


@dataclass(slots=True)
class StoreClock:
    """The time on the store's own clock when it answered last, right to the second."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Query:
    """A description of documents, said twice: in SQL, and for a store that reads no SQL.

    `sql` with its `parameters` finds the documents that `matches` is true of, by the field `order`
    where one is named. `ids` are the lowest and the highest id that one of them can have, and
    `is_flagged` says that all of them show a need: a store may look there alone. `sql` may find
    some fields only, which `select` makes of a document where they are none of its own. With a
    `session` its partition alone is looked into. `is_enough` says of those that were found and the
    next one whether the search ends before it. What `may_be_old` costs half.
    """

    sql: str
    limit: int
    matches: Callable[[Document], bool] = bool  # any document
    parameters: Mapping[str, object] = field(default_factory=dict)
    session: str | None = None
    order: str = ""
    is_descending: bool = False
    ids: tuple[str, str] = EVERY_ID
    is_flagged: bool = False
    select: Callable[[Document], Document] = dict
    is_enough: Callable[[list[Document], Document], bool] | None = None
    may_be_old: bool = False


class Container(Protocol):
    """A place of documents, each of which belongs to a session, and has an id there.

    The store adds a version and a time to each document that it keeps.
    """

    async def read(
        self,
        session: str,
        document_id: str,
        *,
        may_be_old: bool = False,
        clock: StoreClock | None = None,
    ) -> Document | None:
        """Return a document, as new as any write acknowledged before the call; None if none.

        With `may_be_old` it may be an older one, and costs half. `clock` is set to the time.
        """

    async def write(self, session: str, operations: Sequence[Operation]) -> tuple[WriteResult, str]:
        """Apply operations to the documents of a session in this order, all or none.

        The answer is CREATED and the version of the last document, or what the first operation
        means that was refused. Raises NotStorable for what the store does not take.
        """

    async def find(self, query: Query, clock: StoreClock | None = None) -> list[Document]:
        """Return the first documents that a query finds; `clock` is set to the time before any."""

    async def look(self) -> None:
        """Ask for nothing in particular. Raises Unavailable where nothing can be read."""


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message that lies in a session queue, and its number there."""

    session: str
    sequence: int
    enqueued_at: datetime | None
    id: str
    type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Browsed:
    """The messages that a look into a queue saw; `is_all` says that it came to the end."""

    messages: Sequence[BrowsedMessage]
    is_all: bool


class Browser(Protocol):
    """A look into session queues that takes nothing; it holds a session's lock for a moment."""

    async def browse_session(
        self, region: str, queue: str, session: str, after: int, limit: int
    ) -> Browsed:
        """The messages of a session above a number, in order, `limit` at most.

        While somebody else has the session locked, none is seen, and that is not all. Raises
        Unavailable.
        """

    async def browse_sessions(self, region: str, queue: str, limit: int) -> Browsed:
        """The messages of all sessions, those of each in order, about `limit` in all.

        It is one look, because the broker gives sessions in another order each time. Sessions that
        somebody else has locked are passed over. Raises Unavailable.
        """


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

    async def end_dead_letters(
        self, region: str, queue: str, limit: int, end: Callable[[DeadLetter], Awaitable[bool]]
    ) -> int:
        """Give a queue's dead letters to `end`, and remove those for which it answers true.

        At most `limit` are given, one after another, and no more after some seconds. What is left
        comes again in a later call. How many were removed is returned.
        """

    async def look(self, region: str, queue: str) -> None:
        """Connect to a queue as a sender does; nothing is sent.

        Raises Misconfigured where it takes no messages before a person changes something.
        """


class Clock(Protocol):
    """Time in this process; never compared with another machine's for a lease."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def today(self) -> float:
        """Seconds since 1970, right to the hour: for windows of days only."""

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass."""


class Span(Protocol):
    """Some work that is told about while it goes on."""

    @property
    def traceparent(self) -> str | None:
        """Return the name of this work for what follows from it; None where it is in no trace."""

    def describe(self, **attributes: str | float) -> None:
        """Say more of it."""


class Telemetry(Protocol):
    """A listener to a worker. Nothing depends on it; none of it raises, or is told a body."""

    def span(
        self, name: str, traceparent: str | None, **attributes: str | float
    ) -> AbstractContextManager[Span]:
        """Work in the trace of `traceparent`, or in a new one; what it calls belongs to it."""

    def commit(self, entry: Entry, seconds: float) -> None:
        """A new entry, and how long it took: a span for each of its messages that has a trace."""

    def send(
        self, region: str, queue: str, messages: Sequence[Message], seconds: float, failure: str
    ) -> None:
        """Tell what was sent to a queue, and in how long; `failure` is empty where it was taken."""

    def add(self, measure: Measure, amount: float = 1, **attributes: str) -> None:
        """A value of a measure."""
