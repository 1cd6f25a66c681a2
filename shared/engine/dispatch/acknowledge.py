"""Record which regions took an outbox: with the session's next entry, or soon after.

Most sessions have a next message at once, and its batch carries the acknowledgement at no cost. A
worker that dies before it recorded some of them costs a repeated send of the same bytes, no more.
"""

import asyncio

from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from shared.domain.outbox import Delivered, PendingOutbox, Staged
from shared.engine.worker import Unrecorded, Worker

# How many are recorded side by side: at 130 ms a write these are 240 sessions a second.
RECORDED_AT_ONCE = 32


class Acknowledgements:
    """The acknowledgements that one worker has not recorded yet.

    With an `acknowledge_seconds` of zero nothing is put off.
    """

    def __init__(self, worker: Worker) -> None:
        self.journal = worker.journal
        self.clock = worker.clock
        self.failure_log = worker.failure_log
        self.idle_seconds = worker.policy.acknowledge_seconds
        self.unrecorded = worker.unrecorded
        self.slots = asyncio.Semaphore(RECORDED_AT_ONCE)
        self.recording: asyncio.Task[None] | None = None

    async def add(self, entry: Entry, done: Delivered) -> None:
        """Keep the result of sending the entry's outputs. Raises Unavailable or OutcomeUnknown."""
        left = entry.outbox.after(done)
        is_plain = not (left.refused or left.blocked or left.delivered or left.sent)
        # A write without a read says no more than which regions are left. It may also name a region
        # again whose sweep was faster, which must not happen once staged outputs are removed.
        if not is_plain or isinstance(left.location, Staged):
            pending = PendingOutbox(entry.session, entry.outbox, entry.position)
            await self.journal.acknowledge(pending, done)
            return
        if self.idle_seconds <= 0:
            await self.journal.leave_pending(entry.session, entry.position, left.regions)
            return
        # An older entry of the session needs no place here: this one was appended to it, and its
        # batch carried the older acknowledgement.
        due = self.clock.now() + self.idle_seconds
        self.unrecorded[entry.session] = Unrecorded(entry, left.regions, due)
        if self.recording is None or self.recording.done():
            self.recording = asyncio.create_task(self.record_when_due())

    async def record_when_due(self) -> None:
        """Record those for which no next entry came, until nothing is left."""
        while self.unrecorded:
            await self.clock.sleep(self.idle_seconds / 2)
            # What falls due before the next round is recorded now: in between, another worker may
            # append to the session, and would deliver the outbox again.
            next_look = self.clock.now() + self.idle_seconds / 2
            due = [session for session, found in self.unrecorded.items() if found.due <= next_look]
            await asyncio.gather(*(self.record_session(session) for session in due))

    async def record_session(self, session: str) -> None:
        """Record one now; where the store does not help, it is left to the sweep."""
        async with self.slots:
            found = self.unrecorded.get(session)
            if found is None:
                return
            try:
                # It stays known until it is stored: a message that comes meanwhile must not
                # deliver the outbox again. That its entry may carry it as well does no harm.
                await self.journal.leave_pending(session, found.entry.position, found.left)
            except (Unavailable, OutcomeUnknown) as error:
                what = "recording what regions took"
                self.failure_log.add(what, "the journal", error)
            finally:
                # By now the session may have a newer one.
                if self.unrecorded.get(session) is found:
                    del self.unrecorded[session]

    async def close(self) -> None:
        """Record everything that is left. Raises nothing: the sweep finds what could not be."""
        await asyncio.gather(*(self.record_session(session) for session in list(self.unrecorded)))
