"""Number messages and send them to every region; what one region misses is owed, not lost."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from weakref import WeakValueDictionary

from shared.domain import producer
from shared.domain.errors import InvalidMessage, OutcomeUnknown, Unavailable
from shared.domain.journal import require_number
from shared.domain.message import Message
from shared.domain.producer import Draft, Ledger, ProducerOptions
from shared.ports import Journal
from shared.usecases.deliver import Delivery

# Two producers of one group can collide on a ledger a few times, not for ever.
LEDGER_TRIES = 5


@dataclass(frozen=True, slots=True)
class Published:
    """The messages as sent, and how many copies are owed to regions that were out of reach."""

    messages: tuple[Message, ...]
    owed: int

    @property
    def sent(self) -> int:
        """How many messages are safe."""
        return len(self.messages)


class Producer:
    """Publishes to sessions: one operation at a time per session, many sessions at once."""

    def __init__(self, journal: Journal, delivery: Delivery, queue: str) -> None:
        self.journal = journal
        self.delivery = delivery
        self.queue = queue
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def publish(
        self, session: str, drafts: Sequence[Draft], options: ProducerOptions
    ) -> Published:
        """Bind numbers to the drafts in the ledger, then send them.

        Calling again with the same drafts after any failure sends the same numbers and bytes.
        Raises what `send` raises, and ProducerDisconnected, InvalidClientState or ContentConflict.
        """
        async with self.turn_of(session):
            messages = await self.bind(session, drafts, options)
            return await self.send_in_turn(messages)

    async def send(self, messages: Sequence[Message]) -> Published:
        """Send messages of one session that carry consecutive numbers of one group.

        Success means each message is in every region's queue, or in one while the others' copies
        are owed in the journal. Raises InvalidMessage for mixed sessions or broken numbering,
        OutcomeUnknown when no region surely has them: send the same again.
        """
        require_consecutive(messages)
        async with self.turn_of(messages[0].session):
            return await self.send_in_turn(tuple(messages))

    async def bind(
        self, session: str, drafts: Sequence[Draft], options: ProducerOptions
    ) -> tuple[Message, ...]:
        """Number the drafts and store the ledger; nothing is sent before that is certain."""
        for _ in range(LEDGER_TRIES):
            stored = await self.journal.ledger(session, options.producer_group_id)
            before = stored.ledger if stored else Ledger(options.producer_group_id)
            after, messages = producer.number(before, session, drafts, options)
            version = stored.version if stored else None
            if after == before or await self.journal.save_ledger(session, after, version):
                return messages
        raise Unavailable(f"the ledger of session {session!r} is contended", 1.0)

    async def send_in_turn(self, messages: tuple[Message, ...]) -> Published:
        """Send to all regions; owe what is missing, if at least one region has the messages."""
        outbox = self.delivery.to_every_region(self.queue, messages)
        delivered = await self.delivery.deliver(outbox)
        if not delivered:
            raise OutcomeUnknown("no region surely took the messages; send the same ones again")
        missing = outbox.delivered(delivered)
        if missing.owing:
            await self.journal.owe(messages[0].session, missing)
        return Published(messages, owed=len(missing.regions) * len(messages))

    def turn_of(self, session: str) -> asyncio.Lock:
        """The lock that makes operations on one session wait for each other."""
        return self.locks.setdefault(session, asyncio.Lock())


def require_consecutive(messages: Sequence[Message]) -> None:
    """Raise InvalidMessage unless the messages continue one another in one session and group."""
    if not messages:
        raise InvalidMessage("nothing to send")
    for before, after in pairwise(messages):
        number = require_number(before)
        expected = replace(number, sequence=number.sequence + 1)
        if after.session != before.session or require_number(after) != expected:
            raise InvalidMessage(f"message {after.id!r} does not continue {before.id!r}")
    require_number(messages[0])
