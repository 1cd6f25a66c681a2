"""The way of one message through its session's journal: every read, write and send, in order.

Read this page first. A delivery is settled only after `Consumer.consume` has returned, so a crash
anywhere below means that the broker delivers the message again, and it finds what was done.

    take turns  Calls of one session that are in hand at once take turns, or share an entry.
    recognise   Is it a copy? A region that normally comes second looks for its entry first.
    decide      head and message -> decision, by the table in domain/decision.py.
    make way    What has to come before it comes first: outputs that a region still misses.
    run         The handler runs; one that calls the outside claims the session first (claim.py).
    stage       Outputs too large for an entry are written beside it.
    commit      ONE write creates the entry: state, deduplication and outbox at once.
    send        Its outputs go to every region that misses nothing earlier.
    drain       Messages that were parked because this one was missing are processed.

A message that came too early waits in its call, for as long as `WaitLimits` says (turns.py). Then
it is parked beside the journal until its turn has come (park.py), as is all else that cannot go on.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile

from shared.domain import next_entry
from shared.domain.decision import (
    Busy,
    Conflict,
    Duplicate,
    Ended,
    Fenced,
    Gap,
    Halted,
    Proceed,
    decide,
    explain_expiry,
    is_same_place,
)
from shared.domain.errors import (
    CallerError,
    InvalidMessage,
    NewerState,
    NotRecorded,
    NotStorable,
    Unavailable,
)
from shared.domain.handler import HandlerInput, Kind
from shared.domain.journal import ARRIVALS, Entry, MessageIdentity, Status
from shared.domain.message import Message, Number
from shared.domain.next_entry import EntryInput, state_position
from shared.domain.outbox import NO_OUTBOX, Outbox
from shared.domain.reports import TOMBSTONE_TYPE
from shared.engine.consume.claim import Claims
from shared.engine.consume.duplicates import Duplicates
from shared.engine.consume.fold import Folder
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Answered,
    Claimed,
    Conflicting,
    Expired,
    Failed,
    Faulted,
    NotYet,
    Outcome,
    Parked,
    PassedThrough,
    Processed,
    Refused,
    Reply,
    Waiting,
    compare_content,
    report_compacted,
    report_conflict,
)
from shared.engine.consume.park import Parking, is_other, level_of
from shared.engine.consume.turns import Call, Turns
from shared.engine.dispatch.dispatch import Dispatcher, keep_missing
from shared.engine.handle.handle import Ending, HandlerRunner
from shared.engine.handle.raised import describe_error, find_frames
from shared.engine.worker import NO_HEAD, StateCompacted, Worker
from shared.ports import DeadLetter, WriteResult

# A message whose turn does not come for so many rounds, each of which may be a race, waits outside.
ROUNDS_PER_RACE = 4
DEAD_LETTERED = "dead-lettered by the broker"
# The try of a message that was taken before and has not come to its end.
AGAIN = 2
# Evicted cursors that are read for a fold, side by side.
CURSORS_READ_MAX = 40


@dataclass(eq=False)
class Consumer:
    """Processes messages of any session, for one worker of one region."""

    worker: Worker
    dispatcher: Dispatcher
    runner: HandlerRunner
    claims: Claims
    duplicates: Duplicates
    parking: Parking
    folder: Folder

    def __post_init__(self) -> None:
        self.journal = self.worker.journal
        self.clock = self.worker.clock
        self.waits = self.worker.policy.waits
        self.turns = Turns(self.worker, self.leads)
        self.worker.memories += [self.duplicates.processed, self.duplicates.last_copies]

    async def consume(
        self,
        message: Message,
        arrival: int = 0,
        letter: DeadLetter | None = None,
        *,
        as_try: int = 0,
    ) -> Outcome:
        """Give the message its entry, or find that it has one, or park it.

        This is the one way in: for deliveries, with the broker's sequence number as `arrival`, for
        dead letters, and for whatever else is to take effect in a session. What was parked behind
        the message is drained before the answer. `as_try` says which try of the message this is,
        where an earlier one may have ended its worker: it runs under a claim then, whatever its
        kind, and so does what it drains, so that the next end of a worker is counted. It is 0 where
        nothing tells of an earlier one. Raises InvalidMessage for a message that can never
        be taken, Unavailable or OutcomeUnknown when the store did not help; then the message must
        stay in its queue. What the store refuses to one message of a session is raised for all that
        were waiting with it. Some of them may have their entries nevertheless; their copies find
        them.
        """
        if letter is not None:
            # Its handler may be what ended the workers until the broker gave up on it.
            as_try = AGAIN
        if message.number is None:
            # An idempotent handler may run any number of times, so nothing is read or written for
            # it. With a number it goes through the journal, for the sake of order, and so does one
            # that the journal may have cancelled, or whose tries have to be counted.
            kind = self.worker.handlers.kind_of(message.type)
            is_free = kind is Kind.IDEMPOTENT and not message.reminder
            if is_free and not as_try:
                return await self.pass_through(message)
            # Without a number a copy is recognised by its marker only, which the store removes
            # after the window. An older message may be a copy, so it is refused by name.
            window = self.worker.policy.window_seconds
            if not is_free and (reason := explain_expiry(message, self.clock.today(), window)):
                return Expired(reason)
        # Calls of one session that this worker has in hand at once take turns (turns.py).
        call = self.turns.join(message, arrival, letter, as_try)
        try:
            while taken := await self.turns.wait_for_turn(call):
                result: Outcome | NotYet | Exception
                try:
                    entry = await self.fold_calls(taken) if len(taken) > 1 else None
                    if entry is not None:
                        taken, result = taken[: len(entry.identities)], Processed(entry)
                    else:
                        # The first of its group: the others' turn is not before it has its entry.
                        # Waiting inside the invocation spends no delivery, but it has an end.
                        taken = taken[:1]
                        first = taken[0]
                        may_wait = self.clock.now() < first.give_up_at
                        result = await self.process(
                            first.message, first.letter, may_wait=may_wait, as_try=first.as_try
                        )
                    if isinstance(result, Processed) and result.entry.is_ended:
                        await self.parking.end_ledgers(result.entry)
                except Exception as error:
                    result = error
                self.turns.conclude(taken, result)
        finally:
            self.turns.leave(call)
        if call.result is None or isinstance(call.result, Exception):
            raise call.result or RuntimeError("the call has no result")
        return call.result

    async def ask(self, message: Message, seconds: float = 0.0) -> Reply:
        """Apply a message that carries no number at once, unless that was done before; its reply.

        The same message, by session, source and id, acts once and is given the same reply by
        every worker of every region, whatever time it carries. For so many seconds a reply is
        waited for that is still to come. Raises InvalidMessage for what can never be taken and
        NotRecorded for an idempotent handler's, of which nobody could know whether it acted;
        Unavailable or OutcomeUnknown: ask the same again.
        """
        if message.number is not None:
            raise InvalidMessage("what is asked carries no producer number")
        if self.worker.handlers.kind_of(message.type) is Kind.IDEMPOTENT:
            raise NotRecorded(
                f"the handler of {message.type!r} is idempotent and leaves no record to answer"
                " from: publish the message instead"
            )
        end_at = self.clock.now() + seconds
        is_careful = self.clock.now() < self.worker.careful_until
        outcome = await self.consume(message, as_try=int(is_careful))
        if isinstance(outcome, Processed | Faulted | Refused):
            # Several that were asked at once may share an entry, in which each has its own answer.
            name = (message.source, message.id)
            identities = outcome.entry.identities
            own = next((one for one in identities if (one.source, one.id) == name), None)
            return reply_in(outcome.entry, own)
        if isinstance(outcome, Conflicting):
            return outcome
        reply = await self.read_reply(message)
        while isinstance(reply, Waiting) and self.clock.now() < end_at:
            await self.clock.sleep(self.waits.poll_seconds)
            reply = await self.read_reply(message)
        if isinstance(outcome, Expired):
            # Its marker may be gone, but its entry may still be there.
            return reply or outcome
        if reply is None:
            raise Unavailable(f"session {message.session!r} cannot say what became of it", 1.0)
        return reply

    async def read_reply(self, message: Message) -> Reply | None:
        """Return the reply that is recorded for a message without a number; None for nothing.

        A tombstone that gave the message up is answered for in its place. Raises Unavailable.
        """
        marker = await self.journal.marker(message.session, message.id, message.source, newest=True)
        if marker is None:
            return None
        recorded = marker.identity
        # A tombstone has the place of the message itself: only we send these.
        if recorded.digest != message.digest and recorded.type != TOMBSTONE_TYPE:
            return report_conflict(message)
        if marker.position is None:
            return await self.read_published(message, recorded.number)
        stored = await self.journal.stored_entry(message.session, marker.position)
        # The marker of one that waits beside a claim names the claim, which answers another one.
        if stored is not None:
            own = next((one for one in stored.entry.identities if one == recorded), None)
            return reply_in(stored.entry, own) if own else Waiting()
        if await self.journal.parked(message.session, recorded.number):
            return Waiting()
        return report_compacted(message)

    async def read_published(self, message: Message, number: Number) -> Reply:
        """Return the reply that is recorded for a message whose key was published.

        Its answer is there, too. Raises Unavailable.
        """
        published, head = replace(message, number=number), await self.journal.head(message.session)
        if head is not None:
            head = await self.worker.with_cursors(head, [number.group])
        if head is None or not isinstance(decide(head, published), Duplicate):
            return Waiting()
        await self.duplicates.search(head, published)
        found = self.duplicates.processed.get((message.session, number))
        stored = await self.journal.stored_entry(message.session, found.position) if found else None
        if stored is None:
            return report_compacted(message)
        identities = stored.entry.identities
        own = next((one for one in identities if is_same_place(one.number, number)), None)
        return reply_in(stored.entry, own)

    async def pass_through(self, message: Message) -> PassedThrough:
        """Run an idempotent handler without a journal.

        Outputs are sent before the message is settled, and may be sent again with it. Raises
        OutcomeUnknown when no region surely has them.
        """
        outbox, passed = NO_OUTBOX, PassedThrough()
        try:
            handler = self.worker.handlers.of(message.type, message.session)
            result = await self.runner.run_outside(handler, HandlerInput(), message)
            if result.batches:
                outbox = Outbox(result.batches, self.runner.regions)
        except Exception as error:
            # There is no entry that could keep the message, so the error queue gets it whole.
            reason, raised_at = describe_error(error), find_frames(error)
            outbox = self.runner.address_fault(message, reason, raised_at)
            passed = PassedThrough(reason, raised_at)
        if outbox.regions:
            # A crash in between is repaired by the message itself: it is not settled yet, so it
            # comes again and its handler sends again.
            done = await self.dispatcher.delivery.deliver_possible(outbox)
            await keep_missing(self.journal, message.session, outbox, done)
        return passed

    async def process(  # noqa: C901, PLR0912 - flat: the steps of a message, in their order
        self,
        message: Message,
        letter: DeadLetter | None = None,
        *,
        may_wait: bool,
        as_try: int = 0,
    ) -> Outcome | NotYet:
        """One message by itself; NotYet, where the call may wait, if its turn has not come."""
        outcome: Outcome | NotYet | None
        # A head that this worker wrote is probably still the newest, so nothing is read.
        known = self.worker.heads.get(message.session, NO_HEAD)
        outcome, head = (None, known.entry) if known.is_ours else await self.recognise(message)
        # A round decides on a head that may be old, or on the newest whenever that was too old. It
        # has no outcome when another worker was first, or when the head may be too old to wait on.
        # Races are counted: whoever keeps losing them is parked, which runs no handler and so is
        # quicker, and then drained.
        races, rounds, is_fresh = 0, 0, False
        while outcome is None:
            if rounds == ROUNDS_PER_RACE * self.waits.races_max:
                raise Unavailable(f"other workers keep being first in {message.session!r}", 1.0)
            if rounds:
                head, is_fresh = await self.worker.read_head(message.session), True
            rounds += 1
            if head is not None and head.has_evicted and message.number is not None:
                # The entry names only the groups used last, so this one's cursor may lie beside it.
                head = await self.worker.with_cursors(head, [message.number.group])
            match decide(head, message):
                case Proceed() | Ended() if races < self.waits.races_max:
                    races += 1
                    made_from = await self.make_way(head, message)
                    if not isinstance(made_from, EntryInput):
                        outcome = made_from
                        continue
                    try:
                        entry = await self.give_entry(made_from, letter, as_try)
                    except NewerState:
                        # A deployment is under way. Newer code drains what is parked, with the
                        # session's next message or its sweep, and people see what stays so.
                        outcome = await self.parking.park(head, message)
                        continue
                    except StateCompacted:
                        # The other region took this session further, long ago.
                        if is_fresh:
                            raise
                        continue
                    # Not only the position may have been taken: the marker of an earlier copy
                    # refuses the batch too, and the same batch must not be tried for ever.
                    outcome = outcome_of(entry) or await self.parking.seen_before(message)
                case Duplicate(checked):
                    # True whatever was appended meanwhile, so an old head may say so.
                    outcome = await self.confirm_copy(head, message, checked=checked)
                case Conflict(digest):
                    outcome = report_conflict(message, digest)
                case Fenced(level):
                    outcome = await self.parking.refuse(head, message, level)
                case Proceed() | Ended() | Halted():
                    # No fresh head is read for this: on one that is too old, parking fails.
                    outcome = await self.parking.park(head, message)
                case (Gap() | Busy()) as obstacle if is_fresh:
                    # On a head that may be old nobody waits: it is read again first.
                    outcome = await self.wait(head, message, obstacle, may_wait=may_wait)
        # Draining comes before settling, on the way of copies too: if the worker that committed the
        # missing message died before it drained, the redelivery of that message drains here.
        if not isinstance(outcome, NotYet):
            await self.drain(message.session, as_try=as_try)
        return outcome

    async def recognise(self, message: Message) -> tuple[Outcome | None, Entry | None]:
        """The outcome of a copy, or the head to decide on first, which may be old."""
        session = message.session
        if not self.leads(session):
            # The region that leads the session expects new messages; the others expect copies of
            # what it has done, and search for those first: one read answers for many of them. The
            # leader appends, so a remembered head is probably too old, and a refused create costs
            # more than a read.
            copy = await self.find_copy(message)
            return copy, None if copy else await self.worker.read_head(session)
        head = self.worker.heads.get(session, NO_HEAD).entry
        is_first = message.number is not None and message.number.sequence == 0
        # The first number of a group usually begins a session, so nothing is read for it: if there
        # is a session after all, creating its first entry fails.
        if head is None and not is_first:
            # An older head will do: if it is too old, creating the next entry fails as well.
            head = await self.worker.read_head(session, newest=False)
        return None, head

    async def fold_calls(self, calls: Sequence[Call]) -> Entry | None:
        """One entry for the first of these calls; None where that is no use.

        Raises Unavailable or OutcomeUnknown.
        """
        first = calls[0].message
        # A region that does not lead mostly gets copies: there is nothing to commit for them.
        if not self.leads(first.session):
            return None
        known = self.worker.heads.get(first.session, NO_HEAD)
        head = known.entry if known.is_ours else (await self.recognise(first))[1]
        # Where messages are parked, `process` compares each new one with them, and lets some go on.
        if head is not None and head.parked:
            return None
        # What comes again is taken alone: if it ends the worker, the others are not to blame.
        messages = (call.message for call in takewhile(lambda one: not one.as_try, calls))
        fresh = [*takewhile(lambda one: self.duplicates.recall(one) is None, messages)]
        if not fresh:
            return None
        if head is not None and head.has_evicted:
            groups = [one.number.group for one in fresh[:CURSORS_READ_MAX] if one.number]
            head = await self.worker.with_cursors(head, groups)
        # A crash before the commit leaves nothing, and one after it leaves an entry that names
        # every message of the fold: all of them are redelivered and found processed.
        return await self.commit_fold(await self.dispatcher.prepare(head, first), fresh)

    async def make_way(self, head: Entry | None, message: Message) -> EntryInput | Outcome | None:
        """Return the input of the message's entry, once all that has to come before it is done.

        An outcome where it gets no entry; None to decide again.
        """
        made_from = EntryInput(head, message, self.worker.new_attempt())
        if head is None:
            return made_from
        if head.parked:
            # What lies parked under its number gives way, unless its producer fenced this one. It
            # is a copy of this message, or it came from a producer that has been fenced since;
            # other content of the same producer is a conflict. Its document is deleted in the batch
            # that creates the entry, so a crash leaves both or neither.
            parked = await self.worker.parked_under(head, message)
            if parked is not None:
                if level_of(parked) > level_of(message):
                    return await self.parking.refuse(head, message, level_of(parked))
                if is_other(parked, message):
                    return report_conflict(message)
                note = f"in place of the parked message {parked.id!r}"
                is_same = parked.digest == message.digest
                made_from = replace(made_from, from_parked=True, note=None if is_same else note)
        # In each region outputs keep the order of the journal: older ones are sent first. A region
        # that still misses some is named in the entry, and gets none of its outputs yet.
        if head.outbox.regions or head.lagging:
            # A copy has nothing to wait for, and whoever made the entry may be about to send.
            if message.number is None and (copy := await self.find_copy(message)) is not None:
                return copy
            made_from = replace(made_from, lagging=await self.dispatcher.catch_up(head))
        return made_from

    async def give_entry(
        self, made_from: EntryInput, letter: DeadLetter | None = None, as_try: int = 0
    ) -> Entry | None:
        """Run the message's handler and commit what came of it; None when others were first.

        Only here it is chosen by kind of handler, and by `as_try` (see `consume`). Raises
        Unavailable, NewerState or OutcomeUnknown.
        """
        message = made_from.message
        if made_from.head is not None and made_from.head.is_ended:
            return await self.parking.refuse_ended(made_from)
        handler = self.worker.handlers.by_type.get(message.type)
        cancelled = next_entry.explain_cancellation(made_from) if message.reminder else None
        is_unbound = letter is not None and letter.is_unbound
        # No exception tells that a handler has ended its worker. With a claim such an end is
        # counted, and after a few the message becomes a fault. Code of our own is never the cause.
        claims = handler is not None and (
            handler.kind is Kind.EFFECTFUL or (as_try > 0 and not handler.is_ours)
        )
        if claims and cancelled is None and not is_unbound:
            return await self.claims.process(made_from, as_try)
        # The handler runs before the position is won. Where another worker wins it, this result is
        # dropped and nothing was sent, so two workers may well run the same handler at once.
        head = made_from.head
        given = await self.worker.input_after(head)
        opened = next_entry.open_entry(made_from)
        if cancelled is not None:
            ending = Ending(next_entry.skip(opened, cancelled))
        elif letter is not None and is_unbound:
            ending = self.runner.fail(opened, CallerError(f"{DEAD_LETTERED}: {letter.reason}"))
        else:
            if handler is not None and given.model and given.model.version > handler.state.version:
                # Newer code was here first, as in a rolling deployment.
                self.claims.require_known(message, given)
            ending = await self.runner.run(opened, message, given)
        try:
            # A crash up to the commit changes nothing: the redelivery runs the handler again, and
            # documents that were staged under this attempt's id expire in the store.
            if ending.staged:
                await self.journal.stage(opened.session, opened.attempt.id, ending.staged)
            result = await self.worker.commit(head, ending.entry)
        except NotStorable as error:
            # What the handler made never fits, so trying again is no use: the message becomes a
            # fault with that reason, and nothing of the handler's result is kept.
            ending = self.runner.fail(opened, error)
            result = await self.worker.commit(head, ending.entry)
        if result is not WriteResult.CREATED:
            return None
        # A crash here is harmless: the entry's outbox is pending. The redelivery of this message,
        # the session's next one, the change feed or the sweep sends the same bytes.
        if not ending.batches:
            return ending.entry
        return await self.dispatcher.send_outputs(ending.entry, ending.batches)

    async def confirm_copy(
        self, head: Entry | None, message: Message, *, checked: bool
    ) -> Outcome | None:
        """A copy of a processed message, or another message with its number."""
        if head is None:
            return None
        if not checked:
            # An older entry processed the number. Whether it had the same content only that entry
            # says; once it is compacted, every copy counts as the same.
            digest = self.duplicates.recall(message)
            if digest is None:
                digest = await self.duplicates.search(head, message)
            return AlreadyDone() if digest is None else compare_content(message, digest)
        # The newest entry is this message's own: an earlier delivery in this region may have died
        # between commit and send. An entry of the other region is left to that region's sweep,
        # because its worker may be about to send.
        if head.attempt.owner.region == self.worker.owner.region:
            try:
                await self.dispatcher.catch_up(head)
            except Unavailable as error:
                self.worker.failure_log.add("sending again for a copy", "every region", error)
        return AlreadyDone()

    async def wait(
        self, head: Entry | None, message: Message, obstacle: Gap | Busy, *, may_wait: bool
    ) -> Outcome | NotYet | None:
        """Let the call wait for what comes first (NotYet), take over, or park the message.

        None to look again at once. Where others of its group are parked, somebody has waited in
        vain: of many messages behind one gap only the first waits.
        """
        group = message.number.group if message.number else ARRIVALS
        others_wait = head is not None and bool(head.parked.get(group))
        if isinstance(obstacle, Gap):
            if message.number is not None and may_wait and not others_wait:
                return NotYet()
            # Parked and then settled: its queue must not hold what only a later message can free,
            # or deliveries of it would be counted until the broker dead-letters it.
            return await self.parking.park(head, message)
        claim = await self.journal.stored_entry(message.session, obstacle.at)
        if claim is None or claim.entry.status is not Status.WORKING:
            return None
        if self.claims.is_left(claim):
            # Left to newer code where only that can run the message.
            with suppress(NewerState):
                entry = await self.claims.take_over(claim)
                return outcome_of(entry) if obstacle.same else None
        if may_wait and (obstacle.same or not others_wait):
            return NotYet()
        # The claim holds its own message whole, so a copy may go; any other waits beside it.
        outcome = Claimed() if obstacle.same else await self.parking.park_beside(claim, message)
        # What cannot wait beside the claim waits in its invocation.
        return NotYet() if outcome is None and may_wait else outcome

    async def find_copy(self, message: Message) -> Outcome | None:
        """Return the outcome of a copy, found without its session's head; None for no copy."""
        # One read as a rule, and an old one will do: that a number was processed stays true. A copy
        # that is missed here costs time only, because `decide` finds it on the newest head.
        digest = self.duplicates.recall(message) or await self.duplicates.look(message)
        if digest is None:
            return None
        kind = self.worker.handlers.kind_of(message.type)
        if message.number is None and kind is Kind.EFFECTFUL:
            # A claim has its marker from the beginning: is the message done, or only claimed? If
            # it is claimed, this copy has to wait for the owner, or take over from it.
            head = await self.worker.read_head(message.session)
            if head is not None and decide(head, message) == Busy(head.position, same=True):
                return None
        return compare_content(message, digest)

    def leads(self, session: str) -> bool:
        """Return whether this worker's messages are probably the first copies."""
        if self.worker.heads.get(session, NO_HEAD).is_ours:
            return True
        return self.dispatcher.delivery.preferred_region(session) == self.worker.owner.region

    async def drain(self, session: str, end_at: float | None = None, *, as_try: int = 0) -> None:
        """Process what was parked behind the remembered head; stops at a fault or a gap.

        It also stops where other workers keep being first, or the rest is newer code's, and begins
        nothing after `end_at`, which comes soon unless it is given. What is left is the next
        message's, or the sweep's.
        """
        # The entry that takes parked messages deletes their documents and lowers their count in the
        # same batch. So a crash leaves the rest parked and counted, and the next message of the
        # session, the redelivery or the sweep goes on from there.
        if end_at is None:
            end_at = self.clock.now() + self.waits.bound_seconds
        head, lost = self.worker.heads.get(session, NO_HEAD).entry, 0
        while head is not None and head.parked and lost < self.waits.races_max:
            if head.halt is not None or head.status is Status.WORKING:
                return
            found = await self.parking.next_parked(head)
            if found is None:
                return
            head, messages = found
            if self.clock.now() >= end_at:
                self.worker.undrained[session] = None
                return
            try:
                if await self.process_parked(head, messages, as_try) is None:
                    # Another worker was first, so it drains, too: trust nothing it remembers.
                    self.worker.remember_head(session, None)
                    lost += 1
            except NewerState:
                return
            known = self.worker.heads.get(session, NO_HEAD)
            head = known.entry if known.is_ours else await self.worker.read_head(session)

    async def process_parked(
        self, head: Entry, messages: Sequence[Message], as_try: int
    ) -> Entry | None:
        """One entry for parked messages: as many as fold, or else the first alone.

        None when another worker was first.
        """
        # As for a delivered message: the outputs of earlier entries go first.
        made_from = replace(await self.dispatcher.prepare(head, messages[0]), from_parked=True)
        if len(messages) > 1 and not as_try:
            entry = await self.commit_fold(made_from, messages)
            if entry is not None or head.session not in self.worker.heads:
                return entry
        match decide(head, messages[0], from_parked=True):
            case Proceed() | Ended():
                return await self.give_entry(made_from, as_try=as_try)
            case Fenced(level):
                return await self.parking.commit_refusal(made_from, level)
            case _:
                return None

    async def commit_fold(self, made_from: EntryInput, messages: Sequence[Message]) -> Entry | None:
        """One entry for the first of these messages, with its outputs sent.

        None where that is no use, or when another worker was first: then the head is not trusted.
        """
        head = made_from.head
        try:
            given = await self.worker.input_after(head)
        except StateCompacted:
            return None
        entry = self.folder.fold(made_from, messages, given)
        if entry is None:
            return None
        try:
            stored = await self.dispatcher.append(head, entry, entry.outbox.batches)
        except NotStorable:
            return None
        if stored is None:
            self.worker.remember_head(entry.session, None)
            if head is None:
                # There is a session after all: a read costs less than running and being refused.
                await self.worker.read_head(entry.session)
        return stored


def reply_in(entry: Entry, own: MessageIdentity | None) -> Reply:
    """Return the reply that an entry is to one of its messages, by the identity it has there."""
    match entry.status:
        case Status.COMPLETED:
            answer = entry.answer or (own.answer if own else None)
            return Answered(entry.position, state_position(entry), answer or None)
        case Status.FAULTED | Status.SKIPPED:
            is_halting = entry.halt is not None and entry.halt.at == entry.position
            return Failed(entry.reason or "refused", entry.position, is_halting)
        case Status.PARKED | Status.WORKING:
            return Waiting()


def outcome_of(entry: Entry | None) -> Outcome | None:
    """Return the outcome that an entry means for its message, None for no entry."""
    if entry is None:
        return None
    match entry.status:
        case Status.COMPLETED:
            return Processed(entry)
        case Status.FAULTED:
            return Faulted(entry)
        case Status.SKIPPED:
            return Refused(entry)
        case Status.PARKED:
            return Parked()
        case Status.WORKING:
            return Claimed()
