"""A store that is far away: every read and every write takes its time, on the virtual clock."""

from collections.abc import Awaitable, Callable
from typing import Any

from shared.ports import Clock
from shared.testkit.memory import MemoryJournal

WRITES = frozenset(
    {"append", "replace", "add_pending", "acknowledge", "decide", "stage", "save_ledger", "compact"}
)


class FarJournal:
    """See ports.Journal: the twin, reached over a long way.

    A call takes half of its time on the way there and half on the way back.
    """

    def __init__(
        self, journal: MemoryJournal, clock: Clock, *, read_seconds: float, write_seconds: float
    ) -> None:
        self.journal = journal
        self.clock = clock
        self.read_seconds = read_seconds
        self.write_seconds = write_seconds

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """The twin's method, with the time that it takes."""
        method = getattr(self.journal, name)
        seconds = self.write_seconds if name in WRITES else self.read_seconds

        async def call(*arguments: Any, **options: Any) -> Any:
            await self.clock.sleep(seconds / 2)
            try:
                return await method(*arguments, **options)
            finally:
                await self.clock.sleep(seconds / 2)

        return call
