"""Journal and bus as one process sees them: the shared twin, through calls that go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.adapters.memory import MemoryJournal
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from shared.domain.message import Message
from simulation.broker import Namespace
from simulation.process import Process

WRITES = frozenset({"append", "replace", "owe", "acknowledge", "stage", "save_ledger", "compact"})


class StoreClock:
    """The store's own clock: the loop's, which no process sees."""

    def now(self) -> float:
        """Seconds since the beginning of the world."""
        return asyncio.get_running_loop().time()


class DistantJournal:
    """See ports.Journal. Every call goes through the process and may go wrong there."""

    def __init__(self, process: Process, journal: MemoryJournal) -> None:
        self.process = process
        self.journal = journal

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """A method of the twin, called from afar."""
        method = getattr(self.journal, name)

        async def distant(*arguments: Any, **options: Any) -> Any:
            return await self.process.call(
                name, lambda: finished(method(*arguments, **options)), writes=name in WRITES
            )

        return distant

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:
        """The newest entry, or an older one where that will do."""
        head: Entry | None = await self.process.call(
            "head", lambda: finished(self.journal.head(session)), writes=False
        )
        weather = self.process.weather
        now = asyncio.get_running_loop().time()
        if newest or head is None or head.position == 0:
            return head
        if not weather.strikes(weather.climate.stale_reads, "stale head", now):
            return head
        return self.journal.entry_at(session, head.position - 1) or head


def finished[T](work: Awaitable[T]) -> T:
    """The result of a coroutine of the twin, which never waits for anything."""
    coroutine: Any = work
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("the twin waited for something")


@dataclass
class DistantBus:
    """See ports.Bus: the namespaces of all regions, as one process reaches them."""

    process: Process
    namespaces: dict[str, Namespace]

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """Send, perhaps only the first of them."""
        namespace = self.namespaces[region]
        now = asyncio.get_running_loop().time()
        if namespace.is_down(now):
            await self.process.wait(0.01)
            raise Unavailable(f"region {region} is dark")
        weather = self.process.weather
        if len(messages) > 1 and weather.strikes(weather.climate.calls, "half a batch", now):
            part = messages[: weather.chance.random.randrange(len(messages))]
            namespace.accept(queue, part, now + delay_seconds)
            raise OutcomeUnknown("half a batch was sent")
        await self.process.call(
            f"send {region} {queue}",
            lambda: namespace.accept(
                queue, messages, asyncio.get_running_loop().time() + delay_seconds
            ),
            writes=True,
        )
