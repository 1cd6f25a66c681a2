"""Take a batch of one session's messages: one entry for as many as succeed, then one by one.

This is for sessions with many messages waiting: the fold costs one write, not one for each message.
A message that has to wait, fails, or calls the outside ends the fold; what came before it is
committed.
"""

from collections.abc import Sequence
from dataclasses import replace

from shared.domain import next_entry
from shared.domain.decision import Proceed, decide
from shared.domain.errors import TooLarge
from shared.domain.handler import HandlerInput, Kind
from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import NO_OUTBOX, Outbox
from shared.domain.reports import TOMBSTONE_TYPE
from shared.engine.consume.consume import Consumer
from shared.engine.consume.outcomes import Outcome, Processed
from shared.engine.handle.handle import address_batches, run_pure
from shared.ports import WriteResult
from shared.storage.limits import fits_entry

# So that what an entry keeps of its messages stays small beside its state.
MESSAGES_MAX = 100


class BatchConsumer:
    """Processes batches, each of one session, in the order in which they were delivered.

    Folding is an optimisation and decides nothing: whatever it does not fit is consumed alone.
    """

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
        made_from = await self.consumer.parking.prepare(head, messages[0])
        state = await self.worker.state_after(head)
        given = HandlerInput(state, head.produced if head else {})
        entry = self.fold(made_from, messages[:MESSAGES_MAX], given)
        if entry is None:
            return []
        # A crash before this leaves nothing, and one after it leaves an entry that names every
        # message of the fold: all of them are redelivered and found processed.
        try:
            result = await self.consumer.committer.commit(head, entry)
        except TooLarge:
            result = WriteResult.ORPHANED
        if result is not WriteResult.CREATED:
            # Another worker was first, or it was too much for one batch. Which of the messages are
            # duplicates now is not known, so each is taken alone, on a head that is read again.
            self.worker.remember_head(session, None)
            return []
        sent = await self.consumer.dispatcher.send_outputs(entry, entry.outbox.batches)
        return [Processed(sent) for _ in entry.identities]

    def fold(
        self, made_from: EntryInput, messages: Sequence[Message], given: HandlerInput
    ) -> Entry | None:
        """Run handlers one after another, as far as all goes well: the entry of these messages."""
        folded: Entry | None = None
        for message in messages:
            # The entry so far stands for the head, though it is not stored: the next handler gets
            # its state and numbers, and `decide` checks the next message against its cursors.
            if folded is not None:
                made_from = replace(made_from, head=folded)
                given = HandlerInput(folded.state or {}, folded.produced)
            after = self.complete_alone(replace(made_from, message=message), given)
            if after is None:
                break
            entry = next_entry.fold(folded, after) if folded else after
            # A fold never stages outputs: what no longer fits begins the next entry.
            if not fits_entry(entry.outbox.messages):
                break
            folded = entry
        return folded

    def complete_alone(self, made_from: EntryInput, given: HandlerInput) -> Entry | None:
        """The entry of one more message; None where the message has to be consumed alone."""
        message = made_from.message
        # Where messages are parked, each new one has to be compared with them and may let some go
        # on, which Consumer.consume does.
        waits = made_from.head is not None and bool(made_from.head.parked)
        if (
            message.number is None
            or message.type == TOMBSTONE_TYPE
            or waits
            or self.worker.handlers.kind_of(message.type) is not Kind.PURE
            or self.consumer.duplicates.recall(message) is not None
            or not isinstance(decide(made_from.head, message), Proceed)
        ):
            return None
        try:
            result = run_pure(self.worker.handlers.of(message.type), given, message)
        except Exception:
            # Run again alone, where it becomes a fault. A pure handler may run any number of times.
            return None
        outbox = NO_OUTBOX
        if result.batches:
            batches = address_batches(result, self.worker.policy.output_queue)
            outbox = Outbox(batches, self.consumer.dispatcher.delivery.regions)
        return next_entry.complete(next_entry.open_entry(made_from), result, outbox)
