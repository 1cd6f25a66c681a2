"""A session's history made again from its entries: every state and every output, byte for byte."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shared.domain import running
from shared.domain.documents import entry_from, parcels_from, staged_id
from shared.domain.handling import Handlers, Kind
from shared.domain.journal import Covered, Entry, Status
from shared.domain.message import Message
from shared.domain.outbox import Outbox, Parcel, Rerun, Staged
from shared.domain.reports import fault_report
from shared.domain.running import Before, Result, addressed
from simulation.recorder import Identity, RecordingStore, Violation

type QueuedOutput = tuple[str, Message]


@dataclass
class SessionHistory:
    """What a session's entries say, from the first to the last.

    `copies_by_identity` are all messages that ever came. The copies of one may differ in their
    times. `corrections` are the bodies that the operator gave to some of them. The results of
    handlers that call an external system are believed; all other handlers are run again.
    """

    store: RecordingStore
    session: str
    handlers: Handlers
    output_queue: str
    copies_by_identity: Mapping[Identity, Sequence[Message]]
    corrections: Mapping[tuple[str, str], bytes]
    before: Before = field(default_factory=Before)
    state_at: int | None = None
    outputs: list[QueuedOutput] = field(default_factory=list)
    ends: list[tuple[Covered, Entry]] = field(default_factory=list)

    def check(self) -> Iterator[Violation]:
        """Go through all entries. One that does not follow from the entry before is a violation."""
        for position, document in sorted(self.store.entries[self.session].items()):
            entry = entry_from(document)
            self.ends += [(covered, entry) for covered in entry.covers]
            where = f"{self.session}/{position}"
            match entry.status:
                case Status.COMPLETED:
                    yield from self.check_completed(where, entry)
                case Status.WORKING:
                    yield Violation("P6", f"{where}: is claimed for ever")
                case _:
                    yield from self.check_unchanged(where, entry)

    def check_unchanged(self, where: str, entry: Entry) -> Iterator[Violation]:
        """An entry that leaves the state alone; a fault has a report among its outputs."""
        if entry.state is not None or entry.state_at != self.state_at:
            yield Violation("P5", f"{where}: {entry.status} and yet another state")
        sent = self.stored_outputs(entry)
        self.outputs += sent
        if entry.status is Status.FAULTED and entry.message is not None:
            report = fault_report(entry.message, entry.reason or "")
            if [message for _, message in sent] != [report]:
                yield Violation("P9", f"{where}: its fault is not reported as it was")

    def check_completed(self, where: str, entry: Entry) -> Iterator[Violation]:
        """An entry whose handler ran: run it again, where that is possible."""
        stored = self.stored_outputs(entry)
        kinds = {self.handlers.kind_of(covered.type) for covered in entry.covers}
        if kinds <= {Kind.PURE, Kind.DETERMINISTIC}:
            again: list[QueuedOutput] = []
            for covered in entry.covers:
                message = self.message(entry, covered)
                if message is None:
                    yield Violation("P5", f"{where}: covers {covered.id}, which nobody sent")
                    return
                again += self.run(entry, message)
            if self.before.state != entry.state:
                yield Violation("P5", f"{where}: {entry.state}, not {self.before.state}")
            if not isinstance(entry.outbox.elsewhere, Rerun) and stored != again:
                yield Violation("P4", f"{where}: kept {stored}, made {again}")
            stored = again
        self.before = Before(entry.state or {}, entry.produced)
        self.state_at = entry.position
        self.outputs += stored

    def run(self, entry: Entry, message: Message) -> list[QueuedOutput]:
        """Run the handler on the state before; its state is kept for the next one."""
        before = Before(self.before.state, self.before.produced, entry.captured)
        result: Result = running.run(self.handlers.of(message.type), before, message)
        self.before = Before(result.state, result.produced)
        return flat(addressed(result.parcels, self.output_queue))

    def message(self, entry: Entry, covered: Covered) -> Message | None:
        """The message as it was processed."""
        copies = self.copies_by_identity.get((self.session, covered.id, covered.digest), ())
        # The one that was processed left its time in what came of it.
        times = {(entry.state or {}).get("at"), *(m.time for _, m in self.stored_outputs(entry))}
        sent = next((copy for copy in copies if copy.time in times), copies[0] if copies else None)
        if sent is None or entry.resolution is None or entry.resolution.action != "edit":
            return sent
        body = self.corrections[self.session, covered.id]
        return Message(
            sent.id, sent.session, sent.type, body, sent.number, sent.time, sent.reply_to
        )

    def stored_outputs(self, entry: Entry) -> list[QueuedOutput]:
        """The outputs that an entry kept, in itself or beside it."""
        return flat(self.kept_parcels(entry.outbox))

    def kept_parcels(self, outbox: Outbox) -> tuple[Parcel, ...]:
        """The parcels of an outbox, staged ones included."""
        if not isinstance(outbox.elsewhere, Staged):
            return outbox.parcels
        staged = outbox.elsewhere
        names = [staged_id(staged.attempt, index) for index in range(staged.documents)]
        found = [self.store.staged[self.session, name] for name in names]
        return tuple(parcel for document in found for parcel in parcels_from(document))


def flat(parcels: tuple[Parcel, ...]) -> list[QueuedOutput]:
    """Messages with their queues, in the order of sending."""
    return [(parcel.queue, message) for parcel in parcels for message in parcel.messages]
