"""Take a batch of one session's messages: one entry for as many as succeed, then one by one.

This is for sessions with many messages waiting: the fold costs one write, not one for each message.
What came before a message that ends the fold is committed.
"""

from collections.abc import Sequence
from itertools import takewhile

from shared.domain.message import Message
from shared.engine.consume.consume import Consumer
from shared.engine.consume.outcomes import Outcome, Processed

# Evicted cursors that are read for a fold, side by side.
CURSORS_READ_MAX = 40


class BatchConsumer:
    """Processes batches, each of one session, in the order in which they were delivered."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.worker = consumer.worker

    async def consume(self, messages: Sequence[Message]) -> list[Outcome]:
        """The outcome of each message; see Consumer.consume for what is promised and raised.

        When it raises, some of the messages may have their entries; their copies will find them.
        """
        outcomes: list[Outcome] = []
        while len(outcomes) < len(messages):
            rest = messages[len(outcomes) :]
            together = await self.consume_together(rest)
            if together:
                outcomes += together
            else:
                outcomes.append(await self.consumer.consume(rest[0]))
        return outcomes

    async def consume_together(self, messages: Sequence[Message]) -> list[Outcome]:
        """The outcomes of the first messages, committed in one entry; none where it is no use."""
        # A region that does not lead mostly gets copies: there is nothing to commit for them.
        session = messages[0].session
        if len(messages) == 1 or not self.consumer.leads(session):
            return []
        head = await self.consumer.first_head(messages[0])
        # Where messages are parked, each new one has to be compared with them and may let some go
        # on, which Consumer.consume does.
        if head is not None and head.parked:
            return []
        fresh = list(takewhile(self.is_fresh, messages))
        if not fresh:
            return []
        if head is not None and head.has_evicted:
            groups = [m.number.group for m in fresh[:CURSORS_READ_MAX] if m.number is not None]
            head = await self.worker.with_cursors(head, groups)
        made_from = await self.consumer.parking.prepare(head, fresh[0])
        # A crash before the commit leaves nothing, and one after it leaves an entry that names
        # every message of the fold: all of them are redelivered and found processed.
        entry = await self.consumer.commit_fold(made_from, fresh)
        # Another worker was first, or it was too much for one batch. Which of the messages are
        # duplicates now is not known, so each is taken alone.
        return [Processed(entry) for _ in entry.identities] if entry else []

    def is_fresh(self, message: Message) -> bool:
        """Whether a message is numbered, and no copy as far as this worker remembers."""
        return message.number is not None and self.consumer.duplicates.recall(message) is None
