"""The in-memory twin of the bus: the queues of all regions as lists."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from shared.domain.errors import InvalidMessage, Misconfigured, Unavailable
from shared.domain.message import BODY_BYTES_MAX, Message
from shared.ports import Browsed, BrowsedMessage, DeadLetter
from shared.testkit.injected_faults import FaultPlan
from shared.testkit.memory_store import VirtualClock


@dataclass(frozen=True, slots=True)
class QueuedCopy:
    """A message in a queue, and when it becomes visible."""

    message: Message
    visible_at: float


class MemoryBus:
    """A Bus whose queues are lists.

    A region or a single queue of it in `unavailable` refuses for now, one in `missing` until a
    person changes something, and one in `silent` never answers; a message over the bytes that
    `largest` gives for a queue is refused for good, with all that are sent with it.
    """

    def __init__(self, clock: VirtualClock, fault_plan: FaultPlan | None = None) -> None:
        self.clock = clock
        self.fault_plan = fault_plan or FaultPlan()
        self.queues: dict[tuple[str, str], list[QueuedCopy]] = defaultdict(list)
        self.unavailable: set[str | tuple[str, str]] = set()
        self.missing: set[str | tuple[str, str]] = set()
        self.silent: set[str | tuple[str, str]] = set()
        self.largest: dict[tuple[str, str], int] = {}
        self.dead_letters: dict[tuple[str, str], list[DeadLetter]] = defaultdict(list)

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        await self.answer(region, queue)
        with self.fault_plan.calling(f"send.{region}"):
            self.put(region, queue, messages, delay_seconds)

    async def look(self, region: str, queue: str) -> None:
        await self.answer(region, queue)
        with self.fault_plan.calling(f"look.{region}"):
            pass

    async def answer(self, region: str, queue: str) -> None:
        """Raise what stands in the way of the queue, or never return where it is silent."""
        if self.unavailable & {region, (region, queue)}:
            raise Unavailable(f"region {region} is unavailable")
        if self.missing & {region, (region, queue)}:
            self.fault_plan.calls[f"refused.{region}"] += 1
            raise Misconfigured(f"{queue!r} does not exist in region {region}")
        if self.silent & {region, (region, queue)}:
            self.fault_plan.calls[f"silent.{region}"] += 1
            await asyncio.get_running_loop().create_future()

    def put(
        self, region: str, queue: str, messages: Sequence[Message], delay_seconds: float
    ) -> None:
        """Take messages, or none where one is too large."""
        visible_at = self.clock.now() + delay_seconds
        largest = self.largest.get((region, queue), BODY_BYTES_MAX)
        if any(len(message.body) > largest for message in messages):
            raise InvalidMessage(f"a message is too large for {queue!r}")
        self.queues[region, queue] += [QueuedCopy(message, visible_at) for message in messages]

    async def end_dead_letters(
        self, region: str, queue: str, limit: int, end: Callable[[DeadLetter], Awaitable[bool]]
    ) -> int:
        letters, operation = self.dead_letters[region, queue], f"dead_letters.{region}"
        with self.fault_plan.calling(operation):
            found = letters[:limit]
        ended = [letter for letter in found if await end(letter)]
        for letter in ended:
            with self.fault_plan.calling(operation):
                letters.remove(letter)
        return len(ended)

    async def browse_session(
        self, region: str, queue: str, session: str, after: int, limit: int
    ) -> Browsed:
        await self.answer(region, queue)
        found = [one for one in self.numbered(region, queue) if one.session == session]
        above = [one for one in found if one.sequence > after]
        return Browsed(above[:limit], len(above) < limit)

    async def browse_sessions(self, region: str, queue: str, limit: int) -> Browsed:
        await self.answer(region, queue)
        # No order of the sessions is promised, so it is not that of arrival here either.
        found = sorted(self.numbered(region, queue), key=lambda one: one.session, reverse=True)
        return Browsed(found[:limit], len(found) < limit)

    def numbered(self, region: str, queue: str) -> list[BrowsedMessage]:
        """Return the visible messages of a queue, numbered from 1."""
        return [
            BrowsedMessage(one.session, number, None, one.id, one.type, one.body)
            for number, copy in enumerate(self.queues[region, queue], start=1)
            if copy.visible_at <= self.clock.now() and (one := copy.message)
        ]

    def messages(self, region: str, queue: str) -> list[Message]:
        return [copy.message for copy in self.queues[region, queue]]
