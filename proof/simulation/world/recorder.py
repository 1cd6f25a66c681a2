"""A journal that records everything that was ever written to it, and what must never be written.

What compaction removes stays here, so a session's whole history can be checked at the end.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from shared.domain.change import apply_change
from shared.domain.errors import LockstepError
from shared.domain.journal import Json
from shared.domain.message import Message
from shared.domain.next_entry import state_position
from shared.engine.consume.consume import Consumer
from shared.engine.consume.outcomes import Reply
from shared.ports import DeleteDocument, Document, Operation, WriteResult
from shared.storage.documents import is_entry, sequence_of
from shared.storage.entries import GENESIS_ID, lacks_state, with_state
from shared.testkit.memory import MemoryJournal
from shared.testkit.memory_store import MemoryStore, VirtualClock

# A message's session, id and digest.
type Identity = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class AbandonedDelivery:
    """A delivery that a host gave back to its queue, and why."""

    host: str
    region: str
    at: float
    message: Message
    why: LockstepError

    def __str__(self) -> str:
        return f"{self.at:.3f} s {self.host}: {self.why!r}"


@dataclass
class Observations:
    """The acts of hosts beside journals and queues. `rejected` are reports, by what was rejected.

    `failures` are activities that have to be tried again, `surprises` errors nobody foresaw.
    """

    abandoned: list[AbandonedDelivery] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    rejected: dict[Identity, str] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)


# What may still change of an entry that has ended.
MUTABLE = frozenset(
    {"outbox", "pending", "blocked", "faulted", "closed", "milestone", "quiet", "_etag", "_ts"}
)


@dataclass(frozen=True, slots=True)
class Violation:
    promise: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"


class LoopClock(VirtualClock):
    """The store's own clock: the loop's, which no process sees."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()


class RecordingStore(MemoryStore):
    """The in-memory store, which also keeps what was removed and checks what is written."""

    def __init__(self) -> None:
        super().__init__(LoopClock())
        # By session and position: an entry as it ended, or its claim while it has not.
        self.entries: dict[str, dict[int, Document]] = defaultdict(dict)
        self.staged: dict[tuple[str, str], Document] = {}
        self.changes: list[tuple[str, str]] = []
        self.taken_over: list[str] = []
        self.violations: list[Violation] = []
        self.is_removal = False

    def put(self, session: str, stored: Document) -> None:
        document_id = stored["id"]
        known = self.partitions[session].get(document_id)
        super().put(session, stored)
        self.changes.append((session, document_id))
        if stored["kind"] == "entry":
            self.check_entry(session, int(document_id), stored)
        elif stored["kind"] == "state":
            # An entry's own state belongs to what it says.
            position = sequence_of(document_id)
            self.entries[session][position] |= with_state({}, stored) or {}
        elif stored["kind"] == "cursor":
            self.check_growth(f"{session}: evicted {document_id}", known or stored, stored)
        elif stored["kind"] == "staged" and "batches" in stored:
            self.staged[session, document_id] = stored

    def perform(self, session: str, operation: Operation, text: str) -> None:
        if isinstance(operation, DeleteDocument):
            head = self.newest(session)
            if head is not None and head["id"] == operation.document_id and not self.is_removal:
                self.record_violation("P2", f"{session}: the head {head['id']} was removed")
        super().perform(session, operation, text)

    def apply(self, session: str, operations: Sequence[Operation]) -> WriteResult:
        gone = {o.document_id for o in operations if isinstance(o, DeleteDocument)}
        head, self.is_removal = self.newest(session), GENESIS_ID in gone
        result = super().apply(session, operations)
        is_gone = self.is_removal and result is WriteResult.CREATED
        if is_gone and not (head and head.get("ended") and head["id"] in gone):
            self.record_violation("P1", f"{session}: was removed, and had not ended")
        if any(isinstance(operation, DeleteDocument) for operation in operations):
            self.check_no_hole(session)
        return result

    def check_no_hole(self, session: str) -> None:
        """Check that no entry is left below a removed one, on which a sleeper could build."""
        kept = sorted(int(d["id"]) for d in self.partitions[session].values() if is_entry(d))
        if kept and kept[-1] - kept[0] >= len(kept):
            self.record_violation("P3", f"{session}: of the entries only {kept} are left")

    def check_entry(self, session: str, position: int, stored: Document) -> None:
        known = self.entries[session].get(position)
        # What is kept here is no part of the store: the state beside the entry is added to it.
        stored = dict(stored)
        where = f"{session}/{position}"
        if known is None:
            self.check_new_entry(session, position, stored)
        elif known["status"] != "working":
            self.check_ended_entry(where, known, stored)
            return
        elif known["attempt"] != stored["attempt"]:
            self.taken_over.append(where)
            age = self.clock.now() - known["_ts"]
            if age <= known["lease"]["seconds"] and not is_next_worker(known, stored):
                self.record_violation("P2", f"{where}: a claim was taken over after {age:.1f} s")
        elif any(known.get(name) != stored.get(name) for name in ("parked", "milestone")):
            # Others parked beside the claim, or compaction looked at it: it was not renewed.
            stored = stored | {"_ts": known["_ts"]}
        self.entries[session][position] = stored

    def check_new_entry(self, session: str, position: int, stored: Document) -> None:
        """Check that an entry follows an ended one, and that only an eviction shrinks cursors."""
        before = self.entries[session].get(position - 1)
        if position and before is None:
            self.record_violation("P3", f"{session}/{position}: follows nothing")
            return
        if before is None:
            return
        if before["status"] == "working":
            self.record_violation("P3", f"{session}/{position}: follows a claim")
        evicted = stored.get("evicted", False)
        if evicted < before.get("evicted", False):
            self.record_violation("P2", f"{session}/{position}: nothing is said to be evicted")
        for group, cursor in before["cursors"].items():
            if group in stored["cursors"] or not evicted:
                after = stored["cursors"].get(group, {"next": -1, "level": -1})
                self.check_growth(f"{session}/{position}: cursor {group}", cursor, after)

    def check_growth(self, what: str, before: Document, after: Document) -> None:
        if after["next"] < before["next"] or after["level"] < before["level"]:
            self.record_violation("P3", f"{what} went {before} to {after}")

    def check_ended_entry(self, where: str, known: Document, stored: Document) -> None:
        changed = [
            name
            for name in known.keys() | stored.keys()
            if name not in MUTABLE and known.get(name) != stored.get(name)
            if name != "state" or not lacks_state(stored)
        ]
        if changed:
            self.record_violation("P2", f"{where}: {sorted(changed)} changed after the end")

    def record_violation(self, promise: str, text: str) -> None:
        self.violations.append(Violation(promise, text))


def record_asked(consumer: Consumer, asked: dict[Identity, list[Message]]) -> None:
    """Record what a worker is asked beside what every other worker is."""
    ask = consumer.ask

    async def record(message: Message, seconds: float = 0.0) -> Reply:
        copies = asked[message.session, message.id, message.digest]
        if message not in copies:
            copies.append(message)
        return await ask(message, seconds)

    vars(consumer)["ask"] = record


class RecordingJournal(MemoryJournal):
    """The in-memory journal over a recording store. During `fail_over` nothing is written.

    Where the write region falls `silent`, a write has no answer, and this source says of each
    whether it was applied all the same.
    """

    store: RecordingStore

    def __init__(self) -> None:
        super().__init__(LoopClock(), store=RecordingStore())
        self.fail_over: tuple[float, float] | None = None
        self.silent: Random | None = None


def state_of(journal: MemoryJournal, session: str) -> Json:
    """Return a session's last state; empty while it has none."""
    head = journal.newest(session)
    position = state_position(head)
    holder = journal.entry_at(session, position) if position is not None else None
    if head is None or holder is None:
        return {}
    return apply_change(holder.state or {}, head.change.operations if head.change else ())


def last_state(journal: RecordingJournal, session: str) -> Json:
    """Return a session's last state, also where the session is removed."""
    entries = journal.store.entries[session]
    if journal.newest(session) is not None or not entries:
        return state_of(journal, session)
    newest = entries[max(entries)]
    found = newest if "state" in newest else entries.get(newest.get("state_at", -1), {})
    return apply_change(found.get("state", {}), newest.get("change", {}).get("operations", ()))


def is_next_worker(before: Document, after: Document) -> bool:
    """Say whether an entry's owner is the worker that its host started when the other was dead."""
    (host, _, number), (next_host, _, next_number) = (
        entry["owner"]["instance"].rpartition("/") for entry in (before, after)
    )
    return bool(host) and host == next_host and int(number) < int(next_number)
