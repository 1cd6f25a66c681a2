"""Record that every region took an outbox: with the session's next entry, or soon after.

Most sessions have a next message at once, and its batch carries the acknowledgement at no cost. A
worker that dies before it recorded some of them costs a repeated send of the same bytes, no more.
"""

import asyncio
from dataclasses import dataclass

from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from shared.domain.outbox import PendingOutbox, Staged
from shared.engine.worker import Worker


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """An entry whose outputs every region has, and when that is recorded at the latest."""

    entry: Entry
    due: float


class Acknowledgements:
    """The acknowledgements that one worker has not recorded yet.

    With an `acknowledge_seconds` of zero nothing is put off.
    """

    def __init__(self, worker: Worker) -> None:
        self.journal = worker.journal
        self.clock = worker.clock
        self.idle_seconds = worker.policy.acknowledge_seconds
        self.unrecorded: dict[str, Unrecorded] = {}
        self.recording: asyncio.Task[None] | None = None

    async def add(self, entry: Entry) -> None:
        """Every region has the entry's outputs. Raises Unavailable or OutcomeUnknown."""
        # Recording this for staged outputs also removes their documents, which the batch of a next
        # entry does not do.
        if self.idle_seconds <= 0 or isinstance(entry.outbox.location, Staged):
            await self.record(entry)
            return
        # An older entry of the session needs no place here: this one was appended to it, and its
        # batch carried the older acknowledgement.
        self.unrecorded[entry.session] = Unrecorded(entry, self.clock.now() + self.idle_seconds)
        if self.recording is None or self.recording.done():
            self.recording = asyncio.create_task(self.record_when_due())

    def includes(self, head: Entry) -> bool:
        """Whether every region took the head's outputs, and only this worker knows it so far."""
        found = self.unrecorded.get(head.session)
        return found is not None and found.entry.position == head.position

    def remove(self, head: Entry) -> None:
        """The next entry's batch recorded it."""
        if self.includes(head):
            del self.unrecorded[head.session]

    async def record(self, entry: Entry) -> None:
        """Strike every region off the entry's outbox."""
        pending = PendingOutbox(entry.session, entry.outbox, entry.position)
        await self.journal.acknowledge(pending, entry.outbox.regions)

    async def record_when_due(self) -> None:
        """Record those for which no next entry came, until nothing is left."""
        while self.unrecorded:
            await self.clock.sleep(self.idle_seconds / 2)
            # What falls due before the next round is recorded now: in between, another worker may
            # append to the session, and would deliver the outbox again.
            next_look = self.clock.now() + self.idle_seconds / 2
            due = [session for session, found in self.unrecorded.items() if found.due <= next_look]
            for session in due:
                await self.record_session(session)

    async def record_session(self, session: str) -> None:
        """Record one now; where the store does not help, it is left to the sweep."""
        # Taken out before the write, so that a commit meanwhile does not carry it a second time.
        found = self.unrecorded.pop(session, None)
        if found is None:
            return
        try:
            await self.record(found.entry)
        except (Unavailable, OutcomeUnknown):
            return

    async def close(self) -> None:
        """Record everything that is left. Raises nothing: the sweep finds what could not be."""
        for session in list(self.unrecorded):
            await self.record_session(session)
