"""Look, once after the start, at every queue and container that the settings name.

A missing one would otherwise be found by the first message that needs it. The look also opens the
connections, so that the first message that is sent to another region does not wait for them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from shared.domain.errors import LockstepError
from shared.domain.reports import shorten

log = logging.getLogger("lockstep.look")

LOOK_SECONDS_MAX = 15.0


class Look:
    """What was found missing, by place; what has not been looked at yet is not named."""

    def __init__(self, places: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        self.places = places
        self.missing: dict[str, str] = {}
        self.looking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to look, unless that was done before. Nothing waits for it, and nothing is raised.

        A function app cannot wait at its start, so whatever runs first in it calls this.
        """
        if self.looking is None:
            self.looking = asyncio.create_task(self.look_everywhere())

    async def look_everywhere(self) -> None:
        """Look at all places side by side, each for a bounded time."""
        await asyncio.gather(*(self.look_at(place) for place in self.places))

    async def look_at(self, place: str) -> None:
        """Look at one place; what is wrong there is logged as an error, and kept to be shown."""
        try:
            async with asyncio.timeout(LOOK_SECONDS_MAX):
                await self.places[place]()
        except (LockstepError, TimeoutError) as error:
            self.missing[place] = shorten(str(error) or "no answer")
            log.error("%s cannot be used: %s", place, self.missing[place])
