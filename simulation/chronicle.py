"""What the journals say about one saga: its record, and what became of each command, in order."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from shared.domain.journal import Entry, Status
from shared.domain.saga.plan import Direction, Step, key_of, session_of, step_id
from shared.domain.saga.record import SagaRecord
from shared.storage.documents import decode_entry
from simulation.witness import WitnessedJournal


@dataclass(frozen=True, slots=True)
class Noted:
    """An entry that covers a message of this type; `at` is its place among all that was written."""

    at: int
    type: str
    entry: Entry

    @property
    def acts(self) -> bool:
        """Whether the message took effect and its handler did not refuse it."""
        is_completed = self.entry.status is Status.COMPLETED
        return is_completed and (self.entry.answer or {}).get("refused") is None


type Notes = dict[tuple[str, str], list[Noted]]


def notes_of(journal: WitnessedJournal) -> Notes:
    """What was recorded of every message, by session and id, but that it was parked."""
    notes: Notes = defaultdict(list)
    for session, documents in journal.store.entries.items():
        for document in documents.values():
            entry, at = decode_entry(document), int(document["_etag"])
            if entry.status is not Status.PARKED:
                for covered in entry.identities:
                    notes[session, covered.id].append(Noted(at, covered.type, entry))
    return notes


@dataclass(frozen=True, slots=True)
class Chronicle:
    """One saga. `records` are all states of its own session, the last one is `record`."""

    key: str
    records: tuple[SagaRecord, ...]
    notes: Notes

    @property
    def record(self) -> SagaRecord:
        """How the saga stands at the end."""
        return self.records[-1]

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps of its plan."""
        return self.record.plan.steps if self.record.plan else ()

    def everything(self) -> Iterator[list[Noted]]:
        """What was recorded of each of its messages, in its own session and its steps."""
        own = session_of(self.key)
        yield from (noted for (session, _), noted in self.notes.items() if session == own)
        for step in self.steps:
            yield from filter(None, (self.of(step, direction) for direction in Direction))

    def of(self, step: Step, direction: Direction) -> list[Noted]:
        """What was recorded of a step's command, or of what took its place."""
        command = step.do if direction is Direction.DO else step.undo
        if command is None:
            return []
        return self.notes.get((command.session, step_id(self.key, step.name, direction)), [])

    def acts(self, step: Step, direction: Direction) -> list[int]:
        """When a step's command, or its compensation, took effect: once at most."""
        return [noted.at for noted in self.of(step, direction) if noted.acts]


def chronicles(journal: WitnessedJournal, notes: Notes) -> Iterator[Chronicle]:
    """Every saga that there is."""
    for session, documents in journal.store.entries.items():
        key = key_of(session)
        states = [found["state"] for _, found in sorted(documents.items()) if found.get("state")]
        if key is not None and states:
            yield Chronicle(key, tuple(map(SagaRecord.model_validate, states)), notes)
