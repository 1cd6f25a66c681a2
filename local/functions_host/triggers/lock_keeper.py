"""Keeping a session's lock while its messages are worked on."""

import asyncio
import logging
import time
from datetime import UTC, datetime

from local.functions_host.amqp.errors import ConnectionLost, SessionLockLost
from local.functions_host.amqp.session import Session

log = logging.getLogger(__name__)

LEAST_PAUSE_SECONDS = 0.2


class LockKeeper:
    """Renews a lock each time half of what is left of it has passed.

    A message that takes longer than the limit is renewed no more; its session is then lost in time.
    The first renewal of most visits never comes, so waiting for it costs a timer and no task.
    """

    def __init__(self, session: Session, limit_seconds: float) -> None:
        self._session = session
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
        left = (self._session.locked_until - datetime.now(UTC)).total_seconds()
        pause = max(left / 2, LEAST_PAUSE_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(pause, self._due)

    def _due(self) -> None:
        if time.monotonic() - self._since < self._limit_seconds:
            self._renewal = asyncio.create_task(self._renew())
        else:
            self._has_given_up = True

    async def _renew(self) -> None:
        try:
            await self._session.renew()
        except (SessionLockLost, ConnectionLost) as error:
            log.warning("session %s: lock not renewed: %s", self._session.id, error)
            return
        self._schedule()
