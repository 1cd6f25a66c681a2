"""The in-memory twin of the journal, with the same promises and the same failures.

For unit tests, the simulation and a team's own handler tests. Time is virtual: it passes only when
somebody sleeps.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from shared.adapters.injected_faults import FaultPlan
from shared.adapters.memory_store import MemoryStore, VirtualClock
from shared.domain.journal import Entry, Marker, MessageIdentity
from shared.domain.message import Message, Number
from shared.domain.outbox import NO_OUTBOX, DestinationBatch, Outbox, PendingOutbox, Staged
from shared.domain.producer import Ledger
from shared.ports import (
    NOTHING_CARRIED,
    PENDING_MAX,
    Carried,
    ParkedMessage,
    SessionNeed,
    StoredEntry,
    StoredLedger,
    WriteResult,
)
from shared.storage.documents import (
    Document,
    decode_entry,
    decode_ledger,
    decode_marker,
    decode_parked,
    decode_pending,
    decode_staged,
    encode_pending,
    encode_staged,
    is_entry,
    ledger_id,
    marker_id,
    newest_milestone,
    outbox_id,
    parked_id,
    position_id,
    processed_by_position,
    session_in,
    staged_ids,
    version_of,
    written_at,
)
from shared.storage.operations import (
    CreateDocument,
    Operation,
    acknowledge_operations,
    append_operations,
    compact_operations,
    ledger_operations,
    replace_operations,
)
from shared.storage.queries import shows_need


class MemoryJournal:
    """A Journal whose documents live in a dictionary, in stored form."""

    def __init__(self, clock: VirtualClock, fault_plan: FaultPlan | None = None) -> None:
        self.clock = clock
        self.fault_plan = fault_plan or FaultPlan()
        self.store = MemoryStore(clock)
        self.partitions = self.store.partitions

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:  # noqa: ARG002
        """See Entries.head: always the newest."""
        return self.fault_plan.perform("head", lambda: self.newest(session))

    async def entry(self, session: str, position: int) -> Entry | None:
        found = self.read("entry", session, position_id(position))
        return decode_entry(found) if found else None

    async def stored_entry(self, session: str, position: int) -> StoredEntry | None:
        found = self.read("stored_entry", session, position_id(position))
        if found is None:
            return None
        now = self.clock.now()
        return StoredEntry(decode_entry(found), version_of(found), written_at(found), now)

    async def processed(
        self, session: str, position: int, limit: int
    ) -> Mapping[int, Sequence[MessageIdentity]]:
        return self.fault_plan.perform(
            "processed", lambda: processed_by_position(self.page(session, position, limit))
        )

    async def marker(self, session: str, message_id: str) -> Marker | None:
        found = self.read("marker", session, marker_id(message_id))
        return decode_marker(found) if found else None

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> WriteResult:
        return self.write("append", entry.session, append_operations(entry, carried))

    async def replace(
        self,
        entry: Entry,
        version: str,
        carried: Carried = NOTHING_CARRIED,
        waiting: ParkedMessage | None = None,
    ) -> WriteResult:
        operations = replace_operations(entry, version, carried, waiting)
        return self.write("replace", entry.session, operations)

    async def parked(self, session: str, number: Number) -> Message | None:
        found = self.read("parked", session, parked_id(number))
        return decode_parked(found) if found else None

    async def sessions(
        self,
        need: SessionNeed,
        *,
        region: str = "",
        older_than_seconds: float = 0.0,
        excluded: Sequence[str] = (),
        limit: int,
    ) -> Sequence[str]:
        before = self.clock.now() - older_than_seconds
        found = self.fault_plan.perform(
            f"sessions.{need.value}",
            lambda: self.store.search(need, region, before, frozenset(excluded)),
        )
        return list(dict.fromkeys(session_in(document) for document in found[:limit]))

    async def faulted_entries(self, session: str) -> Sequence[Entry]:
        found = self.fault_plan.perform("faulted_entries", lambda: self.store.flagged(session))
        faulted = [
            decode_entry(document)
            for document in found
            if is_entry(document) and shows_need(document, SessionNeed.RESOLUTION)
        ]
        return sorted(faulted, key=lambda entry: entry.position)

    async def pending(
        self, session: str, regions: Sequence[str], *, limit: int = PENDING_MAX
    ) -> Sequence[PendingOutbox]:
        return self.fault_plan.perform(
            "pending", lambda: self.pending_outboxes(session, regions)[:limit]
        )

    async def add_pending(self, session: str, outbox: Outbox) -> None:
        document = encode_pending(session, outbox)
        self.write("add_pending", session, [CreateDocument(document, WriteResult.TAKEN)])

    async def acknowledge(
        self,
        pending: PendingOutbox,
        delivered: Sequence[str],
        refused: Mapping[str, str] | None = None,
    ) -> None:
        def remove_regions() -> None:
            document = self.store.read(pending.session, outbox_id(pending))
            if document is not None:
                operations = acknowledge_operations(document, delivered, refused or {})
                self.store.apply(pending.session, operations)

        self.fault_plan.perform("acknowledge", remove_regions)

    async def stage(self, session: str, attempt: str, batches: Sequence[DestinationBatch]) -> None:
        for document in encode_staged(session, attempt, batches):
            self.write("stage", session, [CreateDocument(document, WriteResult.TAKEN)])

    async def staged(self, session: str, staged: Staged) -> Sequence[DestinationBatch]:
        found = self.fault_plan.perform(
            "staged", lambda: [self.store.read(session, part) for part in staged_ids(staged)]
        )
        return [batch for document in found if document for batch in decode_staged(document)]

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        found = self.read("ledger", session, ledger_id(group))
        return StoredLedger(decode_ledger(found), version_of(found)) if found else None

    async def save_ledger(
        self, session: str, ledger: Ledger, version: str | None, pending: Outbox = NO_OUTBOX
    ) -> str | None:
        operations = ledger_operations(session, ledger, version, pending)
        if self.write("save_ledger", session, operations) is not WriteResult.CREATED:
            return None
        return version_of(self.partitions[session][ledger_id(ledger.group)])

    async def oldest_entries(self, session: str, limit: int) -> Sequence[Entry]:
        return self.fault_plan.perform("oldest_entries", lambda: self.entries(session)[:limit])

    async def milestone(self, session: str, older_than_seconds: float) -> int | None:
        before = self.clock.now() - older_than_seconds
        found = self.fault_plan.perform("milestone", lambda: self.store.flagged(session))
        marked = [d for d in found if shows_need(d, SessionNeed.COMPACTION)]
        return newest_milestone(marked, before)

    async def compact(self, session: str, positions: Sequence[int], passed: int | None) -> None:
        self.write("compact", session, compact_operations(positions, passed))

    def read(self, name: str, session: str, document_id: str) -> Document | None:
        """A point read, unless it goes wrong as planned."""
        return self.fault_plan.perform(name, lambda: self.store.read(session, document_id))

    def write(self, name: str, session: str, operations: Sequence[Operation]) -> WriteResult:
        """A transactional batch, unless it goes wrong as planned."""
        return self.fault_plan.perform(name, lambda: self.store.apply(session, operations))

    def page(self, session: str, position: int, limit: int) -> list[Document]:
        """The entries from a position on; a limit of one is a point read."""
        newest = self.newest(session)
        end = newest.position + 1 if newest else position
        positions = range(position, position + 1 if limit == 1 else end)
        found = (self.store.read(session, position_id(at)) for at in positions)
        return list(islice((document for document in found if document), limit))

    def entries(self, session: str) -> list[Entry]:
        found = [decode_entry(d) for d in self.partitions[session].values() if is_entry(d)]
        return sorted(found, key=lambda entry: entry.position)

    def entry_at(self, session: str, position: int) -> Entry | None:
        """The entry at a position, for tests that inspect the twin: no fault is injected here."""
        document = self.store.read(session, position_id(position))
        return decode_entry(document) if document else None

    def newest(self, session: str) -> Entry | None:
        document = self.store.newest(session)
        return decode_entry(document) if document else None

    def pending_outboxes(self, session: str, regions: Sequence[str]) -> list[PendingOutbox]:
        found = sorted(self.store.flagged(session), key=lambda document: str(document["id"]))
        pending = [one for document in found if (one := decode_pending(document))]
        return [one for one in pending if one.outbox.only(regions).regions]
