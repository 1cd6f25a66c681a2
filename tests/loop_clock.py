"""The time of a virtual event loop as the clock of a world: it passes only while all wait."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from proof.simulation.world import virtual_time
from shared.testkit.memory_store import VirtualClock


class LoopClock(VirtualClock):
    """The clock of scenarios that run `in_virtual_time`."""

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


def in_virtual_time(scenario: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """A test of the scenario, in which a second passes only while everything waits."""
    return lambda: virtual_time.run(scenario())


def in_world[W](
    make: Callable[[], W],
) -> Callable[[Callable[[W], Awaitable[None]]], Callable[[], None]]:
    """A test in virtual time, of a world that is made when it begins."""

    def wrap(scenario: Callable[[W], Awaitable[None]]) -> Callable[[], None]:
        async def run() -> None:
            await scenario(make())

        return in_virtual_time(run)

    return wrap
