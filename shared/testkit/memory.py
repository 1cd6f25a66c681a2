"""The in-memory twin of the journal, with the same promises and the same failures.

For unit tests, the simulation and a team's own handler tests. Time is virtual: it passes only when
somebody sleeps.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

from shared.domain.journal import (
    Entry,
    EvictedCursor,
    Marker,
    MessageIdentity,
    RecentEntry,
    Repetition,
    Resolution,
)
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
from shared.domain.standstill import ListPlace, Sign, take_page
from shared.ports import (
    NOTHING_CARRIED,
    PENDING_MAX,
    Carried,
    ParkedMessage,
    SessionNeed,
    StoredEntry,
    StoredLedger,
    StoredRegions,
    WriteResult,
)
from shared.storage.documents import (
    GENESIS_ID,
    Document,
    blocked_queues_in,
    cursor_id,
    decode_cursor,
    decode_entry,
    decode_marker,
    decode_parked,
    decode_parked_run,
    decode_pending,
    decode_recent,
    decode_repetition,
    decode_sign,
    decode_staged,
    encode_pending,
    encode_staged,
    is_entry,
    lacks_state,
    marker_id,
    newest_milestone,
    outbox_id,
    parked_ends,
    parked_id,
    parked_ids,
    position_id,
    processed_by_position,
    repetition_id,
    sequence_of,
    session_in,
    staged_ids,
    state_id,
    summarise_entry,
    version_of,
    with_state,
    written_at,
)
from shared.storage.ledgers import decode_key, decode_ledger, key_id, ledger_id
from shared.storage.operations import (
    CreateDocument,
    Operation,
    acknowledge_operations,
    append_operations,
    close_operations,
    compact_operations,
    decide_operations,
    delete_delivered,
    leave_pending_operations,
    ledger_operations,
    regions_operations,
    repetition_operations,
    replace_operations,
)
from shared.storage.queries import place_of, shows_need, shows_sign, shows_work
from shared.storage.regions import REGIONS_ID, REGIONS_SESSION, decode_regions
from shared.testkit.injected_faults import FaultPlan
from shared.testkit.memory_store import MemoryStore, VirtualClock


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
        return self.fault_plan.perform("entry", lambda: self.entry_at(session, position))

    async def stored_entry(self, session: str, position: int) -> StoredEntry | None:
        found = self.read("stored_entry", session, position_id(position))
        return self.stored(found) if found else None

    def stored(self, document: Document) -> StoredEntry:
        """An entry as it is stored now."""
        entry, is_marked = decode_entry(document), shows_need(document, SessionNeed.COMPACTION)
        times = written_at(document), self.clock.now()
        return StoredEntry(entry, version_of(document), *times, is_marked)

    async def processed(
        self, session: str, position: int, limit: int
    ) -> Mapping[int, Sequence[MessageIdentity]]:
        return self.fault_plan.perform(
            "processed", lambda: processed_by_position(self.page(session, position, limit))
        )

    async def cursor(self, session: str, group: str) -> EvictedCursor | None:
        found = self.read("cursor", session, cursor_id(group))
        return decode_cursor(found) if found else None

    async def marker(
        self, session: str, message_id: str, source: str = OWN_SOURCE
    ) -> Marker | None:
        found = self.read("marker", session, marker_id(message_id, source))
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

    async def parked_run(self, session: str, number: Number, limit: int) -> Sequence[Message]:
        ids = parked_ids(number, limit)
        found = self.fault_plan.perform(
            "parked_run", lambda: [self.store.read(session, one) for one in ids]
        )
        return decode_parked_run([document for document in found if document], ids)

    async def has_work(self, region: str) -> bool:
        return self.fault_plan.perform(
            "has_work",
            lambda: any(
                shows_work(document, region)
                for session in self.store.flags
                for document in self.store.flagged(session)
            ),
        )

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
        before = self.clock.now() - older_than_seconds
        found = self.fault_plan.perform(
            f"sessions.{need.value}",
            lambda: self.store.search(
                need, place_of(need, region, queue), before, of_regions, frozenset(excluded)
            ),
        )
        return list(dict.fromkeys(session_in(document) for document in found[:limit]))

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
        late = self.clock.now() - older_than_seconds
        sessions = list(self.store.flags) if session is None else [session]
        documents = self.fault_plan.perform(
            "signs", lambda: [one for name in sessions for one in self.store.flagged(name)]
        )
        shown = (decode_sign(d, late) for d in documents if shows_sign(d, needs, regions, late))
        return take_page(shown, after, limit)

    async def first_parked(self, session: str, group: str) -> int | None:
        found = self.fault_plan.perform("first_parked", lambda: list(self.partitions[session]))
        lowest, highest = parked_ends(group)
        first = min((key for key in found if lowest <= key <= highest), default=None)
        return sequence_of(first) if first else None

    async def close(
        self, session: str, position: int, version: str, closed: Resolution | None
    ) -> bool:
        operations = close_operations(position, version, closed)
        return self.write("close", session, operations) is WriteResult.CREATED

    async def pending(
        self, session: str, regions: Sequence[str], *, limit: int = PENDING_MAX
    ) -> Sequence[PendingOutbox]:
        return self.fault_plan.perform(
            "pending", lambda: self.pending_outboxes(session, regions)[:limit]
        )

    async def add_pending(self, session: str, outbox: Outbox) -> None:
        document = encode_pending(session, outbox)
        self.write("add_pending", session, [CreateDocument(document, WriteResult.TAKEN)])

    async def blocked(self, session: str) -> Sequence[PendingOutbox]:
        return self.fault_plan.perform(
            "blocked", lambda: [p for p in self.outboxes(session) if p.outbox.blocked]
        )

    async def blocked_queues(self, region: str) -> Sequence[str]:
        found = self.fault_plan.perform(
            "blocked_queues",
            lambda: self.store.search(
                SessionNeed.UNBLOCKING, region, self.clock.now(), 0, frozenset()
            ),
        )
        keys = dict.fromkeys(key for document in found for key in document["blocked"])
        return blocked_queues_in(keys, region)

    async def acknowledge(self, pending: PendingOutbox, done: Delivered) -> None:
        if operations := delete_delivered(pending, done):
            self.write("acknowledge", pending.session, operations)
            return
        self.revise("acknowledge", pending, lambda document: acknowledge_operations(document, done))

    async def leave_pending(self, session: str, position: int, regions: Sequence[str]) -> None:
        self.write("leave_pending", session, leave_pending_operations(position, regions))

    async def decide(self, pending: PendingOutbox, decisions: Mapping[str, OutputDecision]) -> None:
        self.revise("decide", pending, lambda document: decide_operations(document, decisions))

    def revise(
        self, name: str, pending: PendingOutbox, change: Callable[[Document], list[Operation]]
    ) -> None:
        """Change a stored outbox, unless it goes wrong as planned."""

        def apply() -> None:
            document = self.store.read(pending.session, outbox_id(pending))
            if document is not None:
                self.store.apply(pending.session, change(document))

        self.fault_plan.perform(name, apply)

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

    async def key(self, session: str, group: str, message_id: str) -> BoundNumber | None:
        found = self.read("key", session, key_id(group, message_id))
        return decode_key(found) if found else None

    async def save_ledger(
        self,
        session: str,
        ledger: Ledger,
        version: str | None,
        pending: Outbox = NO_OUTBOX,
        keys: KeptKeys = NO_KEYS,
    ) -> str | None:
        operations = ledger_operations(session, ledger, version, pending, keys)
        if self.write("save_ledger", session, operations) is not WriteResult.CREATED:
            return None
        return version_of(self.partitions[session][ledger_id(ledger.group)])

    async def regions(self) -> StoredRegions | None:
        found = self.read("regions", REGIONS_SESSION, REGIONS_ID)
        return StoredRegions(decode_regions(found), version_of(found)) if found else None

    async def save_regions(self, names: Sequence[str], version: str | None) -> bool:
        operations = regions_operations(names, version)
        return self.write("save_regions", REGIONS_SESSION, operations) is WriteResult.CREATED

    async def oldest_entries(self, session: str, limit: int) -> Sequence[StoredEntry]:
        found = self.fault_plan.perform("oldest_entries", lambda: self.entries(session)[:limit])
        return [self.stored(document) for document in found]

    async def milestone(self, session: str, older_than_seconds: float) -> int | None:
        before = self.clock.now() - older_than_seconds
        found = self.fault_plan.perform("milestone", lambda: self.store.flagged(session))
        marked = [d for d in found if shows_need(d, SessionNeed.COMPACTION)]
        return newest_milestone(marked, before)

    async def compact(
        self,
        session: str,
        positions: Sequence[int],
        marks: Mapping[int, bool],
        states: Sequence[int] = (),
    ) -> None:
        self.write("compact", session, compact_operations(positions, marks, states))

    async def repetition(self, session: str, report: str) -> Repetition | None:
        found = self.read("repetition", session, repetition_id(report))
        return decode_repetition(found) if found else None

    async def begin_repetition(
        self, session: str, report: str, repetition: Repetition
    ) -> Repetition:
        operations = repetition_operations(session, report, repetition)
        self.write("begin_repetition", session, operations)
        return await self.repetition(session, report) or repetition

    async def end_repetition(self, session: str, report: str) -> None:
        self.write("end_repetition", session, repetition_operations(session, report, None))

    async def listed(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        found = self.fault_plan.perform(
            "listed",
            lambda: [s for s in list(self.partitions) if self.store.read(s, GENESIS_ID)],
        )
        return sorted(s for s in found if s.startswith(prefix) and s > after)[:limit]

    async def recent_entries(self, seconds: float, limit: int) -> Sequence[RecentEntry]:
        documents = self.fault_plan.perform(
            "recent_entries", lambda: [d for s in list(self.partitions) for d in self.entries(s)]
        )
        now = self.clock.now()
        found = [
            decode_recent(summarise_entry(one), now)
            for one in documents
            if written_at(one) > now - seconds
        ]
        return sorted(found, key=lambda one: one.age_seconds)[:limit]

    async def waiting_seconds(
        self, region: str, older_than_seconds: float, limit: int
    ) -> Sequence[float]:
        before = self.clock.now() - older_than_seconds
        found = self.fault_plan.perform(
            "waiting_seconds",
            lambda: self.store.search(SessionNeed.DELIVERY, region, before, 0, frozenset()),
        )
        return [self.clock.now() - written_at(document) for document in found[:limit]]

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

    def entries(self, session: str) -> list[Document]:
        found = [document for document in self.partitions[session].values() if is_entry(document)]
        return sorted(found, key=lambda document: str(document["id"]))

    def entry_at(self, session: str, position: int) -> Entry | None:
        """The entry at a position with its state, for tests that inspect the twin as well."""
        document = self.store.read(session, position_id(position))
        if document and lacks_state(document):
            document = with_state(document, self.store.read(session, state_id(position)))
        return decode_entry(document) if document else None

    def newest(self, session: str) -> Entry | None:
        document = self.store.newest(session)
        return decode_entry(document) if document else None

    def pending_outboxes(self, session: str, regions: Sequence[str]) -> list[PendingOutbox]:
        return [one for one in self.outboxes(session) if one.outbox.only(regions).regions]

    def outboxes(self, session: str) -> list[PendingOutbox]:
        """What waits or is blocked, the oldest entries first."""
        found = sorted(self.store.flagged(session), key=lambda document: str(document["id"]))
        return [one for document in found if (one := decode_pending(document))]
