"""Keeping the lock of a session or of a message while it is worked on."""

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Protocol

from local.functions_host.amqp.errors import ConnectionLost, LockLost

log = logging.getLogger(__name__)

LEAST_PAUSE_SECONDS = 0.2


class Lock(Protocol):
    """A lock with an end that can be moved; `renew` raises LockLost and ConnectionLost."""

    id: str
    locked_until: datetime

    async def renew(self) -> None:
        """Prolong the lock."""


class LockKeeper:
    """Renews a lock each time half of what is left of it has passed.

    A message that takes longer than the limit is renewed no more; its lock is then lost in time.
    The first renewal of most visits never comes, so waiting for it costs a timer and no task.
    """

    def __init__(self, lock: Lock, limit_seconds: float) -> None:
        self._lock = lock
        self._limit_seconds = limit_seconds
        self._since = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._has_given_up = False
        self._schedule()

    def message_arrived(self) -> None:
        """Begin to count the limit for the message now in hand."""
        self._since = time.monotonic()
        if self._has_given_up:
            self._schedule()

    def stop(self) -> None:
        """Renew no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()

    def _schedule(self) -> None:
        self._has_given_up = False
        left = (self._lock.locked_until - datetime.now(UTC)).total_seconds()
        pause = max(left / 2, LEAST_PAUSE_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(pause, self._due)

    def _due(self) -> None:
        if time.monotonic() - self._since < self._limit_seconds:
            self._renewal = asyncio.create_task(self._renew())
        else:
            self._has_given_up = True

    async def _renew(self) -> None:
        try:
            await self._lock.renew()
        except (LockLost, ConnectionLost) as error:
            log.warning("%s: lock not renewed: %s", self._lock.id, error)
            return
        self._schedule()
