"""Deliver outboxes: send what is pending in order, then strike off the regions that took it.

Sending comes before striking off, so a crash in between repeats a send of the same bytes, which
receivers recognise by number. The other order would lose a copy. In each region the outputs of a
session keep the order of its journal: a region that misses one outbox gets none of the later ones.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from shared.domain.errors import CallerError, OutcomeUnknown, Unavailable
from shared.domain.handler import HandlerInput
from shared.domain.journal import Entry, lagging_regions
from shared.domain.outbox import (
    NO_OUTBOX,
    DestinationBatch,
    Outbox,
    PendingOutbox,
    Rerun,
    Staged,
    sort_for_delivery,
)
from shared.engine.commit.acknowledge import Acknowledgements
from shared.engine.dispatch.deliver import Delivery
from shared.engine.handle.handle import address_batches, run_pure
from shared.engine.worker import Worker
from shared.ports import Outboxes
from shared.storage.documents import digest_batches

log = logging.getLogger("lockstep.dispatch")

# Older outboxes that a message delivers before its own; a region that misses more stays lagging.
CATCH_UP_MAX = 100


class Dispatcher:
    def __init__(
        self, worker: Worker, delivery: Delivery, acknowledgements: Acknowledgements
    ) -> None:
        self.worker = worker
        self.journal = worker.journal
        self.delivery = delivery
        self.acknowledgements = acknowledgements

    async def send_outputs(self, entry: Entry, batches: tuple[DestinationBatch, ...]) -> Entry:
        """Send a new entry's outputs to the regions that miss nothing earlier.

        What every region took at once is acknowledged with the session's next entry, or soon after.
        The entry is returned as it is stored from now on, as far as is known. Raises nothing: what
        could not be sent stays pending, and the sweep finds it.
        """
        # A lagging region waits until earlier outboxes have reached it; catch_up or its own sweep
        # then sends this one in its turn.
        due = entry.outbox.only(r for r in entry.outbox.regions if r not in entry.lagging)
        if not due.regions:
            return entry
        try:
            sent = await self.delivery.deliver_possible(Outbox(batches, due.regions))
            if sent.regions == entry.outbox.regions and not sent.refused:
                # Nothing is left, so it is recorded with the session's next entry at no cost. What
                # only some regions took is written down now: it may stay so for hours.
                await self.acknowledgements.add(entry)
            elif sent.regions:
                pending = PendingOutbox(entry.session, entry.outbox, entry.position)
                await self.journal.acknowledge(pending, sent.regions, sent.refused)
        except (CallerError, Unavailable, OutcomeUnknown):
            # The entry is committed, so its message is processed whatever happened here. To raise
            # would abandon the delivery, whose copy would only find the entry.
            return entry
        after = replace(entry, outbox=entry.outbox.without(sent.regions))
        self.worker.remember_head(entry.session, after, is_ours=True)
        return after

    async def catch_up(self, head: Entry | None) -> tuple[str, ...]:
        """Deliver what earlier entries left pending, before anything follows them.

        The regions that still lag are returned. Raises Unavailable when that is every region: the
        next entry must not overtake everywhere.
        """
        if head is None:
            return ()
        # The stored head may name an outbox that this worker has delivered and not recorded yet.
        if head.outbox is not NO_OUTBOX and self.acknowledgements.includes(head):
            head = replace(head, outbox=NO_OUTBOX)
        # The usual case ends here without a read. Each entry names the regions that lagged when it
        # was made, so the head answers for the whole journal before it.
        if not lagging_regions(head):
            return ()
        regions = self.delivery.regions
        pending = await self.journal.pending(head.session, regions, limit=CATCH_UP_MAX)
        # Only entries have a place in the journal's order. A producer's copies carry numbers of
        # their own, so nothing has to wait for them.
        of_entries = [one for one in pending if one.position is not None]
        lagging = await self.deliver_in_order(of_entries, regions)
        if len(pending) == CATCH_UP_MAX:
            # There may be more: a region that missed any of these counts as lagging until a
            # search finds fewer.
            lagging = tuple(r for r in regions if any(r in one.outbox.regions for one in pending))
        if set(lagging) == set(regions):
            # With every queue out of reach outboxes would pile up in the journal, one for every
            # message. The message stays in its queue instead, which is made for waiting.
            raise Unavailable(f"no region takes the outputs of session {head.session!r}")
        after = replace(head, outbox=NO_OUTBOX, lagging=lagging)
        self.worker.remember_head(head.session, after)
        return lagging

    async def deliver_in_order(
        self, pending: Sequence[PendingOutbox], regions: Sequence[str]
    ) -> tuple[str, ...]:
        """Deliver a session's outboxes to these regions, in order; the answer is who still lags.

        A region that misses one outbox gets none of the later ones: order holds in each region.
        """
        lagging: tuple[str, ...] = ()
        for one in sort_for_delivery(pending):
            # `lagging` grows as regions fail, so nothing later is tried with them.
            due = one.outbox.only(r for r in regions if r not in lagging)
            if due.regions:
                lagging += (await self.deliver_pending(replace(one, outbox=due))).regions
        return lagging

    async def deliver_pending(self, pending: PendingOutbox) -> Outbox:
        """Send to the regions that miss it and acknowledge; the outbox is returned as it is then.

        An output that no queue takes is replaced by a tombstone, and named in the outbox with the
        reason; those after it follow. Never raises for a region or a store that is unavailable: the
        outbox then stays pending and the sweep finds it. A crash after sending and before
        acknowledging means that the same bytes are sent again.
        """
        try:
            loaded = await self.load_outputs(pending)
            if loaded is None:
                # Somebody else delivered it between the search and this read.
                return pending.outbox.without(pending.outbox.regions)
            sent = await self.delivery.deliver_possible(loaded)
            # Struck off after sending, with what was refused: the next delivery must not send
            # a message in whose place a tombstone went out.
            if sent.regions:
                await self.journal.acknowledge(pending, sent.regions, sent.refused)
        except (CallerError, Unavailable, OutcomeUnknown) as error:
            place = "a producer's" if pending.position is None else f"entry {pending.position}'s"
            log.warning("%s outbox in session %r stays pending: %s", place, pending.session, error)
            return pending.outbox
        return pending.outbox.without(sent.regions)

    async def load_outputs(self, pending: PendingOutbox) -> Outbox | None:
        """The outbox with its messages; None where somebody else has delivered it meanwhile.

        Raises OutcomeUnknown or Unavailable where the messages cannot be had.
        """
        outbox, position = pending.outbox, pending.position
        match outbox.location:
            case None:
                return outbox
            case Staged() as staged:
                batches = tuple(await self.journal.staged(pending.session, staged))
                if len(batches) != staged.documents:
                    # They are removed in the batch that records the last region. While the entry
                    # still names a region, somebody else removed them, and a person has to know.
                    entry = await self.journal.entry(pending.session, position or 0)
                    if entry is not None and entry.outbox.regions:
                        raise OutcomeUnknown(
                            f"staged outputs of session {pending.session!r} are gone"
                        )
                    return None
            case Rerun(digest):
                batches = await self.rerun_handler(pending.session, position or 0, digest)
        return replace(outbox, batches=batches, location=None)

    async def rerun_handler(
        self, session: str, position: int, digest: str
    ) -> tuple[DestinationBatch, ...]:
        """Outputs made again: the same handler on the state before, so the same bytes.

        Raises Unavailable where the handler fails now or gives others: some region may have the
        first ones, so the outbox stays pending until the handler gives them again.
        """
        entry = await self.journal.entry(session, position)
        if entry is None or entry.message is None:
            raise OutcomeUnknown(f"entry {position} of session {session!r} is gone")
        # State, output numbers and captured values are those of the first run: compaction keeps the
        # entries that hold them for as long as this outbox is pending.
        given = await self.input_of(entry)
        what = f"the outputs of entry {position} of session {session!r}"
        try:
            handler = self.worker.handlers.of(entry.message.type)
            result = run_pure(handler, given, entry.message)
        except Exception as error:
            raise Unavailable(f"{what} cannot be made again: {error}") from error
        # One region may have taken the first outputs. To send others under the same ids and numbers
        # to the second would make the regions disagree for ever.
        if digest_batches(result.batches) != digest:
            changed = f"the handler of {entry.message.type!r} was changed or is not deterministic"
            raise Unavailable(f"{what} come out otherwise than at first: {changed}")
        return address_batches(result, self.worker.policy.output_queue)

    async def input_of(self, entry: Entry) -> HandlerInput:
        """What the handler of an entry started from. Raises Unavailable or OutcomeUnknown."""
        if entry.position == 0:
            return HandlerInput(captured=entry.captured)
        head = await self.journal.entry(entry.session, entry.position - 1)
        # Compaction may have been faster than a worker that was asleep. Then the claim, or the
        # outbox, that this input was wanted for is gone as well.
        if head is None:
            raise OutcomeUnknown(f"the entry before {entry.position} was compacted")
        state = await self.worker.state_after(head)
        return HandlerInput(state, head.produced, entry.captured)

    async def send_unjournaled(self, session: str, outbox: Outbox) -> None:
        """Send what no entry holds; what a region misses is kept pending in the journal.

        Raises OutcomeUnknown when no region surely has it.
        """
        # A crash in between is repaired by the message itself: it is not settled yet, so it comes
        # again and its handler sends again.
        sent = await self.delivery.deliver_possible(outbox)
        await keep_missing(self.journal, session, outbox, sent.regions)


async def keep_missing(
    outboxes: Outboxes, session: str, outbox: Outbox, reached: Collection[str]
) -> Outbox:
    """Keep the outbox pending for the regions that were not reached; that outbox is returned.

    Raises OutcomeUnknown where no region was reached: nothing is kept then, so it has to be sent
    again. Raises what `Outboxes.add_pending` raises.
    """
    if not reached:
        raise OutcomeUnknown(f"no region surely took what was sent for session {session!r}")
    missing = outbox.without(reached)
    if missing.regions:
        await outboxes.add_pending(session, missing)
    return missing
