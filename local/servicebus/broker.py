"""What every link of a namespace shares: the gate, the clock, timers, and the end of a turn.

Work is done in turns, one at a time, on the loop of one thread: the bytes of one client, or a
timer. At the end of a turn the ledger is committed first and only then do bytes go out, so no
client hears of anything that a killed process would forget.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from local.counters import Counters
from local.faults import Faults
from local.servicebus.gate import Gate
from local.servicebus.ledger import Ledger


class Timer(Protocol):
    """Something that will happen, unless it is cancelled."""

    def cancel(self) -> None:
        """Let it not happen."""
        ...


class Writable(Protocol):
    """A connection that may have bytes to write."""

    def write_out(self) -> None:
        """Write them."""
        ...


class Broker:
    """Shared by the links of one namespace, used on its thread only."""

    def __init__(
        self, component: str, *, faults: Faults, counters: Counters, ledger: Ledger
    ) -> None:
        self.gate = Gate(component, faults=faults, counters=counters, later=self.later)
        self._ledger = ledger
        self._touched: dict[Writable, None] = {}

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Do something in a turn of its own, after some seconds; 0: before anybody is heard."""
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            return loop.call_soon(self.turn, callback)
        return loop.call_later(seconds, self.turn, callback)

    def touched(self, connection: Writable) -> None:
        """This connection has something to write when the turn ends."""
        self._touched.setdefault(connection)

    def turn(self, work: Callable[[], None]) -> None:
        """Do a piece of work, keep its effects, and only then let clients know."""
        try:
            work()
        finally:
            self._ledger.commit()
            while self._touched:
                connection, _ = self._touched.popitem()
                connection.write_out()
