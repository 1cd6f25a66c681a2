"""Virtual time: waiting takes no time, and the same program runs the same way."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from shared.testkit.memory_store import EPOCH_SECONDS


class VirtualSelector(selectors.BaseSelector):
    """A selector that never waits: it moves the loop's clock on instead."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.keys: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let the time pass for which the loop would wait; None would be for ever."""
        if timeout is None:
            raise RuntimeError("everything waits for something that will never happen")
        if timeout > 0:
            self.seconds += timeout
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Accept the loop's own wake-up socket, which nobody writes to."""
        self.keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return self.keys[fileobj]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self.keys.pop(fileobj)

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self.keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while everything waits."""

    def __init__(self) -> None:
        self.virtual = VirtualSelector()
        super().__init__(self.virtual)
        # Timers are compared with the clock's resolution; ours is exact.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self.virtual.seconds

    def run_in_executor[T](  # type: ignore[override]
        self, _: Any, work: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        """Run at once what wants a thread, as the order of threads could not be repeated."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


def run[T](main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now() -> float:
    """Return the virtual seconds since the running loop was made."""
    return asyncio.get_running_loop().time()


def date_of(seconds: float) -> datetime:
    """Return a virtual second as a time of all clocks that are right."""
    return datetime.fromtimestamp(EPOCH_SECONDS + seconds, UTC)


def is_during(outage: tuple[float, float] | None, at: float) -> bool:
    return outage is not None and outage[0] <= at < outage[1]


@dataclass
class Signal:
    """Wakes all who wait for something to do; during the interval `down` only at its end."""

    down: tuple[float, float] | None = None
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    timers: set[float] = field(default_factory=set)

    def is_down(self, now: float) -> bool:
        return is_during(self.down, now)

    async def wait_for[T](self, take: Callable[[], T | None]) -> T:
        """Wait for what can be taken, and return it as soon as there is something."""
        while self.is_down(now()) or (taken := take()) is None:
            if self.is_down(now()):
                self.notify_at(now())
            waiter = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            await waiter
        return taken

    def notify_at(self, when: float) -> None:
        """Wake all at a time, or when the outage is over at that time."""
        loop = asyncio.get_running_loop()
        if self.down is not None and self.is_down(when):
            when = self.down[1]
        if when <= loop.time():
            self.notify()
        elif when not in self.timers:
            self.timers.add(when)
            loop.call_at(when, self.notify, when)

    def notify(self, when: float = 0.0) -> None:
        self.timers.discard(when)
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
