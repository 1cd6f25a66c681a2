"""The way of bytes between a client and the namespace, while a fault makes it long or endless."""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf

LOOK_SECONDS = 0.05  # how late the end of silence may be noticed


class Wire:
    """One direction of a connection: everything arrives, in order, when its time has come.

    The time is that of the moment in which something set out, so much of it may be under way at
    once. While a link is silent nothing arrives; what was sent meanwhile does when that ends.
    """

    def __init__(self, read_seconds: Callable[[], float]) -> None:
        """`read_seconds` tells how long the way is now, infinite for silence."""
        self._read_seconds = read_seconds
        self.under_way: deque[tuple[float, Callable[[], None]]] = deque()  # with time of arrival

    def carry(self, arrive: Callable[[], None]) -> None:
        """Call `arrive` when what sets out now arrives."""
        loop, seconds = asyncio.get_running_loop(), self._read_seconds()
        self.under_way.append((loop.time() + (0 if seconds == inf else seconds), arrive))
        if len(self.under_way) == 1:
            loop.call_later(min(seconds, LOOK_SECONDS), self._deliver_due)

    def _deliver_due(self) -> None:
        loop = asyncio.get_running_loop()
        while self.under_way and self._read_seconds() < inf:
            if (wait := self.under_way[0][0] - loop.time()) > 0:
                loop.call_later(wait, self._deliver_due)
                return
            self.under_way[0][1]()
            self.under_way.popleft()  # only now: what comes meanwhile must not overtake it
        if self.under_way:
            loop.call_later(LOOK_SECONDS, self._deliver_due)
