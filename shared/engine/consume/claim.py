"""Claim the session, run the handler, and end the claim only if it is still held.

So effectful handlers run always, and the others where an earlier try may have ended its worker.

The claim is the session's next entry, in status working. While it is the newest entry nobody can
append, so no two handlers of a session run at once as long as leases are kept. The lease is counted
by the store's clock from the owner's last write of the claim. An owner that was too slow finds
another attempt in its place: its result is refused and its outputs are never sent. Its effect
outside has happened all the same, which is why such effects are at-least-once.

What no exception tells (an exit, a crash, a lack of memory) the claim tells: its owner is gone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace

from shared.domain import next_entry
from shared.domain.errors import CallerError, NewerState, NotStorable, OutcomeUnknown, Unavailable
from shared.domain.handler import Handler, HandlerInput, HandlerResult, Kind
from shared.domain.journal import Entry, Lease, Status
from shared.domain.measures import TAKEOVERS
from shared.domain.message import Message
from shared.domain.next_entry import EntryInput
from shared.domain.steps import StepError, without_results
from shared.engine.consume.steps import ClaimLost, ClaimSteps, change_claim, explain_change
from shared.engine.dispatch.dispatch import Dispatcher
from shared.engine.handle.handle import (
    RETRY_SECONDS,
    Ending,
    HandlerRunner,
    message_in,
    require_known,
)
from shared.engine.handle.limit import TookTooLong
from shared.engine.handle.raised import HandlerFailed
from shared.engine.worker import Worker
from shared.ports import StoredEntry, WriteResult

log = logging.getLogger("lockstep.claim")

# A claim is renewed this many times within its lease, so that a late answer does not lose it.
RENEWALS_PER_LEASE = 3
# So many workers may end under the handler of a message before it is a fault, or more where its
# type allows more attempts.
DEATHS_MAX = 3
# What surely died of itself under a pure handler, which runs alone, was not that of another. A host
# bears two deaths of its workers within half an hour, so a third try is not worth it.
PURE_DEATHS_MAX = 2
# What no other try of the handler would change.
FINAL = (CallerError, StepError)
PURE_KINDS = (Kind.PURE, Kind.DETERMINISTIC)
# The beginning of the reason of a message that ended them.
WORKER_ENDED = "the worker that ran its handler ended"
# For so long a handler that calls the outside runs alone, where it may be what ended its worker.
ALONE_SECONDS = 1.0


class Claims:
    def __init__(self, worker: Worker, dispatcher: Dispatcher, runner: HandlerRunner) -> None:
        self.worker = worker
        self.journal = worker.journal
        self.clock = worker.clock
        self.dispatcher = dispatcher
        self.runner = runner
        self.lease_seconds = worker.policy.lease_seconds
        self.turn = asyncio.Lock()

    @asynccontextmanager
    async def alone(self, message: Message) -> AsyncIterator[None]:
        """Let a message that may have ended a worker have its turn alone among such ones.

        They all come again at once. Side by side, the bad one would end every worker before the
        good ones have come to their end, and all would be counted alike. A call to the outside may
        take long, so after a moment others go on beside it.
        """
        await self.turn.acquire()
        held = [self.turn]

        def let_go() -> None:
            if held:
                held.pop().release()

        is_pure = self.worker.handlers.kind_of(message.type) in PURE_KINDS
        loop = asyncio.get_running_loop()
        timer = None if is_pure else loop.call_later(ALONE_SECONDS, let_go)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            let_go()

    def is_left(self, claim: StoredEntry) -> bool:
        """Say whether nobody works on a claim any more, so that it may be taken over."""
        # An owner that has not written for a whole lease is dead, or too slow. If it wakes up, its
        # version of the claim is out of date, so it can end nothing.
        if claim.is_expired:
            return True
        # The worker that this host had before is dead for certain: nobody waits for its leases.
        is_held = claim.entry.status is Status.WORKING
        return is_held and self.worker.owner.succeeds(claim.entry.attempt.owner)

    async def process(self, made_from: EntryInput, as_try: int = 0) -> Entry | None:
        """Claim, run, end: the entry, or None when another worker was first or took over.

        `as_try` is the try that the claim counts for what ran without a claim before. Raises
        Unavailable or OutcomeUnknown; a claim that is left over is taken over later.
        """
        head, message = made_from.head, made_from.message
        # The state is read before the claim is written: a claim whose handler cannot start would
        # only keep others waiting until its lease runs out.
        given = await self.worker.input_after(head)
        self.require_known(made_from.message, given)
        opened = next_entry.open_entry(made_from)
        # An effectful one has a claim from its first try on, so nothing of it has run yet.
        is_first = self.worker.handlers.kind_of(message.type) is Kind.EFFECTFUL or as_try <= 1
        claim = next_entry.make_claim(opened, Lease(self.lease_seconds, 1 if is_first else as_try))
        async with nullcontext() if is_first else self.alone(message):
            # From here on the claim holds the whole message. If this process dies, the message may
            # even be settled: another copy, the next message or the sweep takes the claim over.
            if await self.worker.commit(head, claim) is not WriteResult.CREATED:
                return None
            return await self.work(claim, given)

    async def take_over(self, stored: StoredEntry) -> Entry | None:
        """Do a dead owner's work; None when another worker was first.

        A message that ended as many workers as its kind allows becomes a fault.
        """
        async with self.alone(message_in(stored.entry)):
            return await self.take_over_in_turn(stored)

    async def take_over_in_turn(self, stored: StoredEntry) -> Entry | None:
        """Take a claim over when its turn has come; see `take_over`."""
        # The entry before the claim is still the one the first owner started from, so a second run
        # gets the same input, and Context.new_id the same ids for the outside to recognise.
        given = await self.dispatcher.input_of(stored.entry)
        self.require_known(message_in(stored.entry), given)
        attempt = self.worker.new_attempt()
        claim = next_entry.take_over_claim(stored.entry, attempt)
        try:
            # Of several that see the lease run out, the version lets one win. It also refuses a
            # takeover when the owner has renewed its lease in the meantime.
            is_ours = await self.journal.replace(claim, stored.version) is WriteResult.CREATED
        except OutcomeUnknown:
            # No answer came, so read whose claim it is now: the attempt's id is unique.
            now = await self.journal.stored_entry(claim.session, claim.position)
            is_ours = now is not None and now.entry.attempt == attempt
        if not is_ours:
            return None
        handler = self.worker.handlers.by_type.get(message_in(claim).type)
        is_certain = self.worker.owner.succeeds(stored.entry.attempt.owner)
        deaths = deaths_max(handler, is_certain=is_certain) if handler else 0
        if claim.lease and handler and claim.lease.tries > deaths:
            # A message that kills its process (by memory, by a crash in native code) would go round
            # for ever. No exception ever reaches us for it, so lost owners are counted as tries.
            lost = RuntimeError(f"{WORKER_ENDED}, in try {claim.lease.tries - 1}")
            return await self.end(claim, self.runner.fail(claim, lost))
        if self.worker.telemetry is not None:
            self.worker.telemetry.add(TAKEOVERS)
        traceparent = message_in(claim).traceparent
        with self.worker.span("take over", traceparent, session=claim.session):
            return await self.work(claim, given)

    def require_known(self, message: Message, given: HandlerInput) -> None:
        """Raise NewerState for a state of a newer version than this app knows.

        Nothing is written then: no fault, and no claim that would only keep others waiting.
        """
        handler = self.worker.handlers.by_type.get(message.type)
        try:
            if handler is not None:
                require_known(handler.state, given.model)
        except NewerState:
            # A head that stays remembered would hide that newer code has taken the message.
            self.worker.remember_head(message.session, None)
            raise

    async def work(self, claim: Entry, given: HandlerInput) -> Entry | None:
        """Run the handler while the claim is renewed, and end the claim.

        None when it was lost, or when it is left to whoever takes it over.
        """
        async with self.renewed(claim):
            ending = await self.run(claim, given)
            if ending is None:
                return None
            try:
                # Staging may take a while, so the lease is still renewed.
                if ending.staged:
                    await self.journal.stage(claim.session, claim.attempt.id, ending.staged)
            except NotStorable as error:
                ending = self.runner.fail(claim, error)
        # Renewal has stopped before the claim is ended: two writes of one worker at the same
        # document would refuse each other by its version.
        try:
            return await self.end(claim, ending)
        except NotStorable as error:
            return await self.end(claim, self.runner.fail(claim, error))

    async def run(self, claim: Entry, given: HandlerInput) -> Ending | None:
        """Run the handler until it succeeds or its attempts are spent, over all owners together.

        None when the claim was lost, or no more tries fit into this invocation.
        """
        message = message_in(claim)
        kind = self.worker.handlers.kind_of(message.type)
        # Another version of the application may have claimed the session.
        if kind is not Kind.EFFECTFUL and not claim.steps:
            return await self.runner.run(claim, message, given)
        try:
            handler = self.worker.handlers.of(message.type, message.session)
            if kind is not Kind.EFFECTFUL:
                raise explain_change(claim.steps)
        except FINAL as error:
            return self.runner.fail(claim, error)
        began, counted = asyncio.get_running_loop().time(), claim
        while True:
            tries = counted.lease.tries if counted.lease else handler.attempts
            try:
                result = await self.run_once(counted, handler, given, began)
                return self.runner.complete(claim, handler.kind, result)
            except Exception as error:
                is_over = isinstance(error, FINAL) or tries >= handler.attempts
                if is_over and not isinstance(error, ClaimLost):
                    return self.runner.fail(claim, error)
                ran_for = asyncio.get_running_loop().time() - began
                is_late = ran_for >= self.worker.policy.handler_seconds
                if is_late or isinstance(error, TookTooLong | ClaimLost):
                    # The invocation has to end before the host ends it, and this worker with it.
                    why = error.name if isinstance(error, HandlerFailed) else type(error).__name__
                    log.warning("%r is run again after its lease: %s", message.id, why)
                    return None
            found = await self.count_try(claim, tries + 1)
            if found is None:
                return None
            counted = found
            await self.clock.sleep(RETRY_SECONDS * tries)

    async def run_once(
        self, claim: Entry, handler: Handler, given: HandlerInput, began: float
    ) -> HandlerResult:
        """Run the handler once, and have its steps kept in the claim.

        Raises ClaimLost, StepUnknown and StepsChanged, whatever the handler made of them, and what
        the run itself raises.
        """
        steps = ClaimSteps(self.worker, claim, self.runner.threads)
        until = began + self.worker.policy.handler_seconds
        await steps.read_results()
        try:
            result = await self.runner.run_once(handler, given, message_in(claim), steps)
        except Exception:
            await steps.close(until - asyncio.get_running_loop().time())
            raise
        await steps.close(until - asyncio.get_running_loop().time())
        steps.require_all_known()
        return result

    async def count_try(self, claim: Entry, tries: int) -> Entry | None:
        """Write the number of the next try into the claim, before that try; None if it is lost.

        Otherwise a message could be tried as often again by each worker that takes it over. Raises
        Unavailable or OutcomeUnknown; then whoever takes the claim over counts the try.
        """
        return await change_claim(
            self.journal, claim, lambda stored: next_entry.count_try(stored, tries)
        )

    async def end(self, claim: Entry, ending: Ending) -> Entry | None:
        """Replace the claim by what came of it; None when this attempt no longer holds it.

        The handler has run, so a store that does not help is asked again before Unavailable or
        OutcomeUnknown is raised: then the message is taken over after the lease, and runs again.
        """
        # TAKEN comes round again without being counted: somebody parked a message beside the claim,
        # or renewing it was on its way. Each such write is somebody's progress.
        failed, began = 0, self.clock.now()
        while True:
            try:
                result, entry = await self.try_to_end(claim, ending)
            except (Unavailable, OutcomeUnknown):
                failed += 1
                if failed >= self.worker.policy.waits.unknown_tries:
                    raise
                await self.clock.sleep(self.worker.policy.waits.poll_seconds * failed)
                continue
            if result is WriteResult.CREATED:
                # As after any commit: a crash here leaves the outbox pending in the journal.
                self.worker.remember_head(entry.session, entry, is_ours=True)
                if self.worker.telemetry is not None:
                    self.worker.telemetry.commit(entry, self.clock.now() - began)
                return await self.dispatcher.send_outputs(entry, ending.batches)
            if result is WriteResult.ORPHANED:
                return None

    async def try_to_end(self, claim: Entry, ending: Ending) -> tuple[WriteResult, Entry]:
        """Replace the claim once: TAKEN if it was written meanwhile, ORPHANED if it is lost."""
        # Read first, because renewals and parked messages have changed the version.
        stored = await self.journal.stored_entry(claim.session, claim.position)
        if stored is None or stored.entry.attempt != claim.attempt:
            # Another attempt took over. Its result will stand, this one is dropped.
            return WriteResult.ORPHANED, ending.entry
        if stored.entry.status is not Status.WORKING:
            # An earlier try had no answer, but it did end the claim.
            return WriteResult.CREATED, stored.entry
        # Others may have parked messages beside the claim. Only the stored claim knows how many,
        # and an entry that forgot them would leave them parked for ever. It knows the steps, too.
        steps = stored.entry.steps
        if ending.entry.status is Status.COMPLETED:
            steps = without_results(steps)
        final = replace(ending.entry, parked=stored.entry.parked, steps=steps)
        return await self.journal.replace(final, stored.version), final

    @asynccontextmanager
    async def renewed(self, claim: Entry) -> AsyncIterator[None]:
        """Keep the lease from running out, as long as this process lives."""
        renewing = asyncio.create_task(self.renew(claim))
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def renew(self, claim: Entry) -> None:
        """Write the claim again before its lease runs out; ends when it is another's."""
        while True:
            await self.clock.sleep(self.lease_seconds / RENEWALS_PER_LEASE)
            try:
                stored = await self.journal.stored_entry(claim.session, claim.position)
                if stored is None or stored.entry.attempt != claim.attempt:
                    return
                lease = stored.entry.lease and replace(stored.entry.lease, since=None)
                await self.journal.replace(replace(stored.entry, lease=lease), stored.version)
            except (Unavailable, OutcomeUnknown) as error:
                # The next renewal may succeed in time. If none does, ending the claim says so.
                self.worker.failure_log.add("renewing a claim", "the journal", error)


def deaths_max(handler: Handler, *, is_certain: bool) -> int:
    """Return how many workers may end under the handler of a message before it is a fault.

    It `is_certain` where a worker ended and its host did not: no stop of a host and no loss of a
    machine was the cause.
    """
    if is_certain and handler.kind in PURE_KINDS:
        return PURE_DEATHS_MAX
    return max(handler.attempts, DEATHS_MAX)
