"""Look, after the start, at every queue and container that the settings name.

A missing one would otherwise be found by the first message that needs it. The look also opens the
connections, so that the first message that is sent to another region does not wait for them. What
was missing is looked at again now and then, until somebody has created it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from shared.domain.errors import LockstepError
from shared.domain.reports import shorten

log = logging.getLogger("lockstep.look")

LOOK_SECONDS_MAX = 15.0
LOOK_AGAIN_SECONDS = 15.0


class Look:
    """The places found missing. A place that has not been looked at yet is not named."""

    def __init__(self, places: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        self.places = places
        self.missing: dict[str, str] = {}
        self.looking: asyncio.Task[None] | None = None
        self.began_at = 0.0

    def begin(self) -> None:
        """Begin to look: at everything once, later at what was missing, if that is a while ago.

        Nothing waits for it, and nothing is raised. A function app cannot wait at its start, so
        whatever runs first in it calls this.
        """
        now = asyncio.get_running_loop().time()
        if self.looking is None:
            again: Collection[str] = self.places.keys()
        elif self.missing and self.looking.done() and now >= self.began_at + LOOK_AGAIN_SECONDS:
            again = list(self.missing)
        else:
            return
        self.began_at = now
        self.looking = asyncio.create_task(self.look_everywhere(again))

    async def look_everywhere(self, places: Collection[str]) -> None:
        """Look at places side by side, each for a bounded time."""
        await asyncio.gather(*(self.look_at(place) for place in places))

    async def look_at(self, place: str) -> None:
        """Look at one place; what is wrong there is kept to be shown, and what is new is logged."""
        known = self.missing.get(place)
        try:
            async with asyncio.timeout(LOOK_SECONDS_MAX):
                await self.places[place]()
        except (LockstepError, TimeoutError) as error:
            self.missing[place] = shorten(str(error) or "no answer")
            if self.missing[place] != known:
                log.error("%s cannot be used: %s", place, self.missing[place])
        else:
            if self.missing.pop(place, None) is not None:
                log.info("%s can be used now", place)
