"""Virtual time: waiting takes no time, and the same program runs the same way."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any


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
        """Forget a file."""
        return self.keys.pop(fileobj)

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        """What is registered."""
        return self.keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self.virtual = VirtualSelector()
        super().__init__(self.virtual)
        # Timers are compared with the clock's resolution; ours is exact.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.virtual.seconds

    def run_in_executor[T](  # type: ignore[override]
        self, _: Any, work: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        """Run what wants a thread at once: threads would take turns as they please."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


def run[T](main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


@dataclass
class Bell:
    """Wakes all who listen. While it is `down`, it rings when that is over."""

    down: tuple[float, float] | None = None
    listeners: list[asyncio.Future[None]] = field(default_factory=list)
    set_for: set[float] = field(default_factory=set)

    def is_down(self, now: float) -> bool:
        """Whether nobody is to be woken."""
        return self.down is not None and self.down[0] <= now < self.down[1]

    async def heard(self) -> None:
        """Wait until it rings."""
        listener = asyncio.get_running_loop().create_future()
        self.listeners.append(listener)
        await listener

    def ring_at(self, when: float) -> None:
        """Ring at a time, or when it is not down any more."""
        loop = asyncio.get_running_loop()
        if self.down is not None and self.is_down(when):
            when = self.down[1]
        if when <= loop.time():
            self.ring()
        elif when not in self.set_for:
            self.set_for.add(when)
            loop.call_at(when, self.ring, when)

    def ring(self, when: float = 0.0) -> None:
        """Ring now."""
        self.set_for.discard(when)
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            if not listener.done():
                listener.set_result(None)
