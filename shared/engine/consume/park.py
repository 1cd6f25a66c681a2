"""Keep messages beside the journal until their turn comes, one under each number.

Parking appends an entry and creates the message's document in the same batch. The entry is what
makes it safe: the next worker that moves the cursor builds on it, and so knows that a message
waits. A document alone could be written a moment after the missing message was processed, and
nobody would ever read it. What is written is in shared/storage/documents.py (`encode_parked`), and
the batch in entries.py beside it. A parked message never expires: only its turn removes it.

A message that finds its place taken is a copy, or another message under a used number, or it comes
from a producer that another one has fenced: the higher owner level has the place.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from shared.domain import next_entry
from shared.domain.decision import cursor_of
from shared.domain.errors import NotStorable, OutcomeUnknown, Unavailable
from shared.domain.journal import ARRIVALS, Entry, Status
from shared.domain.message import Message, Number
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import ERRORS
from shared.domain.producer import RESERVED_PREFIXES
from shared.domain.reports import TOMBSTONE_TYPE, explain_tombstone, report_fault
from shared.engine.consume.duplicates import Duplicates
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Outcome,
    Parked,
    Refused,
    compare_content,
    report_conflict,
)
from shared.engine.dispatch.dispatch import Dispatcher
from shared.engine.worker import Worker
from shared.ports import Carried, ParkedMessage, StoredEntry, WriteResult

log = logging.getLogger("lockstep.parking")

# So many parked messages, and about so many bytes of them, are read at once. A batch of the store
# takes 100 operations: each message that an entry takes needs one, and so does an evicted cursor.
RUN_MESSAGES_MAX = 85
RUN_BYTES_MAX = 4_000_000
ENDED = "the session has ended: what is new belongs into another session"


class Parking:
    def __init__(self, worker: Worker, dispatcher: Dispatcher, duplicates: Duplicates) -> None:
        self.worker = worker
        self.journal = worker.journal
        self.clock = worker.clock
        self.dispatcher = dispatcher
        self.duplicates = duplicates

    async def park(self, head: Entry | None, message: Message) -> Outcome | None:
        """Keep the message beside the journal; None when another worker was first."""
        # The place is the message's number, so copies from both regions cannot both be parked. The
        # entry points to the state instead of copying it: many may wait behind one gap.
        entry = next_entry.park(await self.dispatcher.prepare(head, message))
        result = await self.worker.commit(head, entry)
        return await self.parked_as(head, message, result)

    async def park_beside(self, stored: StoredEntry, message: Message) -> Outcome | None:
        """Let the message wait for a claim; None when the claim was written meanwhile.

        Raises OutcomeUnknown.
        """
        # Nobody can append after a claim, so the count goes into the claim itself. It keeps its
        # attempt, so it still is its owner's, who reads the count before ending it.
        claim, identity = next_entry.park_beside(stored.entry, stored.claimed_at, message)
        waiting = ParkedMessage(message, identity)
        carried = Carried(marker_seconds=self.worker.marker_seconds)
        try:
            result = await self.journal.replace(claim, stored.version, carried, waiting)
        except NotStorable:
            # Claim and message do not fit into one batch. The message waits in this invocation and
            # is decided on again, until the claim has ended.
            await self.clock.sleep(self.worker.policy.waits.poll_seconds)
            return None
        return await self.parked_as(stored.entry, message, result)

    async def parked_as(
        self, head: Entry | None, message: Message, result: WriteResult
    ) -> Outcome | None:
        """Return the outcome of parking, None when another worker was first."""
        match result:
            case WriteResult.CREATED:
                return Parked()
            case WriteResult.PARKED_BEFORE:
                return await self.parked_before(head, message)
            case WriteResult.SEEN_BEFORE:
                # An un-numbered message has its marker from the moment it is parked.
                return await self.seen_before(message)
            case WriteResult.TAKEN | WriteResult.ORPHANED:
                # The head is out of date, so perhaps the message's turn has come: decide again.
                return None

    async def parked_before(self, head: Entry | None, message: Message) -> Outcome | None:
        """Something is parked under the message's number: a copy, another, or a fenced one."""
        parked = await self.worker.parked_under(head, message)
        if head is None or parked is None:
            # It was taken between the refusal and this read.
            return None
        level = level_of(message)
        if level_of(parked) >= level and parked.digest == message.digest:
            return AlreadyDone()
        if is_other(parked, message):
            return report_conflict(message)
        # The owner levels differ, so one of the two producers is fenced. Recording that needs an
        # entry, which nobody can append after a claim: wait for its end.
        if head.status is Status.WORKING:
            await self.clock.sleep(self.worker.policy.waits.poll_seconds)
        elif level_of(parked) > level:
            return await self.refuse(head, message, level_of(parked))
        else:
            # The parked one is fenced: it gives its place up, and the message is looked at again.
            made_from = replace(await self.dispatcher.prepare(head, parked), from_parked=True)
            await self.commit_refusal(made_from, level)
        return None

    async def refuse(self, head: Entry | None, message: Message, level: int) -> Outcome | None:
        """Record in the journal that the message's producer was fenced."""
        # The cursor stays where it is: the number is free for the producer that rules now.
        entry = await self.commit_refusal(await self.dispatcher.prepare(head, message), level)
        return Refused(entry) if entry else None

    async def commit_refusal(self, made_from: EntryInput, level: int) -> Entry | None:
        """Commit the refusal of a fenced producer's message; None if others were first."""
        reason = f"a producer of owner level {level} rules"
        entry = next_entry.refuse(next_entry.open_entry(made_from), reason)
        stored = await self.append_refusal(made_from, entry, reason)
        if stored is not None:
            await self.fence_ledger(made_from.message, level)
        return stored

    async def refuse_ended(self, made_from: EntryInput) -> Entry | None:
        """Commit that a message came for a session that has ended; None if others were first.

        Its number is used up, so that a copy of it is recognised, and what comes after it is no
        gap.
        """
        message, opened = made_from.message, next_entry.open_entry(made_from)
        why = next_entry.explain_cancellation(made_from)
        if message.type == TOMBSTONE_TYPE:
            why = explain_tombstone(message)
        if why is not None:
            # Nobody is told a reminder that the end cancelled, or what its sender took back.
            return await self.dispatcher.append(made_from.head, next_entry.skip(opened, why))
        return await self.append_refusal(made_from, next_entry.skip(opened, ENDED), ENDED)

    async def append_refusal(
        self, made_from: EntryInput, entry: Entry, reason: str
    ) -> Entry | None:
        """Append an entry that refuses its message, and report it; None if others were first."""
        message = made_from.message
        # Recorded rather than dropped: its sender was told that it is safe. So it is kept whole, is
        # listed until a person closes it, and a copy goes where people look.
        reports = self.dispatcher.delivery.address_all(ERRORS, [report_fault(message, reason)])
        entry = replace(entry, message=message, outbox=reports, alert=reason)
        stored = await self.dispatcher.append(made_from.head, entry, reports.batches)
        if stored is not None:
            log.warning("message %r of session %r: %s", message.id, message.session, reason)
        return stored

    async def end_ledgers(self, ended: Entry) -> None:
        """Let the ledgers of those who ended a session refuse what is published to it from now on.

        This is for their sake only: what is published all the same is refused by the session, and
        compaction ends the ledgers for certain.
        """
        groups = {one.number.group for one in ended.identities}
        for group in sorted(groups):
            if group.startswith(RESERVED_PREFIXES):
                continue
            try:
                await self.journal.end_ledger(ended.session, group)
            except (Unavailable, OutcomeUnknown) as error:
                self.worker.failure_log.add("ending a ledger", "the journal", error)

    async def fence_ledger(self, message: Message, level: int) -> None:
        """Raise the ledger of a fenced producer, so that its next operation is refused by name."""
        # Somebody who numbers without the ledger fenced it. This is for its sake only: where the
        # store does not help, the next of its messages does the same.
        if message.number is None:
            return
        try:
            stored = await self.journal.ledger(message.session, message.number.group)
            if stored is not None and stored.ledger.level < level:
                fenced = replace(stored.ledger, level=level)
                await self.journal.save_ledger(message.session, fenced, stored.version)
        except (Unavailable, OutcomeUnknown) as error:
            self.worker.failure_log.add("fencing a ledger", "the journal", error)

    async def seen_before(self, message: Message) -> Outcome | None:
        """Return the outcome of an un-numbered message that was seen, None where it was not."""
        if message.number is not None:
            return None
        # The batch was refused by the marker, so it is there. A relaxed read may miss it for a
        # moment; then the message is decided on again.
        digest = await self.duplicates.look(message)
        return None if digest is None else compare_content(message, digest)

    async def next_parked(self, head: Entry) -> tuple[Entry, Sequence[Message]] | None:
        """Parked messages of one group whose turn has come, in order, and the head with its cursor.

        None where all have to wait. Those after the first are taken to be about as large as it is.
        """
        # The head counts the parked messages by group, so a session without any pays no read here,
        # and one with a gap pays one point read for each group, or two if its cursor was evicted.
        for group in sorted(head.parked):
            known = await self.worker.with_cursors(head, [group])
            cursor = cursor_of(known, group)
            number = Number(group, cursor.level, cursor.next)
            first = await self.journal.parked(head.session, number)
            if first is None:
                continue
            # Markers are written anew, so a message without a number takes two operations.
            most = RUN_MESSAGES_MAX // 2 if group == ARRIVALS else RUN_MESSAGES_MAX
            most = min(most, head.parked[group], RUN_BYTES_MAX // max(1, len(first.body)))
            if most <= 1:
                return known, [first]
            after = replace(number, sequence=number.sequence + 1)
            rest = await self.journal.parked_run(head.session, after, most - 1)
            return known, [first, *rest]
        return None


def level_of(message: Message) -> int:
    return message.number.level if message.number else 0


def is_other(parked: Message, message: Message) -> bool:
    """Return whether the same producer used the same number for other content."""
    return level_of(parked) == level_of(message) and parked.digest != message.digest
