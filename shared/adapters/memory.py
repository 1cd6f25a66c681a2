"""The in-memory twin of journal, bus and clock, with the same promises and the same failures.

For unit tests, the simulation and a team's own handler tests. Time is virtual: it passes only when
somebody sleeps.
"""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from shared.domain.batch import Appended, Create, Delete, Operation, Read, append_operations
from shared.domain.documents import (
    Document,
    entry_from,
    ledger_document,
    ledger_from,
    ledger_id,
    message_from,
    owed_document,
    owing_from,
    parked_id,
    position_id,
    with_delivered,
)
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from shared.domain.message import Message, Number
from shared.domain.outbox import Outbox, Owing
from shared.domain.producer import Ledger
from shared.ports import StoredLedger


class Mishap(Enum):
    """How an operation can go wrong."""

    REFUSED = auto()  # nothing is applied and the caller is told so
    LOST = auto()  # nothing is applied and no answer comes
    UNANSWERED = auto()  # applied, but no answer comes


@dataclass
class Mishaps:
    """Failures planned per operation; each strikes once, in order."""

    planned: dict[str, deque[Mishap]] = field(default_factory=lambda: defaultdict(deque))
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def plan(self, operation: str, *mishaps: Mishap) -> None:
        """The next calls of the operation go wrong like this."""
        self.planned[operation].extend(mishaps)

    def suffer[T](self, operation: str, apply: Callable[[], T]) -> T:
        """Apply the operation, or go wrong as planned."""
        self.calls[operation] += 1
        mishap = self.planned[operation].popleft() if self.planned[operation] else None
        match mishap:
            case None:
                return apply()
            case Mishap.REFUSED:
                raise Unavailable(f"{operation} refused")
            case Mishap.LOST:
                raise OutcomeUnknown(f"{operation} lost")
            case Mishap.UNANSWERED:
                apply()
                raise OutcomeUnknown(f"{operation} unanswered")


class VirtualClock:
    """A clock on which sleeping takes no time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        """Advance the clock and let others run."""
        self.seconds += seconds
        await asyncio.sleep(0)


class MemoryJournal:
    """A Journal whose documents live in a dictionary, in stored form."""

    def __init__(self, clock: VirtualClock, mishaps: Mishaps | None = None) -> None:
        self.clock = clock
        self.mishaps = mishaps or Mishaps()
        self.partitions: dict[str, dict[str, Document]] = defaultdict(dict)
        self.versions = 0

    async def head(self, session: str) -> Entry | None:
        """See Journal.head."""
        return self.mishaps.suffer("head", lambda: self.newest(session))

    async def entry(self, session: str, position: int) -> Entry | None:
        """See Journal.entry."""
        document_id = position_id(position)
        return self.mishaps.suffer("entry", lambda: self.entry_at(session, document_id))

    async def append(self, entry: Entry) -> Appended:
        """See Journal.append."""
        operations = append_operations(entry)
        return self.mishaps.suffer("append", lambda: self.apply(entry.session, operations))

    async def parked(self, session: str, number: Number) -> Message | None:
        """See Journal.parked."""
        document = self.partitions[session].get(parked_id(number))
        return self.mishaps.suffer(
            "parked", lambda: message_from(document["message"]) if document else None
        )

    async def sessions_faulted(self, *, limit: int) -> Sequence[str]:
        """See Journal.sessions_faulted."""
        faulted = [s for s, p in self.partitions.items() if any("faulted" in d for d in p.values())]
        return self.mishaps.suffer("sessions_faulted", lambda: faulted[:limit])

    async def sessions_owing(self, *, older_than_seconds: float, limit: int) -> Sequence[str]:
        """See Journal.sessions_owing."""
        before = self.clock.now() - older_than_seconds
        return self.mishaps.suffer("sessions_owing", lambda: self.waiting(before, limit))

    async def owing_of(self, session: str) -> Sequence[Owing]:
        """See Journal.owing_of."""
        documents = self.partitions[session].values()
        return self.mishaps.suffer(
            "owing_of", lambda: [owing for d in documents if (owing := owing_from(d))]
        )

    async def owe(self, session: str, outbox: Outbox) -> None:
        """See Journal.owe."""
        self.mishaps.suffer("owe", lambda: self.put_new(owed_document(session, outbox)))

    async def acknowledge(self, session: str, document_id: str, delivered: Sequence[str]) -> None:
        """See Journal.acknowledge."""
        self.mishaps.suffer("acknowledge", lambda: self.strike(session, document_id, delivered))

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        """See Journal.ledger."""
        return self.mishaps.suffer("ledger", lambda: self.stored_ledger(session, group))

    async def save_ledger(self, session: str, ledger: Ledger, version: str | None) -> bool:
        """See Journal.save_ledger."""
        return self.mishaps.suffer("save_ledger", lambda: self.swap(session, ledger, version))

    def apply(self, session: str, operations: Sequence[Operation]) -> Appended:
        """A transactional batch: all of it, or the meaning of its first refusal."""
        partition = self.partitions[session]
        for operation in operations:
            match operation:
                case Create(document, refused) if document["id"] in partition:
                    return refused
                case Read(document_id, refused) | Delete(document_id, refused):
                    if document_id not in partition:
                        return refused
                case _:
                    pass
        for operation in operations:
            match operation:
                case Create(document):
                    self.put(document)
                case Delete(document_id):
                    del partition[document_id]
                case Read():
                    pass
        return Appended.CREATED

    def newest(self, session: str) -> Entry | None:
        """The entry with the highest id."""
        ids = [i for i, d in self.partitions[session].items() if d["kind"] == "entry"]
        return self.entry_at(session, max(ids)) if ids else None

    def entry_at(self, session: str, document_id: str) -> Entry | None:
        """A stored entry read back."""
        document = self.partitions[session].get(document_id)
        return entry_from(document) if document else None

    def waiting(self, stored_before: float, limit: int) -> list[str]:
        """Sessions of the oldest unpaid outboxes stored at or before a time."""
        unpaid = [d for p in self.partitions.values() for d in p.values() if owing_from(d)]
        old = sorted((d for d in unpaid if d["_ts"] <= stored_before), key=lambda d: d["_ts"])
        return list(dict.fromkeys(d["session"] for d in old[:limit]))

    def strike(self, session: str, document_id: str, delivered: Sequence[str]) -> None:
        """Strike regions off; a producer's owed copies vanish when nothing is left."""
        document = self.partitions[session].get(document_id)
        if document is None:
            return
        document = with_delivered(document, delivered)
        if document["kind"] == "owed" and not document.get("owing"):
            del self.partitions[session][document_id]
        else:
            self.put(document)

    def stored_ledger(self, session: str, group: str) -> StoredLedger | None:
        """A stored ledger read back, with its version."""
        document = self.partitions[session].get(ledger_id(group))
        return StoredLedger(ledger_from(document), document["_etag"]) if document else None

    def swap(self, session: str, ledger: Ledger, version: str | None) -> bool:
        """Compare and set a ledger."""
        stored = self.partitions[session].get(ledger_id(ledger.group))
        if (stored["_etag"] if stored else None) != version:
            return False
        self.put(ledger_document(session, ledger))
        return True

    def put_new(self, document: Document) -> None:
        """Create, unless it is there."""
        if document["id"] not in self.partitions[document["session"]]:
            self.put(document)

    def put(self, document: Document) -> None:
        """Store a copy that went through JSON, as the real store's would."""
        self.versions += 1
        stored = json.loads(json.dumps(document))
        stored |= {"_etag": str(self.versions), "_ts": self.clock.now()}
        self.partitions[document["session"]][document["id"]] = stored


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message in a queue, and when it becomes visible."""

    message: Message
    visible_at: float


class MemoryBus:
    """A Bus whose queues are lists; a region in `dark` refuses."""

    def __init__(self, clock: VirtualClock, mishaps: Mishaps | None = None) -> None:
        self.clock = clock
        self.mishaps = mishaps or Mishaps()
        self.queues: dict[tuple[str, str], list[Delivered]] = defaultdict(list)
        self.dark: set[str] = set()

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """See Bus.send."""
        if region in self.dark:
            raise Unavailable(f"region {region} is dark")
        visible_at = self.clock.now() + delay_seconds
        arrivals = [Delivered(message, visible_at) for message in messages]
        self.mishaps.suffer(f"send.{region}", lambda: self.queues[region, queue].extend(arrivals))

    def messages(self, region: str, queue: str) -> list[Message]:
        """Everything a queue was sent, in order."""
        return [delivered.message for delivered in self.queues[region, queue]]
