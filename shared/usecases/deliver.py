"""Bring messages to several regions, and remember for a moment which queues are out of reach."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from shared.domain.errors import InvalidMessage, OutcomeUnknown, Unavailable
from shared.domain.message import Message, derived_id
from shared.domain.outbox import Outbox, owed
from shared.domain.reports import void
from shared.ports import Bus, Clock

# A queue that just failed is not tried again for this long: long enough that an outage does not
# slow every send down, short enough that a recovered region is used at once.
DARK_SECONDS = 2.0

# Brings one wave of messages to a region's queue, after a delay.
type Send = Callable[[str, str, Sequence[Message], float], Awaitable[None]]


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
    dark_until: dict[tuple[str, str], float] = field(default_factory=dict)

    async def deliver(self, outbox: Outbox) -> tuple[str, ...]:
        """Send to every region the outbox names; the answer is the regions that surely have it.

        A region whose outcome is unknown is not among them: sending again is harmless, losing the
        copy is not. Raises InvalidMessage where a queue will never take one of the messages.
        """
        return await self.reached(outbox, self.send)

    async def deliver_possible(self, outbox: Outbox) -> Delivered:
        """Deliver, with a void in place of each message that its queue will never take."""
        refused = dict(outbox.refused)
        regions = await self.reached(outbox, partial(self.send_possible, refused))
        return Delivered(regions, refused)

    async def reached(self, outbox: Outbox, send: Send) -> tuple[str, ...]:
        """The regions that surely have it. What one region raises waits until all have answered."""
        answers = await asyncio.gather(
            *(self.reach(region, outbox, send) for region in outbox.regions),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return tuple(r for r, taken in zip(outbox.regions, answers, strict=True) if taken)

    async def reach(self, region: str, outbox: Outbox, send: Send) -> bool:
        """Send to one region, unless one of the queues was found out of reach a moment ago."""
        if any(self.is_dark(region, parcel.queue) for parcel in outbox.parcels):
            return False
        for parcel in outbox.parcels:
            try:
                for messages, delay in self.waves(region, parcel.messages):
                    await send(region, parcel.queue, messages, delay)
            except (Unavailable, OutcomeUnknown):
                self.dark_until[region, parcel.queue] = self.clock.now() + self.dark_seconds
                return False
        return True

    def is_dark(self, region: str, queue: str) -> bool:
        """Whether a queue was found out of reach a moment ago."""
        return self.clock.now() < self.dark_until.get((region, queue), float("-inf"))

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], delay: float
    ) -> None:
        """Send messages as they are."""
        await self.bus.send(region, queue, messages, delay_seconds=delay)

    async def send_possible(
        self,
        refused: dict[str, str],
        region: str,
        queue: str,
        messages: Sequence[Message],
        delay: float,
    ) -> None:
        """Send messages, one by one where some are refused: each keeps its place, or a void does.

        What is found to be refused is added to `refused`, by id.
        """
        possible = [void(m) if m.id in refused else m for m in messages]
        try:
            await self.send(region, queue, possible, delay)
        except InvalidMessage:
            for message in possible:
                await self.send_or_void(refused, region, queue, message, delay)

    async def send_or_void(
        self, refused: dict[str, str], region: str, queue: str, message: Message, delay: float
    ) -> None:
        """Send a message, or a void where its queue does not take it."""
        try:
            await self.send(region, queue, [message], delay)
        except InvalidMessage as error:
            await self.send(region, queue, [void(message)], delay)
            refused[message.id] = str(error)

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
