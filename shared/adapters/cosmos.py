"""The journal over azure-cosmos: one container, one logical partition per session.

The SDK retries writes by itself, so a conflict may be our own earlier success; the committer tells
them apart by the attempt's id.
"""

from collections.abc import Mapping, Sequence

from shared.adapters.cosmos_account import PAGE_MAX, RELAXED, CosmosContainer, ResponseClock
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
    acknowledge_operations,
    append_operations,
    compact_operations,
    ledger_operations,
    replace_operations,
)
from shared.storage.queries import (
    FAULTS_QUERY,
    HEAD_QUERY,
    MILESTONE_QUERY,
    OLDEST_QUERY,
    PROCESSED_QUERY,
    pending_query,
    sessions_query,
)

MILESTONES_MAX = 1_000


class CosmosJournal:
    """See ports.Journal."""

    def __init__(self, container: CosmosContainer) -> None:
        self.container = container

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:
        """See Entries.head: one query in one partition."""
        how = {} if newest else RELAXED
        documents = await self.container.query(HEAD_QUERY, limit=1, partition_key=session, **how)
        return decode_entry(documents[0]) if documents else None

    async def entry(self, session: str, position: int) -> Entry | None:
        """See Entries.entry: one point read."""
        document = await self.container.read(session, position_id(position))
        return decode_entry(document) if document else None

    async def stored_entry(self, session: str, position: int) -> StoredEntry | None:
        """See Entries.stored_entry: one point read, dated by the store."""
        clock = ResponseClock()
        document = await self.container.read(
            session, position_id(position), response_hook=clock.read
        )
        if document is None:
            return None
        return StoredEntry(
            decode_entry(document), version_of(document), written_at(document), clock.seconds
        )

    async def processed(
        self, session: str, position: int, limit: int
    ) -> Mapping[int, Sequence[MessageIdentity]]:
        """See Entries.processed: one query in one partition, or a point read."""
        if limit == 1:
            document = await self.container.read(session, position_id(position), **RELAXED)
            return processed_by_position([document] if document else [])
        start = {"name": "@from", "value": position_id(position)}
        found = await self.container.query(
            PROCESSED_QUERY, limit=limit, partition_key=session, parameters=[start], **RELAXED
        )
        return processed_by_position(found)

    async def marker(self, session: str, message_id: str) -> Marker | None:
        """See Entries.marker: one point read."""
        document = await self.container.read(session, marker_id(message_id), **RELAXED)
        return decode_marker(document) if document else None

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> WriteResult:
        """See Entries.append: one transactional batch."""
        operations = append_operations(entry, carried)
        result, _ = await self.container.write(entry.session, operations)
        return result

    async def replace(
        self,
        entry: Entry,
        version: str,
        carried: Carried = NOTHING_CARRIED,
        waiting: ParkedMessage | None = None,
    ) -> WriteResult:
        """See Entries.replace: one transactional batch."""
        operations = replace_operations(entry, version, carried, waiting)
        result, _ = await self.container.write(entry.session, operations)
        return result

    async def parked(self, session: str, number: Number) -> Message | None:
        """See Entries.parked: one point read."""
        document = await self.container.read(session, parked_id(number))
        return decode_parked(document) if document else None

    async def sessions(
        self,
        need: SessionNeed,
        *,
        region: str = "",
        older_than_seconds: float = 0.0,
        excluded: Sequence[str] = (),
        limit: int,
    ) -> Sequence[str]:
        """See Maintenance.sessions: an indexed query, aged by the date of its response."""
        clock = ResponseClock()
        query = sessions_query(need, excludes=bool(excluded))
        named = {"@region": region, "@excluded": list(excluded)}
        found = await self.container.query(
            query,
            limit=limit,
            parameters=[{"name": n, "value": v} for n, v in named.items() if n in query],
            response_hook=clock.read,
        )
        before = clock.seconds - older_than_seconds
        return list(dict.fromkeys(session_in(d) for d in found if written_at(d) <= before))

    async def faulted_entries(self, session: str) -> Sequence[Entry]:
        """See Maintenance.faulted_entries: one indexed query in one partition."""
        found = await self.container.query(FAULTS_QUERY, limit=PAGE_MAX, partition_key=session)
        return [decode_entry(document) for document in found if is_entry(document)]

    async def pending(
        self, session: str, regions: Sequence[str], *, limit: int = PENDING_MAX
    ) -> Sequence[PendingOutbox]:
        """See Outboxes.pending: one indexed query in one partition."""
        found = await self.container.query(
            pending_query(len(regions)),
            limit=limit,
            partition_key=session,
            parameters=[{"name": f"@r{n}", "value": region} for n, region in enumerate(regions)],
        )
        return [pending for document in found if (pending := decode_pending(document))]

    async def add_pending(self, session: str, outbox: Outbox) -> None:
        """See Outboxes.add_pending: one create."""
        document = encode_pending(session, outbox)
        await self.container.write(session, [CreateDocument(document, WriteResult.TAKEN)])

    async def acknowledge(
        self,
        pending: PendingOutbox,
        delivered: Sequence[str],
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """See Outboxes.acknowledge: read, then replace or delete if nobody else did."""
        session, document_id = pending.session, outbox_id(pending)
        while (document := await self.container.read(session, document_id)) is not None:
            operations = acknowledge_operations(document, delivered, refused or {})
            result, _ = await self.container.write(session, operations)
            if result is not WriteResult.TAKEN:
                return

    async def stage(self, session: str, attempt: str, batches: Sequence[DestinationBatch]) -> None:
        """See Outboxes.stage: one create for each part."""
        for document in encode_staged(session, attempt, batches):
            await self.container.write(session, [CreateDocument(document, WriteResult.TAKEN)])

    async def staged(self, session: str, staged: Staged) -> Sequence[DestinationBatch]:
        """See Outboxes.staged: one point read for each part."""
        found = [await self.container.read(session, part) for part in staged_ids(staged)]
        return [batch for document in found if document for batch in decode_staged(document)]

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        """See Ledgers.ledger: one point read."""
        document = await self.container.read(session, ledger_id(group))
        return StoredLedger(decode_ledger(document), version_of(document)) if document else None

    async def save_ledger(
        self, session: str, ledger: Ledger, version: str | None, pending: Outbox = NO_OUTBOX
    ) -> str | None:
        """See Ledgers.save_ledger: one transactional batch."""
        operations = ledger_operations(session, ledger, version, pending)
        result, answers = await self.container.write(session, operations)
        return str(answers[0]["eTag"]) if result is WriteResult.CREATED else None

    async def oldest_entries(self, session: str, limit: int) -> Sequence[Entry]:
        """See Maintenance.oldest_entries: one query in one partition."""
        found = await self.container.query(OLDEST_QUERY, limit=limit, partition_key=session)
        return [decode_entry(document) for document in found]

    async def milestone(self, session: str, older_than_seconds: float) -> int | None:
        """See Maintenance.milestone: one query in one partition."""
        clock = ResponseClock()
        found = await self.container.query(
            MILESTONE_QUERY,
            limit=MILESTONES_MAX,
            partition_key=session,
            response_hook=clock.read,
        )
        return newest_milestone(found, clock.seconds - older_than_seconds)

    async def compact(self, session: str, positions: Sequence[int], passed: int | None) -> None:
        """See Maintenance.compact: one transactional batch, or nothing if somebody else did it."""
        operations = compact_operations(positions, passed)
        if operations:
            await self.container.write(session, operations)
