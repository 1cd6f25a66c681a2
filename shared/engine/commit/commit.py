"""Write an entry, and know whether it was written, whatever the store answered.

Of all creates at one position at most one succeeds, in any region. That one answer is claim,
commit, deduplication and fence at once; so it must not be guessed when it is lost.
"""

from shared.domain.decision import marker_seconds
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry, EvictedCursor
from shared.domain.message import Message
from shared.domain.next_entry import EntryInput, evict, evicted_cursors
from shared.domain.outbox import NO_OUTBOX, DestinationBatch
from shared.engine.dispatch.dispatch import Dispatcher
from shared.engine.worker import Worker
from shared.ports import Carried, WriteResult


class Committer:
    """Writes the entries of one worker, with what has to come before and after each of them."""

    def __init__(self, worker: Worker, dispatcher: Dispatcher) -> None:
        self.worker = worker
        self.dispatcher = dispatcher
        self.acknowledgements = dispatcher.acknowledgements
        self.marker_seconds = marker_seconds(worker.policy.window_seconds)

    async def prepare(self, head: Entry | None, message: Message) -> EntryInput:
        """Return the input of the next entry; the outboxes of earlier ones are delivered first.

        Raises Unavailable.
        """
        # Any new entry hides its predecessor's outbox from those who read only the head, so it has
        # to say which regions still lag, whatever kind of entry it is.
        lagging = await self.dispatcher.catch_up(head)
        return EntryInput(head, message, self.worker.new_attempt(), lagging)

    async def append(
        self, head: Entry | None, entry: Entry, batches: tuple[DestinationBatch, ...] = ()
    ) -> Entry | None:
        """Commit the entry and send its outputs; None when another worker was first.

        The entry is returned as it is stored. Raises what `commit` raises.
        """
        if await self.commit(head, entry) is not WriteResult.CREATED:
            return None
        # A crash here is harmless: the entry's outbox is pending. The redelivery of its message,
        # the session's next one, the change feed or the sweep sends the same bytes.
        return await self.dispatcher.send_outputs(entry, batches) if batches else entry

    async def commit(self, head: Entry | None, entry: Entry) -> WriteResult:
        """Create the entry after this head; anything but CREATED says why it could not be.

        The batch also records that every region took the head's outputs, where this worker knows.
        Raises OutcomeUnknown when the store does not answer in the end, Unavailable when it refuses
        the first try, NotStorable.
        """
        # Nearly every message with outputs is followed by another of its session, so recording the
        # delivery of the last outputs here saves a read and a write for each message.
        has_outbox = head is not None and head.outbox is not NO_OUTBOX
        left = self.acknowledgements.left_of(head) if head and has_outbox else None
        evicted = await self.evict_cursors(head, entry) if head and entry.has_evicted else {}
        carried = Carried(left, self.marker_seconds, evicted)
        waits, began = self.worker.policy.waits, self.worker.clock.now()
        for tried in range(waits.unknown_tries):
            result: WriteResult | None = None
            try:
                result = await self.worker.journal.append(entry, carried)
            except OutcomeUnknown:
                # It may have been created, or may still be. Trying the same attempt again is safe:
                # both tries create the same entry, and nobody else's can be in its place unseen.
                pass
            except Unavailable:
                # Refused at the first try: nothing happened. Later, an earlier try may have.
                if not tried:
                    raise
            # The SDK repeats writes by itself, so even a conflict may be our own success. The
            # attempt's id is unique to this worker and this try at the message, so it tells.
            if result is not WriteResult.CREATED and await self.is_ours(entry):
                result = WriteResult.CREATED
            if result is WriteResult.CREATED:
                self.worker.remember_head(entry.session, entry, is_ours=True)
                if self.worker.telemetry is not None:
                    self.worker.telemetry.commit(entry, self.worker.clock.now() - began)
                if head is not None and left is not None:
                    # Only now: had the batch failed, the acknowledgement would still be unrecorded.
                    self.acknowledgements.remove(head)
            if result is not None:
                return result
            await self.worker.clock.sleep(waits.poll_seconds * tried)
        raise OutcomeUnknown(f"no answer for entry {entry.position} of session {entry.session!r}")

    async def evict_cursors(self, head: Entry, entry: Entry) -> dict[str, EvictedCursor]:
        """The cursors that the batch moves beside the journal, by group. Raises Unavailable."""
        # What earlier evictions left is read and written again. Only an entry after this head could
        # change it meanwhile, and then this one is refused.
        cursors = evicted_cursors(head, entry)
        before = await self.worker.read_cursors(head.session, cursors)
        return {
            group: evict(cursor, head.position, before[group]) for group, cursor in cursors.items()
        }

    async def is_ours(self, entry: Entry) -> bool:
        """Return whether the entry at this position is this very attempt.

        Raises OutcomeUnknown where that cannot be read: the entry may be there.
        """
        try:
            stored = await self.worker.journal.entry(entry.session, entry.position)
        except Unavailable as error:
            raise OutcomeUnknown(f"it cannot be read what was written: {error}") from error
        return stored is not None and stored.attempt == entry.attempt
