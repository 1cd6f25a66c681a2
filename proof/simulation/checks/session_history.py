"""A session's history made again from its entries: every state and every output, byte for byte."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from proof.simulation.world.host import QUEUES
from proof.simulation.world.recorder import Identity, RecordingStore, Violation
from shared.domain.change import apply_change
from shared.domain.handler import HandlerInput, HandlerResult, Handlers, Kind
from shared.domain.journal import ARRIVALS, Entry, Json, MessageIdentity, StateChange, Status
from shared.domain.message import Message
from shared.domain.next_entry import state_position
from shared.domain.outbox import DestinationBatch, Rerun, Staged
from shared.domain.reports import report_fault
from shared.engine.handle import handle
from shared.storage.documents import decode_staged, staged_ids
from shared.storage.entries import decode_entry

type QueuedOutput = tuple[str, Message]


@dataclass
class SessionHistory:
    """The content of a session's entries, from the first to the last.

    `copies_by_identity` are all messages that ever came. The copies of one may differ in their
    times. `corrections` are the bodies that the operator gave to some of them. The results of
    handlers that call an external system are believed; all other handlers are run again.
    """

    store: RecordingStore
    session: str
    handlers: Handlers
    copies_by_identity: Mapping[Identity, Sequence[Message]]
    corrections: Mapping[tuple[str, str], bytes]
    before: HandlerInput = field(default_factory=HandlerInput)
    state_at: int | None = None
    whole: Json = field(default_factory=dict)
    change: StateChange | None = None
    outputs: list[QueuedOutput] = field(default_factory=list)
    ends: list[tuple[MessageIdentity, Entry]] = field(default_factory=list)

    def check(self) -> Iterator[Violation]:
        """Go through all entries. One that does not follow from the entry before is a violation."""
        for position, document in sorted(self.store.entries[self.session].items()):
            entry = decode_entry(document)
            if entry.status is Status.COMPLETED and entry.state_at is not None:
                # An earlier entry holds a large state, and this one at most what changed of it.
                if entry.state_at != self.state_at:
                    yield Violation("P5", f"{self.session}/{position}: its state is elsewhere")
                operations = entry.change.operations if entry.change else ()
                state = apply_change(self.whole, operations)
                entry = replace(entry, state=state, model=self.before.model)
            self.ends += [(identity, entry) for identity in entry.identities]
            where = f"{self.session}/{position}"
            match entry.status:
                case Status.COMPLETED:
                    yield from self.check_completed(where, entry)
                case Status.WORKING:
                    yield Violation("P6", f"{where}: is claimed for ever")
                case _:
                    yield from self.check_unchanged(where, entry)

    def check_unchanged(self, where: str, entry: Entry) -> Iterator[Violation]:
        """Check an entry that leaves the state alone; a fault has a report among its outputs."""
        same = (None, self.state_at, self.change)
        if (entry.state, entry.state_at, entry.change) != same:
            yield Violation("P5", f"{where}: {entry.status} and yet another state")
        sent = self.stored_outputs(entry)
        self.outputs += sent
        if entry.status is Status.FAULTED and entry.message is not None:
            report = report_fault(entry.message, entry.reason or "", entry.raised_at)
            if [message for _, message in sent] != [report]:
                yield Violation("P9", f"{where}: its fault is not reported as it was")

    def check_completed(self, where: str, entry: Entry) -> Iterator[Violation]:
        stored = self.stored_outputs(entry)
        kinds = {self.handlers.kind_of(identity.type) for identity in entry.identities}
        if kinds <= {Kind.PURE, Kind.DETERMINISTIC}:
            again: list[QueuedOutput] = []
            for identity in entry.identities:
                message = self.message(entry, identity)
                if message is None:
                    yield Violation("P5", f"{where}: covers {identity.id}, which nobody sent")
                    return
                again += self.run(entry, message)
            if self.before.state != entry.state:
                yield Violation("P5", f"{where}: {entry.state}, not {self.before.state}")
            if not isinstance(entry.outbox.location, Rerun) and stored != again:
                yield Violation("P4", f"{where}: kept {stored}, made {again}")
            stored = again
        self.before = HandlerInput(entry.state or {}, entry.produced, model=entry.model)
        self.state_at, self.change = state_position(entry), entry.change
        if self.state_at == entry.position:
            self.whole = entry.state or {}
        self.outputs += stored

    def run(self, entry: Entry, message: Message) -> list[QueuedOutput]:
        """Run the handler on the state before; its state is kept for the next one."""
        before = replace(self.before, captured=entry.captured)
        result: HandlerResult = handle.run_pure(
            self.handlers.of(message.type), before, message, self.handlers.by_type
        )
        self.before = HandlerInput(result.state, result.produced, model=result.model)
        return flatten(result.batches)

    def message(self, entry: Entry, identity: MessageIdentity) -> Message | None:
        """Return the message as it was processed."""
        came = self.copies_by_identity.get((self.session, identity.id, identity.digest), ())
        # What was asked has no number; published under the same key it has one.
        has_number = identity.number.group != ARRIVALS
        copies = [one for one in came if (one.number is not None) is has_number] or came
        # The one that was processed left its time in what came of it.
        times = {(entry.state or {}).get("at"), *(m.time for _, m in self.stored_outputs(entry))}
        sent = next((copy for copy in copies if copy.time in times), copies[0] if copies else None)
        if sent is None or entry.resolution is None or entry.resolution.action != "edit":
            return sent
        body = self.corrections[self.session, identity.id]
        return Message(
            sent.id, sent.session, sent.type, body, sent.number, sent.time, sent.reply_to
        )

    def stored_outputs(self, entry: Entry) -> list[QueuedOutput]:
        if not isinstance(entry.outbox.location, Staged):
            return flatten(entry.outbox.batches)
        parts = staged_ids(entry.outbox.location)
        documents = [self.store.staged[self.session, part] for part in parts]
        return flatten(batch for document in documents for batch in decode_staged(document))


def flatten(batches: Iterable[DestinationBatch]) -> list[QueuedOutput]:
    return [
        (QUEUES.resolve(batch.queue), message) for batch in batches for message in batch.messages
    ]
