"""Bring messages to several regions, and remember for a moment which queues are unavailable.

Every region gets its own copy of every message. The copies have the same bytes, so a region whose
answer was lost can be sent the same again, and its receivers drop what they have seen.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from shared.domain.errors import InvalidMessage, OutcomeUnknown, Unavailable
from shared.domain.message import Message, derive_id
from shared.domain.outbox import Outbox, address
from shared.domain.reports import make_tombstone
from shared.ports import Bus, Clock

# A queue that just failed is not tried again for this long: long enough that an outage does not
# slow every send down, short enough that a recovered region is used at once.
UNAVAILABLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The regions that surely have the messages, and which of these no queue would take."""

    regions: tuple[str, ...]
    refused: Mapping[str, str]


@dataclass
class Delivery:
    """Sends an outbox to regions. The preferred region's copy is visible first.

    The first region is preferred for every session; with `affinity` each session has a preferred
    region of its own. The other regions see their copies `secondary_delay_seconds` later.
    """

    bus: Bus
    clock: Clock
    regions: tuple[str, ...]
    secondary_delay_seconds: float
    unavailable_seconds: float = UNAVAILABLE_SECONDS
    affinity: bool = False
    unavailable_until: dict[tuple[str, str], float] = field(default_factory=dict)

    async def deliver(self, outbox: Outbox) -> tuple[str, ...]:
        """Send to every region the outbox names; the answer is the regions that surely have it.

        A region whose outcome is unknown is not among them: sending again is harmless, losing the
        copy is not. Raises InvalidMessage where a queue will never take one of the messages.
        """
        return await self.send_to_regions(outbox, None)

    async def deliver_possible(self, outbox: Outbox) -> DeliveryResult:
        """Deliver, with a tombstone in place of each message that its queue will never take."""
        refused = dict(outbox.refused)
        regions = await self.send_to_regions(outbox, refused)
        return DeliveryResult(regions, refused)

    async def send_to_regions(
        self, outbox: Outbox, refused: dict[str, str] | None
    ) -> tuple[str, ...]:
        """The regions that surely have it. What one region raises waits until all have answered."""
        # Side by side: a region that times out must not hold the others up. Nobody is cancelled by
        # another's exception, because a cancelled send would be one more with an unknown outcome.
        answers = await asyncio.gather(
            *(self.send_to_region(region, outbox, refused) for region in outbox.regions),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return tuple(r for r, taken in zip(outbox.regions, answers, strict=True) if taken)

    async def send_to_region(
        self, region: str, outbox: Outbox, refused: dict[str, str] | None
    ) -> bool:
        """Whether the region has all of it now; a queue that failed a moment ago is not tried."""
        # All queues or none: a region counts as reached only when it has the whole outbox, so there
        # is no use in sending it a part.
        now = self.clock.now()
        queues = {batch.queue for batch in outbox.batches}
        if any(now < self.unavailable_until.get((region, q), float("-inf")) for q in queues):
            return False
        for batch in outbox.batches:
            try:
                for delay, wave in self.split_by_delay(region, batch.messages):
                    await self.send_wave(region, batch.queue, wave, delay, refused)
            except (Unavailable, OutcomeUnknown):
                # What was sent before stays there. The whole outbox is sent again later, in order,
                # so the repeated messages are recognised and the missing ones follow.
                until = self.clock.now() + self.unavailable_seconds
                self.unavailable_until[region, batch.queue] = until
                return False
        return True

    async def send_wave(
        self,
        region: str,
        queue: str,
        messages: Sequence[Message],
        delay: float,
        refused: dict[str, str] | None,
    ) -> None:
        """Send messages that become visible together, in order.

        Where `refused` is given, it names the messages that no queue takes, and tombstones take
        their places; what this queue refuses is added to it. Otherwise InvalidMessage is raised.
        """
        if refused is None:
            await self.bus.send(region, queue, messages, delay_seconds=delay)
            return
        # What another queue or an earlier try refused is not tried here, so that its tombstone goes
        # to every region that has not taken the message itself.
        possible = [make_tombstone(m) if m.id in refused else m for m in messages]
        try:
            await self.bus.send(region, queue, possible, delay_seconds=delay)
            return
        except InvalidMessage:
            # The queue does not say which one it refuses: send them one by one, so that each keeps
            # its place. Those it has taken already are recognised by number.
            pass
        for message in possible:
            try:
                await self.bus.send(region, queue, [message], delay_seconds=delay)
            except InvalidMessage as error:
                # The tombstone goes out before the next message: without it there would be a hole
                # in the numbers, behind which the receiver parks everything.
                tombstone = make_tombstone(message)
                await self.bus.send(region, queue, [tombstone], delay_seconds=delay)
                refused[message.id] = str(error)

    def split_by_delay(
        self, region: str, messages: Sequence[Message]
    ) -> Iterator[tuple[float, list[Message]]]:
        """Messages that become visible together, in order, with their delay in this region."""
        # Only neighbours are put together, so that messages of a session never overtake each other.
        for delay, wave in groupby(messages, lambda m: self.delay_in(region, m.session)):
            yield delay, list(wave)

    def delay_in(self, region: str, session: str) -> float:
        """How long the region's copy stays invisible, so that the preferred region is first."""
        return 0.0 if region == self.preferred_region(session) else self.secondary_delay_seconds

    def preferred_region(self, session: str) -> str:
        """The region that normally does the session's work."""
        # Every producer and every worker has to come to the same answer without asking anybody, so
        # it follows from the session's name alone. If they differ, both regions do the work, once.
        if not self.affinity:
            return self.regions[0]
        return self.regions[int(derive_id(session)[:8], 16) % len(self.regions)]

    def address_all(self, queue: str, messages: Sequence[Message]) -> Outbox:
        """An outbox that has these messages pending for all regions."""
        return address(queue, messages, self.regions)
