"""A steady rate for one task, so that a feed does not arrive all at once."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

# A paced buffer is no more than this much of the rate: four small bursts a second, not one.
BURST_SECONDS = 0.25


@dataclass(slots=True)
class Pace:
    """Lets messages through at `per_second`, or at once where that is None.

    Time lost is not made up for: after a stall the rate goes on, it does not rise.
    """

    per_second: float | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    free_at: float = 0.0

    def burst(self, rows_max: int) -> int:
        """How many messages one buffer may hold."""
        if self.per_second is None:
            return rows_max
        return max(1, min(rows_max, round(self.per_second * BURST_SECONDS)))

    async def admit(self, count: int) -> None:
        """Wait until `count` more messages may go."""
        if self.per_second is None:
            return
        now = self.clock()
        if now < self.free_at:
            await self.sleep(self.free_at - now)
        self.free_at = max(now, self.free_at) + count / self.per_second
