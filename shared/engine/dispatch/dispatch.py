"""Deliver outboxes: send what is pending in order, then strike off the regions that took it.

An entry comes between the two: `prepare` delivers what earlier ones left pending, and `append`
commits the entry and sends its own outputs.

Sending comes before striking off, so a crash in between repeats a send of the same bytes, which
receivers recognise by number. The other order would lose a copy. In each region the outputs of a
session keep the order of its journal: a region that misses one outbox gets none of the later ones.
Only what a queue does not take before a person changes something is left out, and comes late.

An outbox that takes long to send is written meanwhile, with how far it is: whoever goes on begins
there, and nobody else sends what was written less than a lag ago. A try has its time, as a function
has; what is left then the next message, the change feed and the sweep go on with.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from shared.domain.errors import CallerError, OutcomeUnknown, Unavailable
from shared.domain.handler import Dispatch, HandlerInput
from shared.domain.journal import Entry, lagging_regions
from shared.domain.message import Message
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import (
    EVERY_QUEUE,
    NO_OUTBOX,
    Delivered,
    DestinationBatch,
    Outbox,
    PendingOutbox,
    Rerun,
    Staged,
    sort_for_delivery,
)
from shared.domain.reports import shorten
from shared.engine.dispatch.acknowledge import Acknowledgements
from shared.engine.dispatch.deliver import Delivery, Recording
from shared.engine.handle.handle import require_known, run_pure
from shared.engine.handle.raised import describe_error
from shared.engine.worker import Worker
from shared.ports import WriteResult
from shared.storage.documents import digest_batches
from shared.storage.journal import Journal

# Older outboxes that a message delivers before its own; a region that misses more stays lagging.
CATCH_UP_MAX = 100
# The same for other regions than the worker's own, whose sweep delivers what they miss, and how
# long a message may take for it.
OTHERS_MAX = 4
OTHERS_SECONDS = 1.0
# How far a send is is written twice within the lag, but no more often than this.
RECORD_SECONDS_MIN = 1.0
# Where a pending outbox is stored, which tells it from every other.
place_of = attrgetter("session", "position", "key")


class OutputsLost(Exception):
    """The outputs of an entry cannot be had, and no repetition changes that."""


class Dispatcher:
    def __init__(
        self, worker: Worker, delivery: Delivery, acknowledgements: Acknowledgements
    ) -> None:
        self.worker = worker
        self.journal = worker.journal
        self.delivery = delivery
        self.acknowledgements = acknowledgements
        # The places of the outboxes that this worker is sending. They stay until it is recorded who
        # took them, as they are found pending until then.
        self.under_way: set[tuple[str, int | None, str]] = set()

    async def prepare(self, head: Entry | None, message: Message) -> EntryInput:
        """Return the input of the next entry; the outboxes of earlier ones are delivered first.

        Raises Unavailable.
        """
        # Any new entry hides its predecessor's outbox from those who read only the head, so it has
        # to say which regions still lag, whatever kind of entry it is.
        lagging = await self.catch_up(head)
        return EntryInput(head, message, self.worker.new_attempt(), lagging)

    async def append(
        self, head: Entry | None, entry: Entry, batches: tuple[DestinationBatch, ...] = ()
    ) -> Entry | None:
        """Commit the entry and send its outputs; None when another worker was first.

        The entry is returned as it is stored. Raises what `commit` raises.
        """
        if await self.worker.commit(head, entry) is not WriteResult.CREATED:
            return None
        # A crash here is harmless: the entry's outbox is pending. The redelivery of its message,
        # the session's next one, the change feed or the sweep sends the same bytes.
        return await self.send_outputs(entry, batches) if batches else entry

    async def send_outputs(self, entry: Entry, batches: tuple[DestinationBatch, ...]) -> Entry:
        """Send a new entry's outputs to the regions that miss nothing earlier.

        What every region took at once is acknowledged with the session's next entry, or soon after.
        Those of a type whose dispatch is asynchronous stay pending, as after a crash.
        The entry is returned as it is stored from now on, as far as is known. Raises nothing: what
        could not be sent stays pending, and the sweep finds it.
        """
        # A lagging region waits until earlier outboxes have reached it; catch_up or its own sweep
        # then sends this one in its turn.
        due = entry.outbox.only(r for r in entry.outbox.regions if r not in entry.lagging)
        handlers = [self.worker.handlers.by_type.get(one.type) for one in entry.identities]
        is_others = any(one and one.dispatch is Dispatch.ASYNCHRONOUS for one in handlers)
        if not due.regions or is_others:
            return entry
        pending = PendingOutbox(entry.session, entry.outbox, entry.position)
        self.under_way.add(place_of(pending))
        try:
            done = await self.deliver_in_time(pending, Outbox(batches, due.regions))
            left = entry.outbox.after(done)
            if left != entry.outbox:
                await self.acknowledgements.add(entry, done)
        except (CallerError, Unavailable, OutcomeUnknown) as error:
            self.worker.failure_log.add("sending an entry's outputs", "every region", error)
            # The entry is committed, so its message is processed whatever happened here. To raise
            # would abandon the delivery, whose copy would only find the entry.
            return entry
        finally:
            self.under_way.discard(place_of(pending))
        after = replace(entry, outbox=left)
        self.worker.remember_head(entry.session, after, is_ours=True)
        return after

    async def catch_up(self, head: Entry | None) -> tuple[str, ...]:
        """Deliver what earlier entries left pending, before anything follows them.

        The regions that still lag are returned. Raises Unavailable when that is every region: the
        next entry must not overtake everywhere.
        """
        if head is None:
            return ()
        # The stored head may name regions that have its outbox, which only this worker knows yet.
        left = self.worker.unrecorded_regions(head)
        if left is not None:
            head = replace(head, outbox=head.outbox.only(left))
        # The usual case ends here without a read. Each entry names the regions that lagged when it
        # was made, so the head answers for the whole journal before it.
        lagging = lagging_regions(head)
        if not lagging:
            return ()
        # A region that is paused costs its messages nothing: its own sweep delivers what it misses.
        reachable = [region for region in lagging if self.delivery.is_reachable(region)]
        waits = self.worker.policy.waits
        until = self.worker.clock.now() + waits.bound_seconds
        while reachable:
            if left is not None:
                await self.acknowledgements.record_session(head.session)
            own = self.worker.owner.region
            # With its own region out of reach, the session goes on by what another one takes.
            waited = own if own in reachable or own not in lagging else reachable[0]
            late = await self.deliver_earlier(head, reachable, waited)
            lagging = tuple(r for r in lagging if r not in reachable or r in late)
            is_over = self.worker.clock.now() >= until
            if set(lagging) != set(self.delivery.regions) or is_over:
                break
            if not await self.is_on_its_way(head):
                break
            # Waiting here spends no delivery of the message.
            await self.worker.clock.sleep(waits.poll_seconds)
        if set(lagging) == set(self.delivery.regions):
            # With every queue out of reach outboxes would pile up in the journal, one for every
            # message. The message stays in its queue instead, which is made for waiting.
            raise Unavailable(f"no region takes the outputs of session {head.session!r}")
        after = replace(head, outbox=NO_OUTBOX, lagging=lagging)
        self.worker.remember_head(head.session, after)
        return lagging

    async def deliver_earlier(
        self, head: Entry, regions: Sequence[str], own: str
    ) -> tuple[str, ...]:
        """Deliver outboxes up to the head's to regions within reach; the answer is who still lags.

        Only the worker's `own` region is waited for, and gets many, or what stands in for it while
        it is out of reach; another gets only a few.
        """
        limit = CATCH_UP_MAX if own in regions else OTHERS_MAX + 1
        pending = await self.journal.pending(head.session, regions, limit=limit)
        # Only entries have a place in the journal's order. A producer's copies carry numbers of
        # their own, so nothing has to wait for them; nor for what follows the head, if it is old.
        of_entries = [one for one in pending if is_up_to(head, one)]
        end_at = self.worker.clock.now() + self.worker.policy.waits.bound_seconds
        late = await self.deliver_in_order(of_entries, [r for r in regions if r == own], end_at)
        until = self.worker.clock.now() + OTHERS_SECONDS
        for region in (r for r in regions if r != own):
            missed = [one for one in of_entries if region in one.outbox.regions]
            if len(missed) > OTHERS_MAX:
                # Its own sweep delivers these. After a failure one shows whether it is back.
                missed = missed[:1] if self.delivery.has_failed(region) else []
                late += (region,)
            late += await self.deliver_in_order(missed, [region], until)
        if len(pending) == limit:
            # There may be more: a region that missed any of these lags until a search finds fewer.
            return tuple(r for r in regions if any(r in one.outbox.regions for one in pending))
        return late

    async def is_on_its_way(self, head: Entry) -> bool:
        """Return whether somebody sends the oldest outbox up to the head's, or has just done so."""
        regions = self.delivery.regions
        oldest = await self.journal.pending(head.session, regions, limit=1)
        left = [one for one in oldest if is_up_to(head, one)]
        return not left or any(self.is_being_sent(left[0], region) for region in regions)

    async def deliver_in_order(
        self,
        pending: Sequence[PendingOutbox],
        regions: Sequence[str],
        until: float | None = None,
    ) -> tuple[str, ...]:
        """Deliver a session's outboxes to these regions, in order; the answer is who still lags.

        A region that misses one outbox gets none of the later ones: order holds in each region. So
        does one that gets it just now from somebody else. Nothing is begun after `until`.
        """
        lagging: tuple[str, ...] = ()
        for one in sort_for_delivery(pending):
            if until is not None and self.worker.clock.now() >= until:
                return tuple(regions)
            lagging += tuple(r for r in regions if r not in lagging and self.is_being_sent(one, r))
            # `lagging` grows as regions fail, so nothing later is tried with them.
            due = one.outbox.only(r for r in regions if r not in lagging)
            if due.regions:
                left = await self.deliver_pending(replace(one, outbox=due), until)
                lagging += left.regions
        return lagging

    async def deliver_pending(
        self,
        pending: PendingOutbox,
        until: float | None = None,
        retried: tuple[str, str] | None = None,
    ) -> Outbox:
        """Send to the regions that miss it and acknowledge; the outbox is returned as it is then.

        An output that no queue takes is replaced by a tombstone, and named in the outbox with the
        reason; those after it follow. Never raises for a region or a store that is unavailable: the
        outbox then stays pending and the sweep finds it. A crash after sending and before
        acknowledging means that the same bytes are sent again. Nothing is begun after `until`.
        With `retried`, a region and a blocked queue of it, only these outputs are sent.
        """
        self.under_way.add(place_of(pending))
        try:
            return await self.send_and_record(pending, until, retried)
        finally:
            self.under_way.discard(place_of(pending))

    async def send_and_record(
        self,
        pending: PendingOutbox,
        until: float | None,
        retried: tuple[str, str] | None,
    ) -> Outbox:
        stored = pending.outbox
        outbox = stored.retrying(*retried) if retried else stored
        # What is staged is read first, which takes its own time.
        within = None if until is None else max(0.0, until - self.worker.clock.now())
        try:
            if stored.sent and retried is None:
                # It takes several tries, so several may want to go on: one of them does, from where
                # the last one came to.
                lag = self.worker.policy.lag_seconds
                now = await self.journal.begin_sending(pending, stored.regions, lag)
                if now is None:
                    return stored
                stored = outbox = now.outbox.only(stored.regions)
                pending = replace(now, outbox=stored)
            loaded = await self.load_outputs(replace(pending, outbox=outbox))
            if loaded is None:
                # Somebody else delivered it between the search and this read.
                return outbox.after(Delivered(outbox.regions))
            done = await self.deliver_in_time(pending, loaded, within)
        except OutputsLost as lost:
            # Nothing else waits for them: they are shown to people, and tried again by the sweep.
            self.worker.failure_log.add("making outputs again", "the journal", lost)
            reasons = {EVERY_QUEUE: shorten(str(lost))}
            done = Delivered(outbox.regions, blocked=dict.fromkeys(outbox.regions, reasons))
        except (CallerError, Unavailable, OutcomeUnknown) as error:
            return self.left_pending(pending, error)
        # Recorded after sending, with what was refused: the next delivery must not send a message
        # in whose place a tombstone went out, nor again what a queue took.
        left = stored.after(done)
        try:
            if left != stored:
                await self.journal.acknowledge(pending, done)
        except (CallerError, Unavailable, OutcomeUnknown) as error:
            return self.left_pending(pending, error)
        return left

    async def deliver_in_time(
        self, pending: PendingOutbox, loaded: Outbox, within: float | None = None
    ) -> Delivered:
        """Send for so long, or as long as an invocation has for others, and say how far it is.

        Raises what `Delivery.deliver_possible` raises.
        """

        async def write(done: Delivered) -> None:
            try:
                await self.journal.acknowledge(pending, done)
            except (CallerError, Unavailable, OutcomeUnknown) as error:
                self.left_pending(pending, error)

        policy = self.worker.policy
        within = policy.waits.bound_seconds if within is None else within
        # Where the entry holds the outputs itself, they are few batches, and each write is large.
        by_batch = pending.outbox.location is not None
        record = Recording(max(policy.lag_seconds / 2, RECORD_SECONDS_MIN), write, by_batch)
        return await self.delivery.deliver_possible(loaded, within, record)

    def is_being_sent(self, pending: PendingOutbox, region: str) -> bool:
        """Say whether somebody sends an outbox to a region: this worker, or one that wrote so."""
        if region not in pending.outbox.regions:
            return False
        is_here = place_of(pending) in self.under_way
        return is_here or pending.is_sent_elsewhere(region, self.worker.policy.lag_seconds)

    def left_pending(self, pending: PendingOutbox, error: Exception) -> Outbox:
        """The outbox as it is left to the sweep, and to the log."""
        regions = ", ".join(pending.outbox.regions)
        self.worker.failure_log.add("delivering a pending outbox", regions, error)
        return pending.outbox

    async def load_outputs(self, pending: PendingOutbox) -> Outbox | None:
        """The outbox with its messages; None where somebody else has delivered it meanwhile.

        Raises OutcomeUnknown or Unavailable where the messages cannot be had now, and OutputsLost
        where trying again cannot help.
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
                    if entry is not None and (entry.outbox.regions or entry.outbox.blocked):
                        raise OutputsLost(f"staged outputs of entry {position} are gone")
                    return None
            case Rerun(digest):
                batches = await self.rerun_handler(pending.session, position or 0, digest)
        return replace(outbox, batches=batches, location=None)

    async def rerun_handler(
        self, session: str, position: int, digest: str
    ) -> tuple[DestinationBatch, ...]:
        """Outputs made again: the same handler on the state before, so the same bytes.

        Raises OutputsLost where the handler fails now or gives others: some region may have the
        first ones, so they are sent only once the handler gives them again. Raises NewerState
        where they are those of newer code.
        """
        entry = await self.journal.entry(session, position)
        if entry is None or entry.message is None:
            raise OutcomeUnknown(f"entry {position} of session {session!r} is gone")
        # State, output numbers and captured values are those of the first run: compaction keeps the
        # entries that hold them for as long as this outbox is pending.
        given = await self.input_of(entry)
        what = f"the outputs of entry {position} of session {session!r}"
        handler = self.worker.handlers.by_type.get(entry.message.type)
        if handler is not None:
            # Newer code made them, and makes them again.
            require_known(handler.state, entry.model or given.model)
        try:
            handlers, seconds = self.worker.handlers, self.worker.policy.pure_seconds
            run = partial(run_pure, handlers.of(entry.message.type), given, entry.message)
            made = run(handlers.by_type, seconds).batches
            types = {message.type for batch in made for message in batch.messages}
            # Where an output went that names no queue depends on the handlers of that time: there
            # may have been none for its type yet, or there was one.
            for here in ((), types):
                if digest_batches(made) != digest:
                    made = run(here, seconds).batches
        except Exception as error:
            raise OutputsLost(f"{what} cannot be made again: {describe_error(error)}") from error
        # One region may have taken the first outputs. To send others under the same ids and numbers
        # to the second would make the regions disagree for ever.
        if digest_batches(made) != digest:
            changed = f"the handler of {entry.message.type!r} was changed or is not deterministic"
            raise OutputsLost(f"{what} come out otherwise than at first: {changed}")
        return made

    async def input_of(self, entry: Entry) -> HandlerInput:
        """Return the input of an entry's handler. Raises Unavailable or OutcomeUnknown."""
        if entry.position == 0:
            return HandlerInput(captured=entry.captured)
        head = await self.journal.entry(entry.session, entry.position - 1)
        # Compaction may have been faster than a worker that was asleep. Then the claim, or the
        # outbox, that this input was wanted for is gone as well.
        if head is None:
            raise OutcomeUnknown(f"the entry before {entry.position} was compacted")
        return replace(await self.worker.input_after(head), captured=entry.captured)


def is_up_to(head: Entry, pending: PendingOutbox) -> bool:
    """Say whether an outbox is that of a head, or of an entry before it."""
    return pending.position is not None and pending.position <= head.position


async def keep_missing(journal: Journal, session: str, outbox: Outbox, done: Delivered) -> Outbox:
    """Keep the outbox pending for what a delivery did not reach; that outbox is returned.

    Raises OutcomeUnknown where no region was reached: nothing is kept then, so it has to be sent
    again. Raises what `Journal.add_pending` raises.
    """
    if not done.regions:
        raise OutcomeUnknown(f"no region surely took what was sent for session {session!r}")
    missing = outbox.after(done)
    if missing.regions or missing.blocked:
        await journal.add_pending(session, missing)
    return missing
