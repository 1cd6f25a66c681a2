"""Where an entry's outputs are kept: in the entry, staged beside it, or in its handler."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shared.domain import running
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.handling import Handlers, Kind
from shared.domain.journal import Attempt, Entry
from shared.domain.message import Message, stored_bytes
from shared.domain.outbox import NOTHING_OWED, Outbox, Owing, Parcel, Rerun, Staged
from shared.domain.running import Before, Result
from shared.domain.stored_messages import parcels_digest
from shared.ports import Journal
from shared.usecases.commit import Committer

# Above this an entry's outputs are staged: an entry and its state must fit into one batch of 2 MB.
INLINE_BYTES_MAX = 400_000
# What one staged document holds at most, unless a single message is larger.
STAGE_BYTES_MAX = 800_000


@dataclass(frozen=True, slots=True)
class Outputs:
    """Keeps outputs before their entry is committed, and finds them again to send them."""

    committer: Committer
    handlers: Handlers
    regions: tuple[str, ...]
    output_queue: str

    async def keep(self, message: Message, attempt: Attempt, result: Result) -> Outbox:
        """The outbox for an entry, with its messages where they are to be kept.

        What is staged is the attempt's own: another attempt at the same entry neither sees nor
        removes it. Raises TooLarge, Unavailable or OutcomeUnknown.
        """
        outbox = self.inline(result)
        if outbox.is_empty:
            return NOTHING_OWED
        if self.handlers.kind_of(message.type) is Kind.DETERMINISTIC:
            return outbox.at(Rerun(parcels_digest(result.parcels)))
        if bytes_of(outbox.messages) <= INLINE_BYTES_MAX:
            return outbox
        stages = list(staged_parcels(outbox.parcels))
        await self.store.stage(message.session, attempt.id, stages)
        return outbox.at(Staged(attempt.id, len(stages)))

    def inline(self, result: Result) -> Outbox:
        """An outbox that holds a result's messages itself."""
        return Outbox(running.addressed(result.parcels, self.output_queue), self.regions)

    async def load(self, owing: Owing) -> Owing | None:
        """The debt with its messages; None where somebody else has paid it meanwhile.

        Raises OutcomeUnknown or Unavailable where the messages cannot be had.
        """
        match owing.outbox.elsewhere:
            case None:
                return owing
            case Staged() as staged:
                parcels = await self.store.staged(owing.session, staged)
                if len(parcels) != staged.documents:
                    await self.require_paid(owing)
                    return None
            case Rerun(digest):
                parcels = await self.rerun(owing.session, int(owing.document_id), digest)
        return replace(owing, outbox=replace(owing.outbox, parcels=tuple(parcels), elsewhere=None))

    async def require_paid(self, owing: Owing) -> None:
        """Staged outputs go when they are paid; raises OutcomeUnknown where these are not."""
        entry = await self.store.entry(owing.session, int(owing.document_id))
        if entry is not None and entry.outbox.owing:
            raise OutcomeUnknown(f"staged outputs of session {owing.session!r} are gone")

    async def rerun(self, session: str, position: int, digest: str) -> tuple[Parcel, ...]:
        """Outputs made again: the same handler on the state before, so the same bytes.

        Raises Unavailable where the handler fails now or gives others: some region may have the
        first ones, so the debt stays until the handler gives them again.
        """
        entry = await self.store.entry(session, position)
        if entry is None or entry.message is None:
            raise OutcomeUnknown(f"entry {position} of session {session!r} is gone")
        before = await self.before(entry)
        what = f"the outputs of entry {position} of session {session!r}"
        try:
            result = running.run(self.handlers.of(entry.message.type), before, entry.message)
        except Exception as error:
            raise Unavailable(f"{what} cannot be made again: {error}") from error
        if parcels_digest(result.parcels) != digest:
            changed = f"the handler of {entry.message.type!r} was changed or is not deterministic"
            raise Unavailable(f"{what} come out otherwise than at first: {changed}")
        return running.addressed(result.parcels, self.output_queue)

    async def before(self, entry: Entry) -> Before:
        """What the handler of an entry started from."""
        if entry.position == 0:
            return Before(captured=entry.captured)
        head = await self.store.entry(entry.session, entry.position - 1)
        if head is None:
            raise OutcomeUnknown(f"the entry before {entry.position} was compacted")
        state = await self.committer.state_of(head)
        return Before(state, head.produced, entry.captured)

    @property
    def store(self) -> Journal:
        """The journal."""
        return self.committer.store


def bytes_of(messages: Sequence[Message]) -> int:
    """About how much room messages take in a document."""
    return sum(stored_bytes(message.body) + 400 for message in messages)


def staged_parcels(parcels: Sequence[Parcel]) -> Iterator[Parcel]:
    """The same messages in the same order, in parcels that each fit into a document."""
    for parcel in parcels:
        kept: list[Message] = []
        size = 0
        for message in parcel.messages:
            added = bytes_of([message])
            if kept and size + added > STAGE_BYTES_MAX:
                yield Parcel(parcel.queue, tuple(kept))
                kept, size = [], 0
            kept.append(message)
            size += added
        yield Parcel(parcel.queue, tuple(kept))
