"""A store that is far away: every read and every write takes its time, on the virtual clock."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from shared.ports import Clock, Document, WriteResult
from shared.storage.journal import Journal
from shared.testkit.intercepted import WRITES, InterceptedJournal
from shared.testkit.memory import MemoryContainer
from shared.testkit.memory_store import MemoryStore


class FarJournal(InterceptedJournal):
    """A journal that is reached over a long way.

    A call takes half of its time on the way there and half on the way back.
    """

    def __init__(
        self, journal: Journal, clock: Clock, *, read_seconds: float, write_seconds: float
    ) -> None:
        super().__init__(journal)
        self.clock = clock
        self.read_seconds = read_seconds
        self.write_seconds = write_seconds

    async def intercept(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make the call, with the time that it takes."""
        seconds = self.write_seconds if name in WRITES else self.read_seconds
        await self.clock.sleep(seconds / 2)
        try:
            return await call()
        finally:
            await self.clock.sleep(seconds / 2)


class FarContainer(MemoryContainer):
    """A container in memory of which each call takes its time, and the calls of each kind."""

    def __init__(self, store: MemoryStore, clock: Clock, seconds: float) -> None:
        super().__init__(store)
        self.clock = clock
        self.seconds = seconds
        self.calls: Counter[str] = Counter()

    async def read(self, *arguments: Any, **options: Any) -> Document | None:
        await self.wait("read")
        return await super().read(*arguments, **options)

    async def write(self, *arguments: Any) -> tuple[WriteResult, str]:
        await self.wait("write")
        return await super().write(*arguments)

    async def find(self, *arguments: Any) -> list[Document]:
        await self.wait("find")
        return await super().find(*arguments)

    async def wait(self, call: str) -> None:
        """Count a call, and let its time pass."""
        self.calls[call] += 1
        await self.clock.sleep(self.seconds)
