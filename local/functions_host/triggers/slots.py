"""Tasks that visit a queue again and again, and end in order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from local.functions_host.amqp.errors import ConnectionLost, RequestRefused

log = logging.getLogger(__name__)

LOST_PAUSE_SECONDS = 0.1
REFUSED_PAUSE_SECONDS = 2.0


class Slots:
    """As many visits at a time as there are slots; a refusal is said once, not each time."""

    def __init__(self, function: str) -> None:
        self._extra = {"function": function}
        self._tasks: list[asyncio.Task[None]] = []
        self._busy: set[asyncio.Task[None] | None] = set()
        self._refusal = ""
        self.is_stopping = False

    def start(self, count: int, visit: Callable[[], Awaitable[None]]) -> None:
        """Begin to visit."""
        self._tasks = [asyncio.create_task(self._repeat(visit)) for _ in range(count)]

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While inside, a stop waits for the running slot instead of cutting it off."""
        slot = asyncio.current_task()
        self._busy.add(slot)
        try:
            yield
        finally:
            self._busy.discard(slot)

    async def stop(self, drain_seconds: float) -> None:
        """End the idle slots now, and the busy ones when they are done or the limit is over."""
        self.is_stopping = True
        for slot in self._tasks:
            if slot not in self._busy:
                slot.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=drain_seconds)
            for slot in late:
                log.warning("still running: cut off", extra=self._extra)
                slot.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, visit: Callable[[], Awaitable[None]]) -> None:
        while not self.is_stopping:
            try:
                await visit()
            except ConnectionLost:  # whoever connects says it, and connects again
                await asyncio.sleep(LOST_PAUSE_SECONDS)
            except RequestRefused as error:
                self._say_refused(str(error))
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)
            except Exception:  # a message of a kind never seen must not end the listener
                log.exception("a visit broke", extra=self._extra)
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)

    def _say_refused(self, refusal: str) -> None:
        if refusal != self._refusal:
            self._refusal = refusal
            log.error("the queue refuses: %s", refusal, extra=self._extra)
