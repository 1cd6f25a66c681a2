"""Take a batch of one session's messages: one entry for as many as succeed, then one by one.

For deep sessions: a write is paid for the batch, not for each message. A message that has to wait,
fails, or calls the outside ends the batch's common entry; what came before it is committed.
"""

from collections.abc import Sequence
from dataclasses import replace

from shared.domain import entries, journal, running
from shared.domain.batch import Appended
from shared.domain.entries import Step
from shared.domain.errors import TooLarge
from shared.domain.handling import Kind
from shared.domain.journal import Entry, Proceed
from shared.domain.message import Message
from shared.domain.outbox import NOTHING_OWED
from shared.domain.reports import VOID_TYPE
from shared.domain.running import Before
from shared.usecases.consume import Consumer
from shared.usecases.outcomes import Outcome, Processed
from shared.usecases.outputs import INLINE_BYTES_MAX, bytes_of
from shared.usecases.process import Ending

# So that what an entry keeps of its messages stays small beside its state.
MESSAGES_MAX = 100


class BatchConsumer:
    """Processes batches, each of one session, in the order in which they were delivered."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.processor = consumer.processor
        self.committer = consumer.committer

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
        session = messages[0].session
        if len(messages) == 1 or not self.consumer.leads(session):
            return []
        head = await self.consumer.first_head(messages[0])
        step = await self.processor.step(head, messages[0])
        fold = self.fold(step, messages[:MESSAGES_MAX], await self.processor.before(head))
        if fold is None:
            return []
        if not await self.is_appended(head, fold):
            self.committer.heads.forget(session)
            return []
        entry = await self.processor.dispatched(Ending(fold, fold.outbox.parcels))
        return [Processed(entry) for _ in fold.covers]

    async def is_appended(self, head: Entry | None, entry: Entry) -> bool:
        """Whether the common entry was committed; otherwise each message is taken alone."""
        try:
            return await self.processor.append(head, entry) is Appended.CREATED
        except TooLarge:
            return False

    def fold(self, step: Step, messages: Sequence[Message], before: Before) -> Entry | None:
        """Run handlers one after another, as far as all goes well: the entry that covers these."""
        fold: Entry | None = None
        for message in messages:
            after = self.completed(replace(step, message=message), before, fold)
            if after is None:
                break
            entry = entries.joined(fold, after) if fold else after
            if bytes_of(entry.outbox.messages) > INLINE_BYTES_MAX:
                break
            fold = entry
        return fold

    def completed(self, step: Step, before: Before, fold: Entry | None) -> Entry | None:
        """The entry of one more message; None where it must be looked at alone."""
        if fold is not None:
            step = replace(step, head=fold)
            before = Before(fold.state or {}, fold.produced)
        if not self.is_simple(step):
            return None
        try:
            handler = self.processor.handlers.of(step.message.type)
            result = running.run(handler, before, step.message)
        except Exception:
            return None
        outbox = self.processor.outputs.inline(result)
        return entries.completed(
            entries.opened(step), result, NOTHING_OWED if outbox.is_empty else outbox
        )

    def is_simple(self, step: Step) -> bool:
        """Whether it is the message's turn, and nothing but its handler has to run."""
        kind = self.processor.handlers.kind_of(step.message.type)
        is_turn = isinstance(journal.decide(step.head, step.message), Proceed)
        waits = step.head is not None and bool(step.head.parked)
        is_known = self.consumer.coverage.known(step.message) is not None
        return (
            kind is Kind.PURE
            and is_turn
            and not waits
            and not is_known
            and step.message.number is not None
            and step.message.type != VOID_TYPE
        )
