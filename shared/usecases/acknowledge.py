"""Say that an outbox was taken everywhere: with the session's next entry, or soon after.

Most sessions have a next message at once, and its batch carries the acknowledgement for nothing. A
worker that dies with some of them unsaid costs a repeated send of the same bytes, no more.
"""

import asyncio
from dataclasses import dataclass, field

from shared.domain.documents import position_id
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from shared.domain.outbox import Staged
from shared.ports import Clock, Journal


@dataclass(frozen=True, slots=True)
class Taken:
    """An entry whose outputs every region has, and when that is said at the latest."""

    entry: Entry
    due: float


@dataclass
class Acknowledger:
    """One worker's unsaid acknowledgements. With `idle_seconds` of zero nothing is put off."""

    journal: Journal
    clock: Clock
    idle_seconds: float = 0.0
    unsaid: dict[str, Taken] = field(default_factory=dict)
    saying: asyncio.Task[None] | None = None

    async def taken(self, entry: Entry, regions: tuple[str, ...]) -> None:
        """Every region the entry owed has its outputs. Raises Unavailable or OutcomeUnknown."""
        if self.idle_seconds <= 0 or isinstance(entry.outbox.elsewhere, Staged):
            await self.journal.acknowledge(entry.session, position_id(entry.position), regions)
            return
        # Whoever put an entry in between had to acknowledge the older one.
        self.unsaid[entry.session] = Taken(entry, self.clock.now() + self.idle_seconds)
        if self.saying is None or self.saying.done():
            self.saying = asyncio.create_task(self.say_what_is_due())

    def knows_taken(self, head: Entry) -> bool:
        """Whether every region took the head's outputs, as far as this worker knows."""
        taken = self.unsaid.get(head.session)
        return taken is not None and taken.entry.position == head.position

    def was_carried(self, head: Entry) -> None:
        """An entry's batch said it."""
        if self.knows_taken(head):
            del self.unsaid[head.session]

    async def say_what_is_due(self) -> None:
        """Acknowledge what no next entry came for, until nothing is left."""
        while self.unsaid:
            await self.clock.sleep(self.idle_seconds / 2)
            # Whatever is due before the next look: the session may be another worker's by then.
            next_look = self.clock.now() + self.idle_seconds / 2
            for session in [s for s, taken in self.unsaid.items() if taken.due <= next_look]:
                await self.say(session)

    async def say(self, session: str) -> None:
        """Acknowledge now; a store that does not answer leaves it to the rescue."""
        taken = self.unsaid.pop(session, None)
        if taken is None:
            return
        entry = taken.entry
        try:
            await self.journal.acknowledge(
                session, position_id(entry.position), entry.outbox.regions
            )
        except (Unavailable, OutcomeUnknown):
            return

    async def close(self) -> None:
        """Say everything that is still unsaid."""
        for session in list(self.unsaid):
            await self.say(session)
