"""Who listens is woken when there may be something to do, and not before."""

import asyncio
from dataclasses import dataclass, field


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
