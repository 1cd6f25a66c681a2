"""The checks before a process works: whose journal this is, and whether its queue is there.

Both are asked for once. A store or a region that gives no answer at that moment refuses nobody:
the work itself will show what it can do. Whose the journal is the first app records to which a
message came: before that its settings may still be wrong, and would be recorded so.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from shared.domain.errors import Misconfigured, OutcomeUnknown, Unavailable
from shared.domain.outbox import HERE
from shared.engine.dispatch.deliver import Delivery
from shared.storage.journal import REGIONS_ID, REGIONS_SESSION, Journal
from shared.storage.kept_queue import KeptQueue

# Nobody waits longer for the list, which is one read.
LOOK_SECONDS_MAX = 2.0
# How long a queue is waited for while no other region takes messages: the SDK tries a key twice.
CONNECT_SECONDS_MAX = 10.0
# After no answer the next look is this much later, so that an outage costs no wait for each call.
LOOK_AGAIN_SECONDS = 30.0


class Readiness:
    """The state of the checks whether a process is configured as journal and queues need it.

    `replaced` is the list of regions that its own takes the place of, where a person changes it.
    `kept_for` are settings that only apps of the same application have. An app has a `queue`.
    """

    def __init__(
        self,
        journal: Journal,
        delivery: Delivery,
        replaced: Sequence[str] = (),
        kept_for: Mapping[str, str] | None = None,
    ) -> None:
        self.kept_for = kept_for or {}
        self.queue: KeptQueue | None = None
        self.journal = journal
        self.delivery = delivery
        self.replaced = frozenset(replaced)
        self.asking = asyncio.Lock()
        self.is_agreed = self.is_recorded = False
        self.is_queue_seen = False
        self.looks: list[asyncio.Task[bool | Misconfigured]] = []
        self.agree_after = self.look_after = float("-inf")

    @asynccontextmanager
    async def required(self) -> AsyncIterator[None]:
        """An operation that needs both; where no region surely took it, the next one looks again.

        Raises Misconfigured, and then nothing was done.
        """
        await self.require_regions()
        await self.require_queue()
        try:
            yield
        except OutcomeUnknown:
            self.is_queue_seen = False
            raise

    async def require_regions(self, *, records: bool = False) -> None:
        """Raise Misconfigured where the journal is kept for other regions than this process names.

        Also where it, or the queue, is another application's, and where the store itself needs a
        person first. With `records` both are this application's from now on, if they are nobody's.
        """
        async with self.asking:
            is_asked = self.is_recorded if records else self.is_agreed
            if is_asked or self.delivery.clock.now() < self.agree_after:
                return
            try:
                async with asyncio.timeout(LOOK_SECONDS_MAX):
                    self.is_agreed = await self.agree(records=records)
                self.is_recorded = self.is_agreed and records
            except Misconfigured:
                raise
            except (Unavailable, OutcomeUnknown, TimeoutError):
                self.agree_after = self.delivery.clock.now() + LOOK_AGAIN_SECONDS

    async def agree(self, *, records: bool) -> bool:
        """Compare the lists, and whose they are; the first process of all stores its own.

        False where another one was faster: the next operation looks at that. Raises Misconfigured.
        """
        if self.queue is not None:
            await self.queue.require_ours(records=records)
        ours, kept_for = self.delivery.regions, dict(self.kept_for if records else {})
        stored = await self.journal.regions()
        if stored is None:
            return await self.journal.save_regions(ours, None, kept_for)
        self.require_ours(stored.kept_for)
        kept_for |= stored.kept_for
        # The order says which region is preferred, and may be changed at any time.
        if set(stored.names) == set(ours):
            is_known = kept_for == stored.kept_for
            return is_known or await self.journal.save_regions(ours, stored.version, kept_for)
        if set(stored.names) == self.replaced:
            return await self.journal.save_regions(ours, stored.version, kept_for)
        raise Misconfigured(
            f"LOCKSTEP_REGIONS names {', '.join(ours)}, but the journal is kept for"
            f" {', '.join(stored.names)}: name the same regions everywhere"
        )

    def require_ours(self, kept_for: Mapping[str, str]) -> None:
        """Raise Misconfigured where a journal is kept for another application than this one."""
        for name in [one for one in self.kept_for if one in kept_for]:
            if self.kept_for[name] != kept_for[name]:
                raise Misconfigured(
                    f"{name} is {self.kept_for[name]!r}, but the journal belongs to an application"
                    f" with {kept_for[name]!r}: correct it, or name another journal; if the move is"
                    f" meant, take kept_for out of document {REGIONS_ID!r} of {REGIONS_SESSION!r}"
                )

    async def require_queue(self) -> None:
        """Raise Misconfigured where every region that answers says that its queue takes nothing."""
        async with self.asking:
            if self.is_queue_seen or self.delivery.clock.now() < self.look_after:
                return
            self.looks = [asyncio.create_task(self.look(r)) for r in self.delivery.regions]
            refusals: list[Misconfigured] = []
            # One region that takes messages is enough: nobody waits for another that is silent.
            for look in asyncio.as_completed(self.looks):
                answer = await look
                if answer is True:
                    self.is_queue_seen = True
                    # What was missing a moment ago is not waited for any longer.
                    self.delivery.resume(HERE)
                    return
                refusals += [answer] if answer else []
            if refusals:
                why = "; ".join(sorted(map(str, refusals)))
                raise Misconfigured(f"nothing was numbered: {why}").because(refusals)
            self.look_after = self.delivery.clock.now() + LOOK_AGAIN_SECONDS

    async def look(self, region: str) -> bool | Misconfigured:
        """Return whether the region's queue takes messages: false where there is no answer."""
        queue = self.delivery.queues.resolve(HERE)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self.delivery.bus.look(region, queue)
        except Misconfigured as error:
            return error
        except (Unavailable, OutcomeUnknown, TimeoutError):
            return False
        return True
