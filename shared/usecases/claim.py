"""Effectful handlers: claim the session, run, and end the claim only if it is still held.

The lease is counted by the store's clock from the owner's last write of the claim. An owner that
was too slow finds another attempt in its place: its result is refused and its outputs are never
sent.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from shared.domain import entries
from shared.domain.arrival import number_in
from shared.domain.batch import Appended, Carried, Waiting
from shared.domain.entries import Step
from shared.domain.errors import OutcomeUnknown, TooLarge, Unavailable
from shared.domain.handling import Kind
from shared.domain.journal import Entry, Lease, Status
from shared.domain.message import Message
from shared.domain.running import Before
from shared.ports import Held
from shared.usecases.process import Ending, Processor, message_in

# A claim is renewed this many times within its lease, so that a late answer does not lose it.
RENEWALS_PER_LEASE = 3


class Claims:
    """One worker's claims."""

    def __init__(self, processor: Processor, *, lease_seconds: float) -> None:
        self.processor = processor
        self.committer = processor.committer
        self.store = processor.committer.store
        self.clock = processor.committer.clock
        self.lease_seconds = lease_seconds

    async def perform(self, step: Step) -> Entry | None:
        """Process as the handler's kind needs: the entry, or None when others were first."""
        if self.processor.handlers.kind_of(step.message.type) is Kind.EFFECTFUL:
            return await self.process(step)
        return await self.processor.process(step)

    async def process(self, step: Step) -> Entry | None:
        """Claim, run, end: the entry, or None when another worker was first or took over."""
        # Read first: a claim that cannot be worked on would only keep others waiting.
        before = await self.processor.before(step.head)
        claim = entries.claimed(entries.opened(step), Lease(self.lease_seconds))
        if await self.processor.append(step.head, claim) is not Appended.CREATED:
            return None
        return await self.work(claim, before)

    async def take_over(self, held: Held) -> Entry | None:
        """Do a dead owner's work; None when another worker was first.

        A message that killed its owners as often as its type allows becomes a fault.
        """
        before = await self.processor.outputs.before(held.entry)
        claim = entries.taken_over(held.entry, self.committer.new_attempt())
        if not await self.replaced(claim, held.version):
            return None
        handler = self.processor.handlers.by_type.get(message_in(claim).type)
        if claim.lease and handler and claim.lease.tries > handler.attempts:
            lost = RuntimeError(f"its owner was lost {claim.lease.tries - 1} times")
            return await self.end(claim, self.processor.fault(claim, message_in(claim), lost))
        return await self.work(claim, before)

    async def work(self, claim: Entry, before: Before) -> Entry | None:
        """Run the handler while the claim is renewed, and end the claim."""
        async with self.renewed(claim):
            ending = await self.processor.ending(claim, before)
        try:
            return await self.end(claim, ending)
        except TooLarge as error:
            fault = self.processor.fault(claim, message_in(claim), error)
            return await self.end(claim, fault)

    async def end(self, claim: Entry, ending: Ending) -> Entry | None:
        """Replace the claim by what came of it; None when this attempt no longer holds it.

        The handler has run, so a store that does not help is asked again before Unavailable or
        OutcomeUnknown is raised: then the message is taken over after the lease, and runs again.
        """
        failed = 0
        while True:
            try:
                appended, ended = await self.try_to_end(claim, ending)
            except (Unavailable, OutcomeUnknown):
                failed += 1
                if failed >= self.committer.patience.unknown_tries:
                    raise
                await self.clock.sleep(self.committer.patience.poll_seconds * failed)
                continue
            if appended is Appended.CREATED:
                return await self.ended(ended)
            if appended is Appended.ORPHANED:
                return None

    async def try_to_end(self, claim: Entry, ending: Ending) -> tuple[Appended, Ending]:
        """Replace the claim once: TAKEN if it was written meanwhile, ORPHANED if it is lost."""
        held = await self.store.held(claim.session, claim.position)
        if held is None or held.entry.attempt != claim.attempt:
            return Appended.ORPHANED, ending
        if held.entry.status is not Status.WORKING:
            return Appended.CREATED, replace(ending, entry=held.entry)
        # Others may have parked messages beside the claim; only it knows how many.
        final = entries.with_parked(ending.entry, held.entry.parked)
        appended = await self.store.replace(final, held.version)
        return appended, replace(ending, entry=final)

    async def ended(self, ending: Ending) -> Entry:
        """Remember and dispatch the entry that a claim became."""
        self.committer.heads.learn(ending.entry.session, ending.entry, is_ours=True)
        return await self.processor.dispatched(ending)

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
            with suppress(Unavailable, OutcomeUnknown):
                held = await self.store.held(claim.session, claim.position)
                if held is None or held.entry.attempt != claim.attempt:
                    return
                await self.store.replace(entries.renewed(held.entry), held.version)

    async def park_beside(self, held: Held, message: Message) -> Appended:
        """Let a message wait for somebody else's claim.

        TAKEN means that the claim was written meanwhile. Raises OutcomeUnknown.
        """
        number = number_in(held.entry, message)
        waiting = Waiting(message, entries.cover_as(message, number))
        claim = entries.parked_beside(entries.left_as_it_was(held.entry, held.since), number)
        carried = Carried(marker_seconds=self.processor.marker_seconds)
        return await self.store.replace(claim, held.version, carried, waiting)

    async def replaced(self, claim: Entry, version: str) -> bool:
        """Whether the claim is now this attempt's, whatever the store answered."""
        try:
            return await self.store.replace(claim, version) is Appended.CREATED
        except OutcomeUnknown:
            held = await self.store.held(claim.session, claim.position)
            return held is not None and held.entry.attempt == claim.attempt
