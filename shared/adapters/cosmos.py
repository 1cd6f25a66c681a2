"""The journal over azure-cosmos: one container, one logical partition per session.

The SDK retries writes by itself, so a conflict may be our own earlier success; the use case tells
them apart by attempt.
"""

from collections.abc import Mapping, Sequence

from shared.adapters.cosmos_container import PAGE_MAX, RELAXED, Answer, CosmosContainer
from shared.domain.batch import (
    NOTHING_CARRIED,
    Appended,
    Carried,
    Create,
    Waiting,
    acknowledge_operations,
    append_operations,
    compact_operations,
    ledger_operations,
    parts,
    replace_operations,
)
from shared.domain.documents import (
    entry_from,
    ledger_from,
    ledger_id,
    mark_from,
    marker_id,
    owed_document,
    owing_from,
    parcels_from,
    parked_id,
    position_id,
    staged_documents,
)
from shared.domain.journal import Entry, Mark
from shared.domain.message import Message, Number
from shared.domain.outbox import NOTHING_OWED, Outbox, Owing, Parcel, Staged
from shared.domain.producer import Ledger
from shared.domain.stored_messages import Document, covered_from, message_from
from shared.ports import OWING_MAX, Covers, Held, Sought, StoredLedger

# Entry ids are digits and ':' follows '9', so this range holds entries and nothing else.
HEAD_QUERY = "SELECT TOP 1 * FROM c WHERE c.id >= '0' AND c.id < ':' ORDER BY c.id DESC"
OLDEST_QUERY = "SELECT * FROM c WHERE c.id >= '0' AND c.id < ':' ORDER BY c.id"
COVERS_QUERY = (
    "SELECT c.id, c.covers, c.claimed FROM c WHERE c.id >= @from AND c.id < ':' ORDER BY c.id"
)
FAULTS_QUERY = "SELECT * FROM c WHERE c.faulted = true ORDER BY c.id"
MILESTONE_QUERY = "SELECT c.id, c._ts FROM c WHERE c.milestone = true ORDER BY c.id DESC"
CONDITIONS = {
    Sought.OWING: "ARRAY_CONTAINS(c.owing, @region)",
    Sought.CLAIMED: "c.claimed = true",
    Sought.WAITING: "c.waiting = true",
    Sought.FAULTED: "c.faulted = true",
    Sought.MILESTONE: "c.milestone = true",
}
MILESTONES_MAX = 1_000


class CosmosJournal:
    """See ports.Journal."""

    def __init__(self, documents: CosmosContainer) -> None:
        self.documents = documents

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:
        """See Journal.head: one query in one partition."""
        how = {} if newest else RELAXED
        documents = await self.documents.query(HEAD_QUERY, limit=1, partition_key=session, **how)
        return entry_from(documents[0]) if documents else None

    async def entry(self, session: str, position: int) -> Entry | None:
        """See Journal.entry: one point read."""
        document = await self.documents.read(session, position_id(position))
        return entry_from(document) if document else None

    async def held(self, session: str, position: int) -> Held | None:
        """See Journal.held: one point read; its answer's date is the store's time."""
        answer = Answer()
        document = await self.documents.read(
            session, position_id(position), response_hook=answer.heard
        )
        if document is None:
            return None
        return Held(entry_from(document), document["_etag"], document["_ts"], answer.store_seconds)

    async def covers(self, session: str, position: int, limit: int) -> Mapping[int, Covers]:
        """See Journal.covers: one query in one partition, or a point read."""
        if limit == 1:
            document = await self.documents.read(session, position_id(position), **RELAXED)
            return covers_by_position([document] if document else [])
        start = {"name": "@from", "value": position_id(position)}
        found = await self.documents.query(
            COVERS_QUERY, limit=limit, partition_key=session, parameters=[start], **RELAXED
        )
        return covers_by_position(found)

    async def marked(self, session: str, message_id: str) -> Mark | None:
        """See Journal.marked: one point read."""
        document = await self.documents.read(session, marker_id(message_id), **RELAXED)
        return mark_from(document) if document else None

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> Appended:
        """See Journal.append: one transactional batch."""
        return await self.documents.apply(entry.session, append_operations(entry, carried))

    async def replace(
        self,
        entry: Entry,
        version: str,
        carried: Carried = NOTHING_CARRIED,
        waiting: Waiting | None = None,
    ) -> Appended:
        """See Journal.replace: one transactional batch."""
        operations = replace_operations(entry, version, carried, waiting)
        return await self.documents.apply(entry.session, operations)

    async def parked(self, session: str, number: Number) -> Message | None:
        """See Journal.parked: one point read."""
        document = await self.documents.read(session, parked_id(number))
        return message_from(document["message"]) if document else None

    async def sessions(
        self,
        sought: Sought,
        *,
        region: str = "",
        older_than_seconds: float = 0.0,
        but_for: Sequence[str] = (),
        limit: int,
    ) -> Sequence[str]:
        """See Journal.sessions: an indexed query, aged by the date of its answer."""
        answer = Answer()
        named = {"@region": region, "@but_for": list(but_for)}
        condition = CONDITIONS[sought]
        if but_for:
            condition += " AND NOT ARRAY_CONTAINS(@but_for, c.session)"
        found = await self.documents.query(
            f"SELECT c.session, c._ts FROM c WHERE {condition} ORDER BY c._ts",  # noqa: S608 - from our own table
            limit=limit,
            parameters=[{"name": n, "value": v} for n, v in named.items() if n in condition],
            response_hook=answer.heard,
        )
        before = answer.store_seconds - older_than_seconds
        return list(dict.fromkeys(d["session"] for d in found if d["_ts"] <= before))

    async def faults_of(self, session: str) -> Sequence[Entry]:
        """See Journal.faults_of: one indexed query in one partition."""
        found = await self.documents.query(FAULTS_QUERY, limit=PAGE_MAX, partition_key=session)
        return [entry_from(document) for document in found if document["kind"] == "entry"]

    async def owing_of(
        self, session: str, regions: Sequence[str], *, limit: int = OWING_MAX
    ) -> Sequence[Owing]:
        """See Journal.owing_of: one indexed query in one partition."""
        names = [f"@r{index}" for index in range(len(regions))]
        condition = " OR ".join(f"ARRAY_CONTAINS(c.owing, {name})" for name in names)
        found = await self.documents.query(
            f"SELECT * FROM c WHERE {condition} ORDER BY c.id",  # noqa: S608 - names are ours
            limit=limit,
            partition_key=session,
            parameters=[{"name": n, "value": r} for n, r in zip(names, regions, strict=True)],
        )
        return [owing for document in found if (owing := owing_from(document))]

    async def owe(self, session: str, outbox: Outbox) -> None:
        """See Journal.owe: one create."""
        await self.documents.apply(
            session, [Create(owed_document(session, outbox), Appended.TAKEN)]
        )

    async def acknowledge(
        self,
        session: str,
        document_id: str,
        delivered: Sequence[str],
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """See Journal.acknowledge: read, then replace or delete if nobody else did."""
        while (document := await self.documents.read(session, document_id)) is not None:
            operations = acknowledge_operations(document, delivered, refused or {})
            if await self.documents.apply(session, operations) is not Appended.TAKEN:
                return

    async def stage(self, session: str, attempt: str, parcels: Sequence[Parcel]) -> None:
        """See Journal.stage: one create for each part."""
        for document in staged_documents(session, attempt, parcels):
            await self.documents.apply(session, [Create(document, Appended.TAKEN)])

    async def staged(self, session: str, staged: Staged) -> Sequence[Parcel]:
        """See Journal.staged: one point read for each part."""
        found = [await self.documents.read(session, document_id) for document_id in parts(staged)]
        return [parcel for document in found if document for parcel in parcels_from(document)]

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        """See Journal.ledger: one point read."""
        document = await self.documents.read(session, ledger_id(group))
        return StoredLedger(ledger_from(document), document["_etag"]) if document else None

    async def save_ledger(
        self, session: str, ledger: Ledger, version: str | None, owed: Outbox = NOTHING_OWED
    ) -> str | None:
        """See Journal.save_ledger: one transactional batch."""
        operations = ledger_operations(session, ledger, version, owed)
        answers = await self.documents.write(session, operations)
        if isinstance(answers, Appended):
            return None
        stored: str = answers[0]["eTag"]
        return stored

    async def compactable(self, session: str, limit: int) -> Sequence[Entry]:
        """See Journal.compactable: one query in one partition."""
        found = await self.documents.query(OLDEST_QUERY, limit=limit, partition_key=session)
        return [entry_from(document) for document in found]

    async def milestone(self, session: str, older_than_seconds: float) -> int | None:
        """See Journal.milestone: one query in one partition."""
        answer = Answer()
        found = await self.documents.query(
            MILESTONE_QUERY,
            limit=MILESTONES_MAX,
            partition_key=session,
            response_hook=answer.heard,
        )
        before = answer.store_seconds - older_than_seconds
        return next((int(d["id"]) for d in found if d["_ts"] <= before), None)

    async def compact(self, session: str, positions: Sequence[int], passed: int | None) -> None:
        """See Journal.compact: one transactional batch, or nothing if somebody else did it."""
        operations = compact_operations(positions, passed)
        if operations:
            await self.documents.apply(session, operations)


def covers_by_position(documents: Sequence[Document]) -> dict[int, Covers]:
    """What stored entries cover; what is claimed is not done yet."""
    done = [d for d in documents if not d.get("claimed")]
    return {int(d["id"]): [covered_from(c) for c in d["covers"]] for d in done}
