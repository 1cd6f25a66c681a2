"""The journal over azure-cosmos: one container, one logical partition per session.

The SDK retries writes by itself, so a conflict may be our own earlier success; the committer tells
them apart by the attempt's id.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from shared.adapters.cosmos_account import RELAXED, CosmosContainer, ResponseClock
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
from shared.storage.queries import (
    BLOCKED_BESIDE_QUERY,
    BLOCKED_QUERY,
    HEAD_QUERY,
    LISTED_QUERY,
    MILESTONE_QUERY,
    OLDEST_QUERY,
    PARKED_QUERY,
    PROCESSED_QUERY,
    RECENT_QUERY,
    WAITING_QUERY,
    WORK_QUERY,
    pending_query,
    place_of,
    sessions_query,
    shows_need,
    signs_query,
)
from shared.storage.regions import REGIONS_ID, REGIONS_SESSION, decode_regions

MILESTONES_MAX = 1_000
# A partition that holds nothing, and clocks that are apart.
NOBODY = "$nobody"
# Signs that one page looks at: all of those of its last second must be among them.
SIGNS_MAX = 10_000
CLOCK_SLACK_SECONDS = 3600.0


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
        """See Entries.entry: one point read, and one more for a state beside it."""
        document = await self.container.read(session, position_id(position))
        if document and lacks_state(document):
            document = with_state(document, await self.container.read(session, state_id(position)))
        return decode_entry(document) if document else None

    async def stored_entry(self, session: str, position: int) -> StoredEntry | None:
        """See Entries.stored_entry: one point read, dated by the store."""
        clock = ResponseClock()
        document = await self.container.read(
            session, position_id(position), response_hook=clock.read
        )
        return stored_entry(document, clock) if document else None

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

    async def cursor(self, session: str, group: str) -> EvictedCursor | None:
        """See Entries.cursor: one point read, never an older one: it decides what is processed."""
        document = await self.container.read(session, cursor_id(group))
        return decode_cursor(document) if document else None

    async def marker(
        self, session: str, message_id: str, source: str = OWN_SOURCE
    ) -> Marker | None:
        """See Entries.marker: one point read."""
        document = await self.container.read(session, marker_id(message_id, source), **RELAXED)
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

    async def parked_run(self, session: str, number: Number, limit: int) -> Sequence[Message]:
        """See Entries.parked_run: one query in one partition."""
        ids = parked_ids(number, limit)
        found = await self.container.query(
            PARKED_QUERY,
            limit=limit,
            partition_key=session,
            parameters=[{"name": "@from", "value": ids[0]}, {"name": "@to", "value": ids[-1]}],
        )
        return decode_parked_run(found, ids)

    async def has_work(self, region: str) -> bool:
        """See Maintenance.has_work: one query, which ends at the first document that it finds."""
        parameters: list[dict[str, object]] = [{"name": "@region", "value": region}]
        return bool(await self.container.query(WORK_QUERY, limit=1, parameters=parameters))

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
        """See Maintenance.sessions: an indexed query, aged by the date of its response.

        With `of_regions` a second one, in which the store looks at each outbox that waits.
        """
        # Oldest first, so nothing is read beyond the first document that is too young.
        clock = ResponseClock()
        query = sessions_query(need, excludes=bool(excluded))
        named: dict[str, object] = {
            "@place": place_of(need, region, queue),
            "@excluded": list(excluded),
            "@regions": of_regions,
        }
        found = await self.container.query(
            query,
            limit=limit,
            parameters=[{"name": n, "value": v} for n, v in named.items() if n in query],
            response_hook=clock.read,
            ends_before=lambda _, next_one: (
                written_at(next_one) > clock.seconds - older_than_seconds
            ),
        )
        if of_regions:
            query = sessions_query(need, excludes=bool(excluded), partly=True)
            parameters = [{"name": n, "value": v} for n, v in named.items() if n in query]
            found = [*found, *await self.container.query(query, limit=limit, parameters=parameters)]
        return list(dict.fromkeys(session_in(document) for document in found))

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
        """See Maintenance.signs: one indexed query, and one that finds nothing but the time."""
        now = await self.now()
        late = now - older_than_seconds
        newest = after.since if after else now + CLOCK_SLACK_SECONDS
        named: dict[str, str | float] = {f"@r{n}": region for n, region in enumerate(regions)}
        named |= {"@late": late, "@from": newest}

        def page(documents: Sequence[Document]) -> Sequence[Sign]:
            return take_page((decode_sign(one, late) for one in documents), after, limit)

        query = signs_query(needs, len(regions))
        where = {} if session is None else {"partition_key": session}
        found = await self.container.query(
            query,
            limit=SIGNS_MAX,
            # Times are in whole seconds, and within a second the store has no order of its own. So
            # all of the last second is read, and what comes first in it is decided here.
            ends_before=lambda found, document: (
                len(found) >= limit
                and written_at(document) < written_at(found[-1])
                and len(page(found)) == limit
            ),
            parameters=[{"name": n, "value": v} for n, v in named.items() if n in query],
            **where,
        )
        return page(found)

    async def now(self) -> float:
        """The time on the store's clock: a query that finds nothing."""
        clock = ResponseClock()
        await self.container.query(
            HEAD_QUERY, limit=1, partition_key=NOBODY, response_hook=clock.read
        )
        return clock.seconds

    async def first_parked(self, session: str, group: str) -> int | None:
        """See Maintenance.first_parked: one query in one partition."""
        lowest, highest = parked_ends(group)
        ends = [{"name": "@from", "value": lowest}, {"name": "@to", "value": highest}]
        found = await self.container.query(
            PARKED_QUERY, limit=1, partition_key=session, parameters=ends
        )
        return sequence_of(found[0]["id"]) if found else None

    async def close(
        self, session: str, position: int, version: str, closed: Resolution | None
    ) -> bool:
        """See Maintenance.close: one patch."""
        result, _ = await self.container.write(session, close_operations(position, version, closed))
        return result is WriteResult.CREATED

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

    async def blocked(self, session: str) -> Sequence[PendingOutbox]:
        """See Outboxes.blocked: one indexed query in one partition."""
        found = await self.container.query(BLOCKED_QUERY, limit=PENDING_MAX, partition_key=session)
        return [pending for document in found if (pending := decode_pending(document))]

    async def blocked_queues(self, region: str) -> Sequence[str]:
        """See Outboxes.blocked_queues: an indexed query for each outbox that names another."""
        known, new = list[str](), [region]
        while new:
            known += new
            parameters = [{"name": "@region", "value": region}, {"name": "@known", "value": known}]
            found = await self.container.query(BLOCKED_BESIDE_QUERY, limit=1, parameters=parameters)
            new = [key for one in found for key in one["blocked"] if key not in known]
        return blocked_queues_in(known, region)

    async def acknowledge(self, pending: PendingOutbox, done: Delivered) -> None:
        """See Outboxes.acknowledge: delete; or read, then replace or delete if nobody else did."""
        if operations := delete_delivered(pending, done):
            await self.container.write(pending.session, operations)
            return
        await self.revise(pending, lambda document: acknowledge_operations(document, done))

    async def leave_pending(self, session: str, position: int, regions: Sequence[str]) -> None:
        """See Outboxes.leave_pending: one patch."""
        await self.container.write(session, leave_pending_operations(position, regions))

    async def decide(self, pending: PendingOutbox, decisions: Mapping[str, OutputDecision]) -> None:
        """See Outboxes.decide: read, then replace if nobody else did."""
        await self.revise(pending, lambda document: decide_operations(document, decisions))

    async def revise(
        self, pending: PendingOutbox, change: Callable[[Document], list[Operation]]
    ) -> None:
        """Change a stored outbox, as often as it takes to be first."""
        session, document_id = pending.session, outbox_id(pending)
        while (document := await self.container.read(session, document_id)) is not None:
            result, _ = await self.container.write(session, change(document))
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

    async def key(self, session: str, group: str, message_id: str) -> BoundNumber | None:
        """See Ledgers.key: one point read."""
        document = await self.container.read(session, key_id(group, message_id))
        return decode_key(document) if document else None

    async def save_ledger(
        self,
        session: str,
        ledger: Ledger,
        version: str | None,
        pending: Outbox = NO_OUTBOX,
        keys: KeptKeys = NO_KEYS,
    ) -> str | None:
        """See Ledgers.save_ledger: one transactional batch."""
        operations = ledger_operations(session, ledger, version, pending, keys)
        result, answers = await self.container.write(session, operations)
        return str(answers[-1]["eTag"]) if result is WriteResult.CREATED else None

    async def regions(self) -> StoredRegions | None:
        """See Regions.regions: one point read."""
        document = await self.container.read(REGIONS_SESSION, REGIONS_ID)
        return StoredRegions(decode_regions(document), version_of(document)) if document else None

    async def save_regions(self, names: Sequence[str], version: str | None) -> bool:
        """See Regions.save_regions: one create or replace."""
        operations = regions_operations(names, version)
        result, _ = await self.container.write(REGIONS_SESSION, operations)
        return result is WriteResult.CREATED

    async def oldest_entries(self, session: str, limit: int) -> Sequence[StoredEntry]:
        """See Maintenance.oldest_entries: one query in one partition, dated by the store."""
        clock = ResponseClock()
        found = await self.container.query(
            OLDEST_QUERY, limit=limit, partition_key=session, response_hook=clock.read
        )
        return [stored_entry(document, clock) for document in found]

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

    async def compact(
        self,
        session: str,
        positions: Sequence[int],
        marks: Mapping[int, bool],
        states: Sequence[int] = (),
    ) -> None:
        """See Maintenance.compact: one transactional batch, or nothing if somebody else did it."""
        operations = compact_operations(positions, marks, states)
        if operations:
            await self.container.write(session, operations)

    async def repetition(self, session: str, report: str) -> Repetition | None:
        """See Repetitions.repetition: one point read."""
        document = await self.container.read(session, repetition_id(report))
        return decode_repetition(document) if document else None

    async def begin_repetition(
        self, session: str, report: str, repetition: Repetition
    ) -> Repetition:
        """See Repetitions.begin_repetition: one create, and a point read of what was there."""
        operations = repetition_operations(session, report, repetition)
        await self.container.write(session, operations)
        return await self.repetition(session, report) or repetition

    async def end_repetition(self, session: str, report: str) -> None:
        """See Repetitions.end_repetition: one patch."""
        await self.container.write(session, repetition_operations(session, report, None))

    async def listed(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """See Directory.listed: one indexed query, whose pages the SDK merges by name."""
        found = await self.container.query(
            LISTED_QUERY,
            limit=limit,
            parameters=[{"name": "@after", "value": after}, {"name": "@prefix", "value": prefix}],
            **RELAXED,
        )
        return [str(document["listed"]) for document in found]

    async def recent_entries(self, seconds: float, limit: int) -> Sequence[RecentEntry]:
        """See Directory.recent_entries: one query, and one for the time."""
        now = await self.now()
        since = {"name": "@since", "value": now - seconds}
        found = await self.container.query(RECENT_QUERY, limit=limit, parameters=[since], **RELAXED)
        return [decode_recent(document, now) for document in found]

    async def waiting_seconds(
        self, region: str, older_than_seconds: float, limit: int
    ) -> Sequence[float]:
        """See Directory.waiting_seconds: one indexed query, and one for the time."""
        now = await self.now()
        named = {"@region": region, "@late": now - older_than_seconds}
        found = await self.container.query(
            WAITING_QUERY,
            limit=limit,
            parameters=[{"name": n, "value": v} for n, v in named.items()],
            **RELAXED,
        )
        return [max(0.0, now - written_at(document)) for document in found]


def stored_entry(document: Document, clock: ResponseClock) -> StoredEntry:
    """An entry as it was read, dated by the store."""
    entry, is_marked = decode_entry(document), shows_need(document, SessionNeed.COMPACTION)
    times = written_at(document), clock.seconds
    return StoredEntry(entry, version_of(document), *times, is_marked)
