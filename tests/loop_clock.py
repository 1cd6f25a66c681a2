"""The time of a virtual event loop as the clock of a world: it passes only while all wait."""

import asyncio

from shared.testkit.memory_store import VirtualClock


class LoopClock(VirtualClock):
    """For scenarios that `proof.simulation.world.virtual_time.run` runs."""

    @property
    def seconds(self) -> float:
        """Virtual seconds since the loop was made."""
        return asyncio.get_running_loop().time()

    @seconds.setter
    def seconds(self, _: float) -> None:
        """Nobody else sets it."""

    async def sleep(self, seconds: float) -> None:
        """Wake when this much virtual time has passed."""
        await asyncio.sleep(seconds)
