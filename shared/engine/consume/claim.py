"""Effectful handlers: claim the session, run, and end the claim only if it is still held.

The lease is counted by the store's clock from the owner's last write of the claim. An owner that
was too slow finds another attempt in its place: its result is refused and its outputs are never
sent.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from shared.domain import next_entry
from shared.domain.errors import OutcomeUnknown, TooLarge, Unavailable
from shared.domain.handler import HandlerInput
from shared.domain.journal import Entry, Lease, Status
from shared.domain.next_entry import EntryInput
from shared.engine.commit.commit import Committer
from shared.engine.dispatch.dispatch import Dispatcher
from shared.engine.handle.handle import Ending, HandlerRunner, message_in
from shared.engine.worker import Worker
from shared.ports import StoredEntry, WriteResult

# A claim is renewed this many times within its lease, so that a late answer does not lose it.
RENEWALS_PER_LEASE = 3


class Claims:
    """One worker's claims."""

    def __init__(
        self, worker: Worker, committer: Committer, dispatcher: Dispatcher, runner: HandlerRunner
    ) -> None:
        self.worker = worker
        self.journal = worker.journal
        self.clock = worker.clock
        self.committer = committer
        self.dispatcher = dispatcher
        self.runner = runner
        self.lease_seconds = worker.policy.lease_seconds

    async def process(self, made_from: EntryInput) -> Entry | None:
        """Claim, run, end: the entry, or None when another worker was first or took over.

        Raises Unavailable or OutcomeUnknown; a claim that stays behind is taken over later.
        """
        head = made_from.head
        # Read first: a claim that cannot be worked on would only keep others waiting.
        state = await self.worker.state_after(head)
        given = HandlerInput(state, head.produced if head else {})
        opened = next_entry.open_entry(made_from)
        claim = next_entry.make_claim(opened, Lease(self.lease_seconds))
        if await self.committer.commit(head, claim) is not WriteResult.CREATED:
            return None
        return await self.work(claim, given)

    async def take_over(self, stored: StoredEntry) -> Entry | None:
        """Do a dead owner's work; None when another worker was first.

        A message that killed its owners as often as its type allows becomes a fault.
        """
        given = await self.dispatcher.input_of(stored.entry)
        attempt = self.worker.new_attempt()
        claim = next_entry.take_over_claim(stored.entry, attempt)
        try:
            is_ours = await self.journal.replace(claim, stored.version) is WriteResult.CREATED
        except OutcomeUnknown:
            # No answer: whose claim is it now?
            now = await self.journal.stored_entry(claim.session, claim.position)
            is_ours = now is not None and now.entry.attempt == attempt
        if not is_ours:
            return None
        handler = self.worker.handlers.by_type.get(message_in(claim).type)
        if claim.lease and handler and claim.lease.tries > handler.attempts:
            lost = RuntimeError(f"its owner was lost {claim.lease.tries - 1} times")
            return await self.end(claim, self.runner.fail(claim, lost))
        return await self.work(claim, given)

    async def work(self, claim: Entry, given: HandlerInput) -> Entry | None:
        """Run the handler while the claim is renewed, and end the claim."""
        async with self.renewed(claim):
            ending = await self.runner.run(claim, given)
            try:
                if ending.staged:
                    await self.journal.stage(claim.session, claim.attempt.id, ending.staged)
            except TooLarge as error:
                ending = self.runner.fail(claim, error)
        try:
            return await self.end(claim, ending)
        except TooLarge as error:
            return await self.end(claim, self.runner.fail(claim, error))

    async def end(self, claim: Entry, ending: Ending) -> Entry | None:
        """Replace the claim by what came of it; None when this attempt no longer holds it.

        The handler has run, so a store that does not help is asked again before Unavailable or
        OutcomeUnknown is raised: then the message is taken over after the lease, and runs again.
        """
        failed = 0
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
                self.worker.remember_head(entry.session, entry, is_ours=True)
                return await self.dispatcher.send_outputs(entry, ending.batches)
            if result is WriteResult.ORPHANED:
                return None

    async def try_to_end(self, claim: Entry, ending: Ending) -> tuple[WriteResult, Entry]:
        """Replace the claim once: TAKEN if it was written meanwhile, ORPHANED if it is lost."""
        stored = await self.journal.stored_entry(claim.session, claim.position)
        if stored is None or stored.entry.attempt != claim.attempt:
            return WriteResult.ORPHANED, ending.entry
        if stored.entry.status is not Status.WORKING:
            # An earlier try had no answer, and ended the claim.
            return WriteResult.CREATED, stored.entry
        # Others may have parked messages beside the claim; only the stored one knows how many.
        final = replace(ending.entry, parked=stored.entry.parked)
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
            with suppress(Unavailable, OutcomeUnknown):
                stored = await self.journal.stored_entry(claim.session, claim.position)
                if stored is None or stored.entry.attempt != claim.attempt:
                    return
                await self.journal.replace(next_entry.renew_claim(stored.entry), stored.version)
