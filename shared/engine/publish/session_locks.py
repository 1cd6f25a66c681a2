"""One operation at a time for each session."""

import asyncio
from weakref import WeakValueDictionary


class SessionLocks:
    """A lock per session; one that nobody holds or waits for is forgotten."""

    def __init__(self) -> None:
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, session: str) -> asyncio.Lock:
        """The lock that makes operations on one session wait for each other, first come first."""
        return self.locks.setdefault(session, asyncio.Lock())
