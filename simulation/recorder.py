"""A journal that records everything that was ever written to it, and what must never be written.

What compaction removes stays here, so a session's whole history can be checked at the end.
"""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from shared.adapters.memory import MemoryJournal
from shared.adapters.memory_store import MemoryStore, VirtualClock
from shared.domain.batch import Delete, Operation
from shared.domain.journal import Json, state_position
from shared.domain.message import Message
from shared.domain.stored_messages import Document
from shared.ports import Journal
from shared.usecases.command import Commander, Reply
from shared.usecases.consume import Consumer

type Identity = tuple[str, str, str]


@dataclass
class Tally:
    """How often what happened. `rejected` is the report by session, id and digest.

    `failures` are the activities that have to be tried again.
    """

    abandoned: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    rejected: dict[Identity, str] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)


# What may still change of an entry that has ended.
MUTABLE = frozenset({"outbox", "owing", "faulted", "milestone", "_etag", "_ts"})


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and how it shows."""

    promise: str
    text: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.promise}: {self.text}"


class LoopClock(VirtualClock):
    """The store's own clock: the loop's, which no process sees."""

    def now(self) -> float:
        """Seconds since the beginning of the world."""
        return asyncio.get_running_loop().time()


class WitnessedStore(MemoryStore):
    """The twin's store with a memory."""

    def __init__(self) -> None:
        super().__init__(LoopClock())
        # By session and position: an entry as it ended, or its claim while it has not.
        self.entries: dict[str, dict[int, Document]] = defaultdict(dict)
        self.staged: dict[tuple[str, str], Document] = {}
        self.changes: list[tuple[str, str]] = []
        self.taken_over: list[str] = []
        self.violations: list[Violation] = []

    def put(self, session: str, stored: Document) -> None:
        """Store, and remember."""
        super().put(session, stored)
        document_id = stored["id"]
        self.changes.append((session, document_id))
        if stored["kind"] == "entry":
            self.witness_entry(session, int(document_id), stored)
        elif stored["kind"] == "staged" and "parcels" in stored:
            self.staged[session, document_id] = stored

    def perform(self, session: str, operation: Operation, text: str) -> None:
        """Do it, if it may be done."""
        if isinstance(operation, Delete) and operation.document_id == self.ends.get(session):
            self.broken("P2", f"{session}: the head {operation.document_id} was removed")
        super().perform(session, operation, text)

    def witness_entry(self, session: str, position: int, stored: Document) -> None:
        """Compare an entry with what was there before."""
        known = self.entries[session].get(position)
        where = f"{session}/{position}"
        if known is None:
            self.witness_new(session, position, stored)
        elif known["status"] != "working":
            self.witness_ended(where, known, stored)
            return
        elif known["attempt"] != stored["attempt"]:
            self.taken_over.append(where)
            age = self.clock.now() - known["_ts"]
            if age <= known["lease"]["seconds"]:
                self.broken("P2", f"{where}: a claim was taken over after {age:.1f} s")
        elif known.get("parked") != stored.get("parked"):
            # Others parked beside the claim; its owner did not renew it.
            stored = stored | {"_ts": known["_ts"]}
        self.entries[session][position] = stored

    def witness_new(self, session: str, position: int, stored: Document) -> None:
        """An entry follows an ended one, and cursors only grow."""
        before = self.entries[session].get(position - 1)
        if position and before is None:
            self.broken("P3", f"{session}/{position}: follows nothing")
            return
        if before is None:
            return
        if before["status"] == "working":
            self.broken("P3", f"{session}/{position}: follows a claim")
        for group, cursor in before["cursors"].items():
            after = stored["cursors"].get(group, {"next": -1, "level": -1})
            if after["next"] < cursor["next"] or after["level"] < cursor["level"]:
                self.broken("P3", f"{session}/{position}: cursor {group} went {cursor} to {after}")

    def witness_ended(self, where: str, known: Document, stored: Document) -> None:
        """What has ended stays as it is."""
        changed = [
            name
            for name in known.keys() | stored.keys()
            if name not in MUTABLE and known.get(name) != stored.get(name)
        ]
        if changed:
            self.broken("P2", f"{where}: {sorted(changed)} changed after the end")

    def broken(self, promise: str, text: str) -> None:
        """Remember a broken promise."""
        self.violations.append(Violation(promise, text))


class WitnessedCommander(Commander):
    """A worker's commander, and a list of every command that any worker ever applied."""

    def __init__(
        self, journal: Journal, consumer: Consumer, commands: dict[Identity, list[Message]]
    ) -> None:
        super().__init__(journal, consumer)
        self.commands = commands

    async def apply(self, command: Message) -> Reply:
        """Remember it, and apply it."""
        copies = self.commands[command.session, command.id, command.digest]
        if command not in copies:
            copies.append(command)
        return await super().apply(command)


class WitnessedJournal(MemoryJournal):
    """The twin over a store with a memory. In `fail_over` nothing is written."""

    store: WitnessedStore

    def __init__(self) -> None:
        super().__init__(LoopClock())
        self.store = WitnessedStore()
        self.partitions = self.store.partitions
        self.fail_over: tuple[float, float] | None = None

    def is_read_only(self, now: float) -> bool:
        """Whether the write region is being moved."""
        return self.fail_over is not None and self.fail_over[0] <= now < self.fail_over[1]


def state_of(journal: MemoryJournal, session: str) -> Json:
    """A session's last state; empty while it has none."""
    position = state_position(journal.newest(session))
    holder = journal.entry_at(session, position) if position is not None else None
    return (holder.state or {}) if holder else {}
