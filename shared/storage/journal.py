"""The journals of all sessions, written once over any container: one partition for each session.

A container may try a write again by itself, so a refusal may be our own earlier success; the
worker tells them apart by the attempt's id. Every method may raise Unavailable (nothing
happened) and, where it writes, OutcomeUnknown (it may have happened, or may still).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from typing import Any

from shared.domain.errors import NotStorable, TooLarge
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
from shared.domain.next_entry import leave_inputs_out
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
from shared.domain.saga.plan import SagaState
from shared.domain.saga.record import ListedSaga
from shared.domain.standstill import CountedCauses, ListPlace, Sign, take_page
from shared.ports import (
    NOTHING_CARRIED,
    BrowsedMessage,
    Carried,
    Container,
    CreateDocument,
    DeleteDocument,
    Document,
    Operation,
    ParkedMessage,
    PatchDocument,
    ReplaceDocument,
    SessionNeed,
    StoreClock,
    StoredEntry,
    StoredLedger,
    StoredRegions,
    UpsertDocument,
    WriteResult,
)
from shared.storage import queries
from shared.storage.archive import ARCHIVE_ID, ARCHIVE_KIND, decode_archive_record
from shared.storage.documents import (
    ENDED_REPORT_SECONDS,
    TTL_FIELD,
    VERSION_FIELD,
    blocked_key,
    decode_outbox,
    decode_parked,
    decode_parked_run,
    decode_pending,
    decode_repetition,
    decode_report,
    decode_sign,
    decode_staged,
    encode_pending,
    encode_repetition,
    encode_report,
    encode_staged,
    parked_id,
    parked_ids,
    repetition_id,
    report_id,
    sequence_of,
    session_in,
    staged_ids,
    version_of,
    with_outbox,
    written_at,
)
from shared.storage.entries import (
    GENESIS_ID,
    append_operations,
    cursor_id,
    decode_cursor,
    decode_entry,
    decode_marker,
    decode_recent,
    encode_entry,
    lacks_state,
    marker_id,
    outbox_id,
    patch_pending,
    position_id,
    processed_by_position,
    replace_operations,
    result_id,
    state_id,
    with_state,
)
from shared.storage.ledgers import decode_key, decode_ledger, key_id, ledger_id, ledger_operations
from shared.storage.limits import BATCH_OPERATIONS_MAX, STAGED_DOCUMENTS_MAX
from shared.storage.sagas import (
    BY_CHANGE,
    BY_DUE,
    BY_KEY,
    decode_listed,
    sagas_query,
    timed_sagas_query,
)

# Where the list of regions is, and the beacons. A session may well have this name: no other
# document has these ids.
REGIONS_SESSION, REGIONS_ID = "$regions", "regions"
# How long staged outputs are kept of which one was refused.
REFUSED_SECONDS = 30 * 24 * 3600
# Of a session's pending outboxes so many are listed at once.
PENDING_MAX = 1_000
# Clocks that are apart.
CLOCK_SLACK_SECONDS = 3600.0
# After all times: JSON has no infinity.
FAR_SECONDS = 1e11


def beacon_of(region: str) -> Document:
    return {"id": f"beacon-{region}", "session": REGIONS_SESSION, "kind": "beacon"}


def is_beacon(document: Mapping[str, Any], region: str) -> bool:
    """Say whether a document of the journal's container is this region's beacon."""
    return beacon_of(region).items() <= document.items()


class Journal:
    """Everything that is kept of all sessions: its public methods are the calls of the store."""

    def __init__(self, container: Container) -> None:
        self.container = container

    # The entries of all sessions, and the messages that wait beside them.

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:
        """Return the newest entry of a session, or None: one query in one partition.

        It is as new as any append acknowledged before the call. With `newest` false it may be an
        older one, and costs half.
        """
        found = await self.container.find(queries.head_query(session, may_be_old=not newest))
        return decode_entry(found[0]) if found else None

    async def entry(self, session: str, position: int) -> Entry | None:
        """Return the entry at a position, or None: one read, and one more for a state beside it."""
        document = await self.container.read(session, position_id(position))
        if document and lacks_state(document):
            document = with_state(document, await self.container.read(session, state_id(position)))
        return decode_entry(document) if document else None

    async def stored_entry(self, session: str, position: int) -> StoredEntry | None:
        """Return the entry at a position with its version and age, or None: one read."""
        clock = StoreClock()
        document = await self.container.read(session, position_id(position), clock=clock)
        return dated_entry(document, clock) if document else None

    async def processed(
        self, session: str, position: int, limit: int
    ) -> Mapping[int, Sequence[MessageIdentity]]:
        """Return the messages that the entries from a position on processed, by position.

        At most `limit` entries are looked at, in one query in one partition. The newest ones may be
        missing, and claims are. A `limit` of one is a read.
        """
        if limit == 1:
            document = await self.container.read(session, position_id(position), may_be_old=True)
            return processed_by_position([document] if document else [])
        found = await self.container.find(queries.processed_query(session, position, limit))
        return processed_by_position(found)

    async def cursor(self, session: str, group: str) -> EvictedCursor | None:
        """Return the cursor of a producer group as it was evicted last, or None: one read.

        It is as new as any append acknowledged before the call, because it decides what is
        processed, and older than that of an entry that names the group.
        """
        document = await self.container.read(session, cursor_id(group))
        return decode_cursor(document) if document else None

    async def marker(
        self, session: str, message_id: str, source: str = OWN_SOURCE, *, newest: bool = False
    ) -> Marker | None:
        """Return the marker of an un-numbered message while it is kept, or None: one read.

        A new one may be missed, at half the price, unless the `newest` is asked for.
        """
        marker = marker_id(message_id, source)
        document = await self.container.read(session, marker, may_be_old=not newest)
        return decode_marker(document) if document else None

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> WriteResult:
        """Write the entry with everything that belongs to it, all or none: one batch.

        Of all appends at one position at most one is ever CREATED, and only on an entry before it
        that exists. Raises NotStorable for what the store does not take.
        """
        operations = append_operations(entry, encode_entry(entry), carried)
        try:
            result, _ = await self.container.write(entry.session, operations)
        except NotStorable:
            if not any(entry.inputs):
                raise
            # What is kept for an archive must not make a fault of a message.
            return await self.append(leave_inputs_out(entry), carried)
        return result

    async def replace(
        self,
        entry: Entry,
        version: str,
        carried: Carried = NOTHING_CARRIED,
        waiting: ParkedMessage | None = None,
    ) -> WriteResult:
        """Replace a claim, and put results or a message beside it, all or none: one batch.

        CREATED, or TAKEN if the version is another. Raises NotStorable.
        """
        operations = replace_operations(entry, version, carried, waiting)
        try:
            result, _ = await self.container.write(entry.session, operations)
        except NotStorable:
            if not any(entry.inputs):
                raise
            return await self.replace(leave_inputs_out(entry), version, carried, waiting)
        return result

    async def result(self, session: str, position: int, step: str) -> Any:
        """Return the result of a step that was put beside a claim, or None: one read."""
        document = await self.container.read(session, result_id(position, step))
        return document.get("result") if document else None

    async def parked(self, session: str, number: Number) -> Message | None:
        """Return the message parked under a number, or None: one read."""
        document = await self.container.read(session, parked_id(number))
        return decode_parked(document) if document else None

    async def parked_run(self, session: str, number: Number, limit: int) -> Sequence[Message]:
        """Return the messages parked under a number and those right after it, to the first gap.

        At most `limit`, in one query in one partition. The number's owner level does not count.
        """
        ids = parked_ids(number, limit)
        query = queries.parked_query(session, ids[0], ids[-1], limit)
        return decode_parked_run(await self.container.find(query), ids)

    # What waits to be delivered to regions.

    async def pending(
        self, session: str, regions: Sequence[str], *, limit: int = PENDING_MAX
    ) -> Sequence[PendingOutbox]:
        """Return a session's outboxes that wait for one of these regions, the oldest first.

        At most `limit`, in one indexed query in one partition. A producer's come after all
        entries'; they are in no order.
        """
        clock = StoreClock()
        found = await self.container.find(queries.pending_query(session, regions, limit), clock)
        pending = (decode_pending(document, clock.seconds) for document in found)
        return [one for one in pending if one is not None]

    async def add_pending(self, session: str, outbox: Outbox) -> None:
        """Keep a producer's outbox until it is delivered: one create.

        Adding it twice is adding it once.
        """
        document = encode_pending(session, outbox)
        await self.container.write(session, [CreateDocument(document, WriteResult.TAKEN)])

    async def blocked(self, session: str) -> Sequence[PendingOutbox]:
        """Return a session's outboxes with blocked queues, the oldest entries first: one query."""
        found = await self.container.find(queries.blocked_query(session, PENDING_MAX))
        return [pending for document in found if (pending := decode_pending(document))]

    async def blocked_queues(self, region: str) -> Sequence[str]:
        """Return the region's blocked queues, once each: a query for each outbox that has another.

        What has been blocked longest comes first.
        """
        known, new = list[str](), [region]
        while new:
            known += new
            found = await self.container.find(queries.blocked_beside_query(region, known))
            new = [key for one in found for key in one["blocked"] if key not in known]
        prefix = blocked_key(region, "")
        return [key.removeprefix(prefix) for key in known if key.startswith(prefix)]

    async def acknowledge(self, pending: PendingOutbox, done: Delivered) -> None:
        """Record what a delivery of an outbox came to: one write, or a read and then a batch.

        It is read again as often as somebody else was first. Doing so twice is harmless.
        """
        left = pending.outbox.after(done)
        is_over = not (left.regions or left.blocked or left.refused)
        if is_over and pending.position is None and not pending.key:
            # A producer's outbox as it was stored. Every region took all of it: whatever others
            # wrote into it meanwhile is over as well, and nothing has to be read.
            gone = DeleteDocument(outbox_id(pending), WriteResult.ORPHANED)
            await self.container.write(pending.session, [gone])
            return
        # Most deliveries strike off regions and change nothing else. That needs no second read, on
        # condition that nobody wrote the document since the first.
        is_plain = left == pending.outbox.only(left.regions)
        if pending.version and is_plain and not isinstance(left.location, Staged):
            operation = acknowledge_unchanged(pending, done, is_over=is_over)
            result, _ = await self.container.write(pending.session, [operation])
            if result is not WriteResult.TAKEN:
                return
        await revise(self.container, pending, lambda stored: acknowledge_operations(stored, done))

    async def begin_sending(
        self, pending: PendingOutbox, regions: Collection[str], lag_seconds: float
    ) -> PendingOutbox | None:
        """Record that a stored outbox is sent to regions from now on, and return it as it is.

        None where somebody else does so, or it waits for nobody any more. A read and a patch.
        """
        session, document_id, clock = pending.session, outbox_id(pending), StoreClock()
        while document := await self.container.read(session, document_id, clock=clock):
            now = decode_pending(document, clock.seconds)
            if now is None or any(now.is_sent_elsewhere(one, lag_seconds) for one in regions):
                return None
            sending = {"/outbox/sending": [*dict.fromkeys((*now.outbox.sending, *regions))]}
            taken, version = WriteResult.TAKEN, version_of(document)
            begin = PatchDocument(document_id, sending, taken, version)
            result, _ = await self.container.write(session, [begin])
            if result is not WriteResult.TAKEN:
                return now
        return None

    async def leave_pending(self, session: str, position: int, regions: Sequence[str]) -> None:
        """Record which regions an entry's outbox still waits for: one patch without a read.

        For the worker that made the entry and sent its outputs, which must not be staged ones. An
        outbox that others brought out meanwhile stays over: what its outputs are made of may have
        been removed since.
        """
        left = patch_pending(position_id(position), regions, WriteResult.TAKEN)
        if regions:
            left = replace(left, unless_empty="pending")
        await self.container.write(session, [left])

    async def decide(self, pending: PendingOutbox, decisions: Mapping[str, OutputDecision]) -> None:
        """Record what a person decided about the outputs for blocked queues: a read and a batch."""

        def decide(document: Document) -> list[Operation]:
            before = decode_outbox(document)
            outbox = replace(before, decided={**before.decided, **decisions})
            decided = with_outbox(document, outbox)
            return [ReplaceDocument(decided, version_of(document), WriteResult.TAKEN)]

        await revise(self.container, pending, decide)

    async def stage(self, session: str, attempt: str, batches: Sequence[DestinationBatch]) -> None:
        """Keep an attempt's outputs until it commits or has had its time, part by part.

        Raises NotStorable, and TooLarge before anything is written where no entry adopts so many.
        """
        if len(batches) > STAGED_DOCUMENTS_MAX:
            raise TooLarge(
                f"its outputs fill {len(batches)} documents, over {STAGED_DOCUMENTS_MAX} of about"
                " 800 kB: send fewer of them with one message, or by a deterministic handler"
            )
        for document in encode_staged(session, attempt, batches):
            await self.stage_part(session, document)

    async def stage_part(self, session: str, document: Document) -> None:
        """Keep one part of an attempt's outputs: one create. Raises NotStorable."""
        await self.container.write(session, [CreateDocument(document, WriteResult.TAKEN)])

    async def staged(self, session: str, staged: Staged) -> Sequence[DestinationBatch]:
        """Return the outputs that were staged, fewer if they are gone: one read for each part."""
        found = [await self.container.read(session, part) for part in staged_ids(staged)]
        return [batch for document in found if document for batch in decode_staged(document)]

    # The producers' ledgers, which lie beside the journals.

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        """Return the ledger of a producer group in a session, or None: one read."""
        document = await self.container.read(session, ledger_id(group))
        return StoredLedger(decode_ledger(document), version_of(document)) if document else None

    async def key(self, session: str, group: str, message_id: str) -> BoundNumber | None:
        """Return the number that a key is bound to while it is kept, or None: one read."""
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
        """Create (version None) or replace a ledger, and keep its newest messages until delivered.

        All of it with its keys, or nothing: one batch. The answer is the version stored, or None
        when another producer was first, or one of the keys is kept already. Raises NotStorable.
        """
        operations = ledger_operations(session, ledger, version, pending, keys)
        result, stored = await self.container.write(session, operations)
        return stored if result is WriteResult.CREATED else None

    async def end_ledger(self, session: str, group: str) -> None:
        """Let a group's ledger, where there is one, give no further number: one patch."""
        ended = PatchDocument(ledger_id(group), {"/ended": True}, WriteResult.ORPHANED)
        await self.container.write(session, [ended])

    async def end_all_ledgers(
        self, session: str, *, are_apart: bool = False
    ) -> Mapping[str, int] | None:
        """Let no ledger of a session give a further number; by group, the next one of each.

        None while copies are pending or messages are parked, or where somebody was faster: ask
        again. Where they `are_apart` from the journal they are marked, so that compaction finds
        them should a crash leave them behind. A query, and a batch where one was not ended yet.
        """
        found = await self.container.find(queries.partition_query(session))
        if any(document["kind"] in ("pending", "parked") for document in found):
            return None
        ledgers = [document for document in found if document["kind"] == "ledger"]
        going_on = [document for document in ledgers if not document.get("ended")]
        ended = {"/ended": True} | ({"/milestone": True} if are_apart else {})
        taken = WriteResult.TAKEN
        operations = [
            PatchDocument(document["id"], ended, taken, version_of(document))
            for document in going_on[:BATCH_OPERATIONS_MAX]
        ]
        if operations:
            result, _ = await self.container.write(session, operations)
            if result is not WriteResult.CREATED or len(operations) == BATCH_OPERATIONS_MAX:
                return None
        return {document["group"]: document["next"] for document in ledgers}

    async def remove_ledgers(self, session: str) -> bool:
        """Remove the ended ledgers of a session, with the keys beside them: a query and a batch.

        False where they were written meanwhile.
        """
        found = await self.container.find(queries.partition_query(session))
        gone = [
            d for d in found if d["kind"] == "key" or (d["kind"] == "ledger" and d.get("ended"))
        ]
        return await delete_all(self.container, session, gone)

    # The list of regions that everything in the journal is for.

    async def regions(self) -> StoredRegions | None:
        """Return the stored list, or None while nobody has stored one: one read."""
        document = await self.container.read(REGIONS_SESSION, REGIONS_ID)
        if document is None:
            return None
        names, kept_for = document["regions"], document.get("kept_for", {})
        return StoredRegions(tuple(names), version_of(document), kept_for)

    async def save_regions(
        self, names: Sequence[str], version: str | None, kept_for: Mapping[str, str] | None = None
    ) -> bool:
        """Create (version None) or replace the list; false when somebody else was first."""
        document: Document = {"id": REGIONS_ID, "session": REGIONS_SESSION, "kind": "regions"}
        document["regions"] = list(names)
        if kept_for:
            document["kept_for"] = dict(kept_for)
        taken = WriteResult.TAKEN
        stored: Operation = CreateDocument(document, taken)
        if version is not None:
            stored = ReplaceDocument(document, version, taken)
        result, _ = await self.container.write(REGIONS_SESSION, [stored])
        return result is WriteResult.CREATED

    async def light_beacon(self, region: str) -> None:
        """Write the document that says nothing, and that whoever follows the changes has to see."""
        await self.container.write(REGIONS_SESSION, [UpsertDocument(beacon_of(region))])

    async def archive_age(self) -> float:
        """Return for how many seconds no archive has what was written: one read.

        It is infinite where none was made.
        """
        clock = StoreClock()
        document = await self.container.read(REGIONS_SESSION, ARCHIVE_ID, clock=clock)
        until = decode_archive_record(document).until if document else 0
        return clock.seconds - until if until else inf

    # What sweeps, compaction and operators look for.

    async def has_work(self, region: str) -> bool:
        """Say whether any session may have a need of queries.SWEPT in a region, at any age.

        One query, which ends at the first document that it finds.
        """
        return bool(await self.container.find(queries.work_query(region)))

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
        """Return sessions with a need, the oldest first, each named once: an indexed query.

        Ages are by the store's clock, since the last change. At most `limit` documents are looked
        at; those of the `excluded` sessions do not count. DELIVERY is asked for one region,
        UNBLOCKING for one queue of it. With `of_regions`, the number of regions, those follow whose
        outbox fewer miss, at any age: another region's acknowledgement was their last change. That
        is a second query, in which the store looks at each outbox that waits.
        """
        place = blocked_key(region, queue) if need is SessionNeed.UNBLOCKING else region
        clock = StoreClock()
        # Oldest first, so nothing is read beyond the first document that is too young.
        aged = queries.sessions_query(
            need,
            place,
            limit,
            excluded=excluded,
            is_enough=lambda _, next_one: written_at(next_one) > clock.seconds - older_than_seconds,
        )
        found = await self.container.find(aged, clock)
        if of_regions:
            partly = queries.sessions_query(
                need, place, limit, excluded=excluded, of_regions=of_regions
            )
            found = [*found, *await self.container.find(partly)]
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
        now: float | None = None,
        counted: CountedCauses | None = None,
    ) -> Sequence[Sign]:
        """Return what shows a need in the order of the list, after a place: of all sessions or one.

        RESOLUTION, DRAINING and DELIVERY are looked for, the latter for these regions. A sign of
        these two counts once it is older than this, by the store's clock. Fewer than `limit` are
        the last ones. One indexed query, and one for the time where `now` is not known. What was
        `counted` is left out; of what a count looks for the newest may be missing, at half the
        price.
        """
        now = await self.time() if now is None else now
        late = now - older_than_seconds
        known: tuple[float, float] | None = None
        if counted is not None:
            known = counted.newest, counted.at - older_than_seconds
        first = after.since if after else now + CLOCK_SLACK_SECONDS

        def page(documents: Sequence[Document]) -> Sequence[Sign]:
            return take_page((decode_sign(one, late) for one in documents), after, limit)

        def is_enough(found: Sequence[Document], document: Document) -> bool:
            # Times are in whole seconds, and within a second the store has no order of its own. So
            # all of the last second is read, and what comes first in it is decided here.
            return (
                len(found) >= limit
                and written_at(document) < written_at(found[-1])
                and len(page(found)) == limit
            )

        query = queries.signs_query(needs, regions, session, late, first, is_enough, known)
        return page(await self.container.find(query))

    async def first_parked(self, session: str, group: str) -> int | None:
        """Return the lowest sequence that a message of a group is parked under, or None."""
        found = await self.container.find(queries.first_parked_query(session, group))
        return sequence_of(found[0]["id"]) if found else None

    async def close(
        self, session: str, position: int, version: str, closed: Resolution | None
    ) -> bool:
        """Record that an entry asks for nobody any more, and who decided so, where a person did.

        One patch; false where the entry was written since this version was read.
        """
        fields: dict[str, Any] = {"/faulted": False}
        if closed is not None:
            fields["/closed"] = asdict(closed)
        patch = PatchDocument(position_id(position), fields, WriteResult.TAKEN, version)
        result, _ = await self.container.write(session, [patch])
        return result is WriteResult.CREATED

    async def oldest_entries(
        self, session: str, limit: int, position: int = 0
    ) -> Sequence[StoredEntry]:
        """Return the oldest entries from a position on in order, dated by the store: one query."""
        clock = StoreClock()
        query = queries.oldest_query(session, limit, position)
        found = await self.container.find(query, clock)
        return [dated_entry(document, clock) for document in found]

    async def milestone(self, session: str, older_than_seconds: float) -> int | None:
        """Return the newest marked position that is older than this by the store's clock."""
        clock = StoreClock()
        found = await self.container.find(queries.milestone_query(session), clock)
        before = clock.seconds - older_than_seconds
        return next((int(one["id"]) for one in found if written_at(one) <= before), None)

    async def compact(
        self,
        session: str,
        positions: Sequence[int],
        marks: Mapping[int, bool],
        states: Sequence[int] = (),
    ) -> None:
        """Remove entries, and mark others or remove their marks: at most 100 in all, or nothing.

        One batch, or nothing if somebody else did it. `states` are those of the entries whose
        states lie beside them, which go as well. Writing a mark makes its entry young. Doing so
        twice is harmless.
        """
        gone = [position_id(position) for position in positions] + [state_id(at) for at in states]
        operations: list[Operation] = [DeleteDocument(one, WriteResult.ORPHANED) for one in gone]
        for position, is_marked in marks.items():
            mark = {"/milestone": is_marked}
            operations.append(PatchDocument(position_id(position), mark, WriteResult.ORPHANED))
        if operations:
            await self.container.write(session, operations)

    async def note_quiet(self, stored: StoredEntry, seconds: float | None) -> None:
        """Record for how long a session was quiet when it was looked after, and mark it anew.

        One patch; nothing where the entry was written since it was read.
        """
        fields: dict[str, Any] = {"/milestone": True}
        if seconds is not None:
            fields["/quiet"] = seconds
        entry = stored.entry
        patch = PatchDocument(
            position_id(entry.position), fields, WriteResult.TAKEN, stored.version
        )
        await self.container.write(entry.session, [patch])

    async def remove_session(self, stored: StoredEntry) -> bool:
        """Remove all that there is of a session whose newest entry, and its version, is given.

        False where something came meanwhile, or is pending or parked. A query and one batch, in
        which the newest entry, the genesis and the ledgers go together; of what does not fit into
        it the older part goes before, the oldest entries first.
        """
        session, newest = stored.entry.session, position_id(stored.entry.position)
        found = await self.container.find(queries.partition_query(session))
        # A report that was ended goes by itself, and one that is open is nothing of the session's.
        own = (d for d in found if d["kind"] not in ("regions", "beacon", "report", ARCHIVE_KIND))
        found = sorted(own, key=lambda d: str(d["id"]))
        for document in found:
            is_newer = document["kind"] == "entry" and document["id"] > newest
            if is_newer or document["kind"] in ("pending", "parked"):
                return False
            if document["id"] == newest:
                document[VERSION_FIELD] = stored.version
        last = (newest, GENESIS_ID, state_id(stored.entry.position))
        early = [d for d in found if d["id"] not in last and d["kind"] != "ledger"]
        if len(found) <= BATCH_OPERATIONS_MAX:
            early = []
        together = [d for d in found if d not in early]
        if len(together) > BATCH_OPERATIONS_MAX:
            return False
        is_free = await delete_all(self.container, session, early)
        return is_free and await delete_all(self.container, session, together)

    async def session_age(self, session: str) -> float | None:
        """Return how long ago a session began, by the store's clock, or None: one read."""
        clock = StoreClock()
        genesis = await self.container.read(session, GENESIS_ID, clock=clock)
        return clock.seconds - written_at(genesis) if genesis else None

    # What people look at. Nothing is decided by it, so it may be some seconds old.

    async def listed(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """Return the sessions whose names begin with a prefix and come after a name, in order.

        One indexed query, whose pages the adapter merges by name.
        """
        found = await self.container.find(queries.listed_query(prefix, after, limit))
        return [str(document["listed"]) for document in found]

    async def sagas(
        self, state: SagaState | None = None, prefix: str = "", after: str = "", *, limit: int
    ) -> Sequence[ListedSaga]:
        """Return sagas whose keys begin with a prefix and come after a key, in order.

        Of one state where one is given. One indexed query; no journal is looked at.
        """
        clock = StoreClock()
        found = await self.container.find(sagas_query(state, prefix, after, limit), clock)
        return [decode_listed(document, clock.seconds) for document in found]

    async def sagas_by_time(
        self, until: float | None, after: ListPlace | None, limit: int, *, by_due: bool
    ) -> Sequence[ListedSaga]:
        """Return sagas by their last change, or by when they are due, the newest first.

        Up to a time in seconds since 1970, or after a place, whose `since` is of the same kind.
        Fewer than `limit` are the last ones. One indexed query; no journal is looked at.
        """
        clock, field = StoreClock(), BY_DUE if by_due else BY_CHANGE

        def place(document: Document) -> tuple[float, str]:
            return ListPlace(document[field], document[BY_KEY]).order

        def page(documents: Sequence[Document]) -> list[Document]:
            left = (one for one in documents if after is None or place(one) > after.order)
            return sorted(left, key=place)[:limit]

        def is_enough(found: Sequence[Document], document: Document) -> bool:
            # All of one time is read: within it the store has no order of its own.
            is_older = bool(found) and document[field] < found[-1][field]
            return len(found) >= limit and is_older and len(page(found)) == limit

        bound = after.since if after else FAR_SECONDS if until is None else until
        query = timed_sagas_query(field, bound, queries.SIGNS_MAX, is_enough)
        found = await self.container.find(query, clock)
        return [decode_listed(document, clock.seconds) for document in page(found)]

    async def sagas_due_first(self, limit: int) -> Sequence[ListedSaga]:
        """Return the sagas that are running, those first that are due first: one indexed query."""
        clock = StoreClock()
        found = await self.container.find(timed_sagas_query(BY_DUE, FAR_SECONDS, limit), clock)
        return [decode_listed(document, clock.seconds) for document in found]

    async def changed(
        self, need: SessionNeed | None, after: ListPlace | None, limit: int
    ) -> tuple[Sequence[ListPlace], bool]:
        """Return sessions by when they were written last, the newest first, after a place.

        The place's key is the session. At most `limit` documents are looked at, those of a need or
        else entries; whether there were so many is the second answer. One indexed query.
        """
        bound = after.since if after else await self.time() + CLOCK_SLACK_SECONDS
        found = await self.container.find(queries.changed_query(need, bound, limit))
        seen: dict[str, float] = {}
        for document in found:
            seen.setdefault(session_in(document), written_at(document))
        places = sorted((ListPlace(at, one) for one, at in seen.items()), key=lambda p: p.order)
        left = [one for one in places if after is None or one.order > after.order]
        return left, len(found) == limit

    async def entries_since(self, since: float, limit: int) -> Sequence[StoredEntry]:
        """Return the entries of all sessions written at a time or later, the oldest first.

        Entries that were acknowledged or decided about since are among them. One indexed query.
        """
        clock = StoreClock()
        found = await self.container.find(queries.since_query(since, limit), clock)
        return [dated_entry(document, clock) for document in found]

    async def entries_naming(
        self, ids: Collection[str], session: str | None = None, *, limit: int
    ) -> Sequence[Entry]:
        """Return entries that name messages of these ids, those written last first; one query.

        Where there are more than `limit`, any may be missing. Of all sessions they come without
        states and outputs. A producer's ids are its own, so that several sessions may have one.
        """
        found = await self.container.find(queries.naming_query(ids, session, limit))
        found.sort(key=lambda one: (written_at(one), one["id"]), reverse=True)
        return [decode_entry(document) for document in found]

    async def time(self) -> float:
        """Return the time on the store's clock: a query that finds nothing."""
        clock = StoreClock()
        await self.container.find(queries.head_query(queries.NOBODY, may_be_old=True), clock)
        return clock.seconds

    async def recent_entries(self, now: float, seconds: float, limit: int) -> Sequence[RecentEntry]:
        """Return the entries of all sessions of the last seconds before a time, newest first.

        One indexed query.
        """
        found = await self.container.find(queries.recent_query(now - seconds, limit))
        return [decode_recent(document, now) for document in found]

    async def waiting_seconds(
        self, now: float, region: str, older_than_seconds: float, limit: int
    ) -> Sequence[float]:
        """Return how long outboxes have waited for a region, the oldest first; at least so long.

        One indexed query.
        """
        query = queries.waiting_query(region, now - older_than_seconds, limit)
        found = await self.container.find(query)
        return [max(0.0, now - written_at(document)) for document in found]

    # The reports of rejected deliveries, and what is recorded of those that a person ends.

    async def keep_report(self, report: Message) -> None:
        """List a report until somebody has ended it, unless it was listed before: one create."""
        document = encode_report(report)
        await self.container.write(report.session, [CreateDocument(document, WriteResult.TAKEN)])

    async def report(self, session: str, report: str) -> BrowsedMessage | None:
        """Return a report by its session and its id, while it is kept: one read."""
        document = await self.container.read(session, report_id(report))
        return decode_report(document) if document else None

    async def open_reports(
        self, after: tuple[float, str, str] | None, limit: int, session: str | None = None
    ) -> Sequence[BrowsedMessage]:
        """Return reports that nobody has ended, the oldest first: of one session, or of all.

        `after` is the place where a page ended: a time, a session and a report. Fewer than `limit`
        are the last ones. One indexed query.
        """

        def place(document: Document) -> tuple[float, str, str]:
            return written_at(document), session_in(document), str(document["report"])

        def page(documents: Sequence[Document]) -> list[Document]:
            left = (one for one in documents if after is None or place(one) > after)
            return sorted(left, key=place)[:limit]

        def is_enough(found: Sequence[Document], document: Document) -> bool:
            # All of a second is read: within it the store has no order of its own.
            is_later = bool(found) and written_at(document) > written_at(found[-1])
            return is_later and len(found) >= limit and len(page(found)) == limit

        since = after[0] if after else 0.0
        query = queries.open_reports_query(since, session, queries.SIGNS_MAX, is_enough)
        return [decode_report(one) for one in page(await self.container.find(query))]

    async def open_report_times(self, limit: int) -> Sequence[float]:
        """Return when the oldest open reports of all sessions came: one indexed query."""
        found = await self.container.find(queries.open_reports_query(0.0, None, limit))
        return [written_at(document) for document in found]

    async def close_report(self, session: str, report: str) -> None:
        """List a report no more: one patch, which is harmless where it is done or not listed."""
        fields = {f"/{queries.OPEN_REPORT}": False, f"/{TTL_FIELD}": ENDED_REPORT_SECONDS}
        patch = PatchDocument(report_id(report), fields, WriteResult.TAKEN)
        await self.container.write(session, [patch])

    async def repetition(self, session: str, report: str) -> Repetition | None:
        """Return what is recorded of a report, by its session and its id, or None: one read."""
        document = await self.container.read(session, repetition_id(report))
        return decode_repetition(document) if document else None

    async def begin_repetition(
        self, session: str, report: str, repetition: Repetition
    ) -> Repetition:
        """Record a repetition, unless one is recorded already, and return what is recorded."""
        await self.record_repetition(session, report, repetition)
        return await self.repetition(session, report) or repetition

    async def record_repetition(self, session: str, report: str, repetition: Repetition) -> None:
        """Record a repetition, unless one is recorded already: one create."""
        document = encode_repetition(session, report, repetition)
        await self.container.write(session, [CreateDocument(document, WriteResult.TAKEN)])

    async def end_repetition(
        self, session: str, report: str, instead: Repetition | None = None
    ) -> None:
        """Record that a report was sent, or another decision in its place: one patch.

        Doing so twice is harmless.
        """
        fields = {f"/{name}": value for name, value in asdict(instead).items()} if instead else {}
        done = PatchDocument(repetition_id(report), fields | {"/is_done": True}, WriteResult.TAKEN)
        await self.container.write(session, [done])


async def delete_all(container: Container, session: str, documents: Sequence[Document]) -> bool:
    """Delete documents that are as they were read, in batches; false where one is not."""
    for start in range(0, len(documents), BATCH_OPERATIONS_MAX):
        part = documents[start : start + BATCH_OPERATIONS_MAX]
        operations = [DeleteDocument(d["id"], WriteResult.TAKEN, version_of(d)) for d in part]
        result, _ = await container.write(session, operations)
        if result is not WriteResult.CREATED:
            return False
    return True


async def revise(
    container: Container, pending: PendingOutbox, change: Callable[[Document], list[Operation]]
) -> None:
    """Change a stored outbox, as often as it takes to be first."""
    session, document_id = pending.session, outbox_id(pending)
    while (document := await container.read(session, document_id)) is not None:
        result, _ = await container.write(session, change(document))
        if result is not WriteResult.TAKEN:
            return


def dated_entry(document: Document, clock: StoreClock) -> StoredEntry:
    """Return an entry as it was read, dated by the store."""
    is_marked = queries.shows_need(document, SessionNeed.COMPACTION)
    times = written_at(document), clock.seconds
    return StoredEntry(decode_entry(document), version_of(document), *times, is_marked)


def acknowledge_unchanged(pending: PendingOutbox, done: Delivered, *, is_over: bool) -> Operation:
    """Strike off regions in an outbox that is as it was read, or delete it where nobody needs it.

    What `is_over` for some of its regions may be pending in others.
    """
    document_id, version = outbox_id(pending), pending.version
    left = [region for region in pending.regions if region not in done.regions]
    if is_over and pending.position is None and not left:
        return DeleteDocument(document_id, WriteResult.TAKEN, version)
    return patch_pending(document_id, left, WriteResult.TAKEN, version)


def acknowledge_operations(document: Document, done: Delivered) -> list[Operation]:
    """The batch that says what a delivery came to, and deletes what nobody needs then."""
    outbox = decode_outbox(document).after(done)
    version = version_of(document)
    is_over = not outbox.regions and not outbox.blocked
    if document["kind"] == "pending" and is_over and not outbox.refused:
        # A producer's pending copies are of no use without them.
        return [DeleteDocument(document["id"], WriteResult.TAKEN, version)]
    operations: list[Operation] = [
        ReplaceDocument(with_outbox(document, outbox), version, WriteResult.TAKEN)
    ]
    if isinstance(outbox.location, Staged) and is_over:
        for part in staged_ids(outbox.location):
            if outbox.refused:
                # People may still want to see an output that was refused.
                kept = {"/ttl": REFUSED_SECONDS}
                operations.append(PatchDocument(part, kept, WriteResult.ORPHANED))
            else:
                operations.append(DeleteDocument(part, WriteResult.ORPHANED))
    return operations
