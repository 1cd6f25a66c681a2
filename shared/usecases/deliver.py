"""Bring messages to several regions, and remember for a moment which of them is dark."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from shared.domain.errors import InvalidMessage, OutcomeUnknown, Unavailable
from shared.domain.message import Message, derived_id
from shared.domain.outbox import Outbox, Parcel, owed
from shared.domain.reports import void
from shared.ports import Bus, Clock

# A region that just failed is not tried again for this long: long enough that an outage does not
# slow every send down, short enough that a recovered region is used at once.
DARK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Delivered:
    """The regions that surely have the messages, and which of these no queue would take."""

    regions: tuple[str, ...]
    refused: Mapping[str, str]


@dataclass
class Delivery:
    """Sends an outbox to regions. The preferred region's copy is visible first.

    The first region is preferred for every session or, where sessions are `spread`, each session
    has a preferred region of its own.
    """

    bus: Bus
    clock: Clock
    regions: tuple[str, ...]
    secondary_delay_seconds: float
    dark_seconds: float = DARK_SECONDS
    spread: bool = False
    dark_until: dict[str, float] = field(default_factory=dict)

    async def deliver(self, outbox: Outbox) -> tuple[str, ...]:
        """Send to every region the outbox names; the answer is the regions that surely have it.

        A region whose outcome is unknown is not among them: sending again is harmless, losing the
        copy is not. Raises InvalidMessage where a queue will never take one of the messages.
        """
        took = await asyncio.gather(*(self.reach(region, outbox) for region in outbox.regions))
        return tuple(r for r, taken in zip(outbox.regions, took, strict=True) if taken)

    async def deliver_possible(self, outbox: Outbox) -> Delivered:
        """Deliver, with a void in place of each message that a queue will never take."""
        refused: dict[str, str] = {}
        while True:
            try:
                regions = await self.deliver(voided(outbox, refused))
            except InvalidMessage:
                found = await self.refusals(voided(outbox, refused))
                if not found.keys() - refused.keys():
                    return Delivered((), refused)
                refused |= found
            else:
                return Delivered(regions, refused)

    async def refusals(self, outbox: Outbox) -> dict[str, str]:
        """Send one by one to find the messages that some queue refuses, with its reason."""
        found = {}
        for region in outbox.regions:
            for parcel in outbox.parcels:
                for message in parcel.messages:
                    alone = Outbox((Parcel(parcel.queue, (message,)),), (region,))
                    try:
                        await self.reach(region, alone)
                    except InvalidMessage as error:
                        found[message.id] = str(error)
        return found

    async def reach(self, region: str, outbox: Outbox) -> bool:
        """Send to one region, unless it was found dark a moment ago."""
        if self.is_dark(region):
            return False
        try:
            for parcel in outbox.parcels:
                for messages, delay in self.waves(region, parcel.messages):
                    await self.bus.send(region, parcel.queue, messages, delay_seconds=delay)
        except (Unavailable, OutcomeUnknown):
            self.dark_until[region] = self.clock.now() + self.dark_seconds
            return False
        return True

    def is_dark(self, region: str) -> bool:
        """Whether the region failed a moment ago."""
        return self.clock.now() < self.dark_until.get(region, float("-inf"))

    def waves(
        self, region: str, messages: Sequence[Message]
    ) -> Iterator[tuple[list[Message], float]]:
        """Messages that become visible together, in order, with their delay."""
        for delay, wave in groupby(messages, lambda m: self.delay_seconds(region, m.session)):
            yield list(wave), delay

    def delay_seconds(self, region: str, session: str) -> float:
        """How long the region's copy stays invisible, so that the preferred region is first."""
        return 0.0 if region == self.preferred(session) else self.secondary_delay_seconds

    def preferred(self, session: str) -> str:
        """The region that normally does the session's work."""
        if not self.spread:
            return self.regions[0]
        return self.regions[int(derived_id(session)[:8], 16) % len(self.regions)]

    def to_every_region(self, queue: str, messages: Sequence[Message]) -> Outbox:
        """An outbox that owes these messages to all regions."""
        return owed(queue, messages, self.regions)


def voided(outbox: Outbox, refused: Mapping[str, str]) -> Outbox:
    """The outbox with voids in place of what is refused."""
    parcels = tuple(
        Parcel(
            parcel.queue,
            tuple(void(m, refused[m.id]) if m.id in refused else m for m in parcel.messages),
        )
        for parcel in outbox.parcels
    )
    return Outbox(parcels, outbox.regions)
