"""Bring messages to several regions, and remember for a moment which of them is dark."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.message import Message
from shared.domain.outbox import Outbox
from shared.ports import Bus, Clock

# A region that just failed is not tried again for this long: long enough that an outage does not
# slow every send down, short enough that a recovered region is used at once.
DARK_SECONDS = 2.0


@dataclass
class Delivery:
    """Sends an outbox to regions. The first region is preferred: the others' copies come later."""

    bus: Bus
    clock: Clock
    regions: tuple[str, ...]
    secondary_delay_seconds: float
    dark_seconds: float = DARK_SECONDS
    dark_until: dict[str, float] = field(default_factory=dict)

    async def deliver(self, outbox: Outbox) -> tuple[str, ...]:
        """Send to every region the outbox names; the answer is the regions that surely have it.

        A region whose outcome is unknown is not among them: sending again is harmless, losing the
        copy is not.
        """
        took = await asyncio.gather(*(self.reach(region, outbox) for region in outbox.regions))
        return tuple(r for r, taken in zip(outbox.regions, took, strict=True) if taken)

    async def reach(self, region: str, outbox: Outbox) -> bool:
        """Send to one region, unless it was found dark a moment ago."""
        if self.clock.now() < self.dark_until.get(region, float("-inf")):
            return False
        delay = self.delay_seconds(region)
        try:
            await self.bus.send(region, outbox.queue, outbox.messages, delay_seconds=delay)
        except (Unavailable, OutcomeUnknown):
            self.dark_until[region] = self.clock.now() + self.dark_seconds
            return False
        return True

    def delay_seconds(self, region: str) -> float:
        """How long the region's copy stays invisible, so that the preferred region is first."""
        return 0.0 if region == self.regions[0] else self.secondary_delay_seconds

    def to_every_region(self, queue: str, messages: Sequence[Message]) -> Outbox:
        """An outbox that owes these messages to all regions."""
        return Outbox(queue, tuple(messages), self.regions)
