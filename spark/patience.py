"""Sending again, for a while, what no region surely took: a short outage is no reason to fail."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shared.domain.errors import OutcomeUnknown, Unavailable

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 5.0
PATIENCE_DEFAULT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an operation is repeated; the same messages each time, so it adds no effect."""

    seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def until_safe[T](self, operation: Callable[[], Awaitable[T]]) -> T:
        """The operation's answer; raises OutcomeUnknown or Unavailable when patience has ended."""
        ends_at = self.clock() + self.seconds
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                return await operation()
            except (OutcomeUnknown, Unavailable):
                if self.clock() + wait > ends_at:
                    raise
            await self.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)
