"""The queues and containers that the settings name and that are missing, looked for at the start.

A missing one would otherwise be found by the first message that needs it. Looking also opens the
connections, so that the first message that is sent to another region does not wait for them. What
was missing is looked at again now and then, until somebody has created it; a place that is watched
always is, because it may be lost later and nothing else would say so.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Set

from shared.domain.errors import LockstepError
from shared.domain.reports import shorten

log = logging.getLogger("lockstep.missing_places")

LOOK_SECONDS_MAX = 15.0
LOOK_AGAIN_SECONDS = 15.0

# Looks at a place; raises LockstepError where it cannot be used.
type Look = Callable[[], Awaitable[object]]


class MissingPlaces:
    """The places found missing, each with its reason; one that was not looked at is not named."""

    def __init__(self, places: Mapping[str, Look]) -> None:
        self.places = places
        self.watched: Set[str] = frozenset()
        self.reasons: dict[str, str] = {}
        self.looking: asyncio.Future[list[None]] | None = None
        self.began_at = 0.0

    def watch(self, place: str, look: Look) -> None:
        """Look at one more place, again and again."""
        self.places = {**self.places, place: look}
        self.watched |= {place}

    def begin_looking(self) -> None:
        """Begin to look: at everything once, later at what was missing or is watched.

        Nothing waits for it, and nothing is raised. A function app cannot wait at its start, so
        whatever runs first in it calls this.
        """
        now = asyncio.get_running_loop().time()
        again: Collection[str] = self.watched | self.reasons.keys()
        if self.looking is None:
            again = self.places.keys()
        elif not (again and self.looking.done() and now >= self.began_at + LOOK_AGAIN_SECONDS):
            return
        self.began_at = now
        # Side by side, each for a bounded time.
        self.looking = asyncio.gather(*(self.look_at(place) for place in again))

    async def look_at(self, place: str) -> None:
        """Look at one place; what is wrong there is kept to be shown, and what is new is logged."""
        known = self.reasons.get(place)
        try:
            async with asyncio.timeout(LOOK_SECONDS_MAX):
                await self.places[place]()
        except (LockstepError, TimeoutError) as error:
            self.reasons[place] = shorten(str(error) or "no answer")
            if self.reasons[place] != known:
                log.error("%s cannot be used: %s", place, self.reasons[place])
        else:
            if self.reasons.pop(place, None) is not None:
                log.info("%s can be used now", place)
