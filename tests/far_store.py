"""A store that is far away: every read and every write takes its time, on the virtual clock."""

from collections.abc import Awaitable, Callable
from typing import Any

from shared.ports import Clock
from shared.storage.journal import Journal
from shared.testkit.intercepted import WRITES, InterceptedJournal


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
