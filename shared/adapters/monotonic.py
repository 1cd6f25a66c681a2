"""The clock of this process."""

import asyncio
import time


class MonotonicClock:
    """See ports.Clock."""

    def now(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def today(self) -> float:
        """Seconds since 1970."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        await asyncio.sleep(seconds)
