"""The clock of this process."""

import asyncio
import time


class MonotonicClock:
    """See ports.Clock."""

    now = staticmethod(time.monotonic)
    today = staticmethod(time.time)
    sleep = staticmethod(asyncio.sleep)
