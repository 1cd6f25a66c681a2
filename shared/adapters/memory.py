"""The in-memory twin of the journal, with the same promises and the same failures.

For unit tests, the simulation and a team's own handler tests. Time is virtual: it passes only when
somebody sleeps.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

from shared.adapters.injected_faults import FaultPlan
from shared.adapters.memory_store import MemoryStore, VirtualClock
from shared.domain.batch import (
    NOTHING_CARRIED,
    Appended,
    Carried,
    Create,
    Operation,
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
from shared.domain.journal import Entry, Mark, Status
from shared.domain.message import Message, Number
from shared.domain.outbox import NOTHING_OWED, Outbox, Owing, Parcel, Staged
from shared.domain.producer import Ledger
from shared.domain.stored_messages import message_from
from shared.ports import OWING_MAX, Covers, Held, Sought, StoredLedger


class MemoryJournal:
    """A Journal whose documents live in a dictionary, in stored form."""

    def __init__(self, clock: VirtualClock, fault_plan: FaultPlan | None = None) -> None:
        self.clock = clock
        self.fault_plan = fault_plan or FaultPlan()
        self.store = MemoryStore(clock)
        self.partitions = self.store.partitions

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:  # noqa: ARG002
        """See Journal.head: always the newest."""
        return self.fault_plan.perform("head", lambda: self.newest(session))

    async def entry(self, session: str, position: int) -> Entry | None:
        """See Journal.entry."""
        return self.fault_plan.perform("entry", lambda: self.entry_at(session, position))

    async def held(self, session: str, position: int) -> Held | None:
        """See Journal.held."""
        return self.fault_plan.perform("held", lambda: self.held_at(session, position))

    async def covers(self, session: str, position: int, limit: int) -> Mapping[int, Covers]:
        """See Journal.covers."""
        page = self.fault_plan.perform("covers", lambda: self.page(session, position, limit))
        return {e.position: e.covers for e in page if e.status is not Status.WORKING}

    async def marked(self, session: str, message_id: str) -> Mark | None:
        """See Journal.marked."""
        found = self.fault_plan.perform(
            "marked", lambda: self.store.read(session, marker_id(message_id))
        )
        return mark_from(found) if found else None

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> Appended:
        """See Journal.append."""
        return self.write("append", entry.session, append_operations(entry, carried))

    async def replace(
        self,
        entry: Entry,
        version: str,
        carried: Carried = NOTHING_CARRIED,
        waiting: Waiting | None = None,
    ) -> Appended:
        """See Journal.replace."""
        operations = replace_operations(entry, version, carried, waiting)
        return self.write("replace", entry.session, operations)

    async def parked(self, session: str, number: Number) -> Message | None:
        """See Journal.parked."""
        found = self.fault_plan.perform(
            "parked", lambda: self.store.read(session, parked_id(number))
        )
        return message_from(found["message"]) if found else None

    async def sessions(
        self,
        sought: Sought,
        *,
        region: str = "",
        older_than_seconds: float = 0.0,
        but_for: Sequence[str] = (),
        limit: int,
    ) -> Sequence[str]:
        """See Journal.sessions."""
        before = self.clock.now() - older_than_seconds
        found = self.fault_plan.perform(
            f"sessions.{sought.value}",
            lambda: self.store.sought(sought, region, before, frozenset(but_for)),
        )
        return list(dict.fromkeys(document["session"] for document in found[:limit]))

    async def faults_of(self, session: str) -> Sequence[Entry]:
        """See Journal.faults_of."""
        return self.fault_plan.perform(
            "faults_of", lambda: [e for e in self.flagged_entries(session) if is_fault(e)]
        )

    async def owing_of(
        self, session: str, regions: Sequence[str], *, limit: int = OWING_MAX
    ) -> Sequence[Owing]:
        """See Journal.owing_of."""
        return self.fault_plan.perform("owing_of", lambda: self.unpaid(session, regions)[:limit])

    async def owe(self, session: str, outbox: Outbox) -> None:
        """See Journal.owe."""
        self.write("owe", session, [Create(owed_document(session, outbox), Appended.TAKEN)])

    async def acknowledge(
        self,
        session: str,
        document_id: str,
        delivered: Sequence[str],
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """See Journal.acknowledge."""
        self.fault_plan.perform(
            "acknowledge", lambda: self.strike(session, document_id, delivered, refused or {})
        )

    async def stage(self, session: str, attempt: str, parcels: Sequence[Parcel]) -> None:
        """See Journal.stage."""
        for document in staged_documents(session, attempt, parcels):
            self.write("stage", session, [Create(document, Appended.TAKEN)])

    async def staged(self, session: str, staged: Staged) -> Sequence[Parcel]:
        """See Journal.staged."""
        found = self.fault_plan.perform(
            "staged", lambda: [self.store.read(session, part) for part in parts(staged)]
        )
        return [parcel for document in found if document for parcel in parcels_from(document)]

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        """See Journal.ledger."""
        found = self.fault_plan.perform(
            "ledger", lambda: self.store.read(session, ledger_id(group))
        )
        return StoredLedger(ledger_from(found), found["_etag"]) if found else None

    async def save_ledger(
        self, session: str, ledger: Ledger, version: str | None, owed: Outbox = NOTHING_OWED
    ) -> str | None:
        """See Journal.save_ledger."""
        operations = ledger_operations(session, ledger, version, owed)
        if self.write("save_ledger", session, operations) is not Appended.CREATED:
            return None
        stored: str = self.partitions[session][ledger_id(ledger.group)]["_etag"]
        return stored

    async def compactable(self, session: str, limit: int) -> Sequence[Entry]:
        """See Journal.compactable."""
        return self.fault_plan.perform("compactable", lambda: self.oldest(session, limit))

    async def milestone(self, session: str, older_than_seconds: float) -> int | None:
        """See Journal.milestone."""
        before = self.clock.now() - older_than_seconds
        return self.fault_plan.perform("milestone", lambda: self.marked_before(session, before))

    async def compact(self, session: str, positions: Sequence[int], passed: int | None) -> None:
        """See Journal.compact."""
        self.write("compact", session, compact_operations(positions, passed))

    def write(self, name: str, session: str, operations: Sequence[Operation]) -> Appended:
        """A transactional batch, unless it goes wrong as planned."""
        return self.fault_plan.perform(name, lambda: self.store.apply(session, operations))

    def page(self, session: str, position: int, limit: int) -> list[Entry]:
        """The entries from a position on; a limit of one is a point read."""
        if limit == 1:
            entry = self.entry_at(session, position)
            return [entry] if entry else []
        newest = self.newest(session)
        positions = range(position, newest.position + 1 if newest else position)
        found = (self.entry_at(session, at) for at in positions)
        return list(islice((entry for entry in found if entry), limit))

    def oldest(self, session: str, limit: int) -> list[Entry]:
        """The first entries that are kept, in order."""
        ids = sorted(i for i, d in self.partitions[session].items() if d["kind"] == "entry")
        return [entry_from(self.partitions[session][i]) for i in ids[:limit]]

    def flagged_entries(self, session: str) -> list[Entry]:
        """The entries that something is to be said of, in order."""
        found = [entry_from(d) for d in self.store.flagged(session) if d["kind"] == "entry"]
        return sorted(found, key=lambda entry: entry.position)

    def newest(self, session: str) -> Entry | None:
        """The entry with the highest position."""
        document = self.store.newest(session)
        return entry_from(document) if document else None

    def entry_at(self, session: str, position: int) -> Entry | None:
        """A stored entry read back."""
        document = self.store.read(session, position_id(position))
        return entry_from(document) if document else None

    def held_at(self, session: str, position: int) -> Held | None:
        """A stored entry with its version and its times."""
        document = self.store.read(session, position_id(position))
        if document is None:
            return None
        return Held(entry_from(document), document["_etag"], document["_ts"], self.clock.now())

    def unpaid(self, session: str, regions: Sequence[str]) -> list[Owing]:
        """The outboxes that owe one of the regions."""
        found = sorted(self.store.flagged(session), key=lambda document: str(document["id"]))
        owings = [owing for document in found if (owing := owing_from(document))]
        return [owing for owing in owings if owing.outbox.only(regions).owing]

    def strike(
        self, session: str, document_id: str, delivered: Sequence[str], refused: Mapping[str, str]
    ) -> None:
        """Strike regions off; a producer's owed copies vanish when nothing is left."""
        document = self.store.read(session, document_id)
        if document is not None:
            operations = acknowledge_operations(document, delivered, refused)
            self.store.apply(session, operations)

    def marked_before(self, session: str, before: float) -> int | None:
        """The newest milestone stored at or before a time."""
        flagged = self.store.flagged(session)
        marked = [d for d in flagged if d.get("milestone") and d["_ts"] <= before]
        return max((int(d["id"]) for d in marked), default=None)


def is_fault(entry: Entry) -> bool:
    """Whether people should see the entry."""
    return entry.status is Status.FAULTED or bool(entry.outbox.refused)
