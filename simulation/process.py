"""A process that can die at any await: its tasks end, and nothing it calls is heard any more."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from shared.adapters.memory_store import EPOCH_SECONDS
from shared.domain.errors import OutcomeUnknown, Unavailable
from simulation.weather import Misfortune, Weather

ANSWER_SECONDS_MAX = 0.05
# Longer than a lease and a session lock.
PAUSE_SECONDS = 90.0
LATE_SECONDS_MAX = 60.0


class Died(BaseException):
    """The process is no more; nothing in it may catch this."""


@dataclass
class Process:
    """One simulated operating system process."""

    name: str
    region: str
    weather: Weather
    # How wrong its clocks are.
    skew_seconds: float = 0.0
    is_dead: bool = False
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that ends when the process dies."""
        task = asyncio.create_task(self.mortal(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def mortal(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; dying is an end like any other."""
        try:
            await work
        except (Died, asyncio.CancelledError):
            if not self.is_dead:
                raise

    def die(self) -> None:
        """End every task, now."""
        self.is_dead = True
        # The one that dies here and now ends by itself.
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()

    async def call[T](self, name: str, apply: Callable[[], T], *, writes: bool) -> T:
        """Call the outside: it takes time, and something may happen."""
        loop = asyncio.get_running_loop()
        misfortune = self.weather.on_call(f"{self.name} {name}", loop.time(), writes=writes)
        await self.wait(self.weather.chance.delay(ANSWER_SECONDS_MAX))
        if misfortune is Misfortune.PAUSE_BEFORE:
            await self.wait(PAUSE_SECONDS)
        if misfortune in (Misfortune.CRASH_BEFORE, Misfortune.LOST, Misfortune.REFUSED):
            self.fail(name, misfortune)
        if misfortune is Misfortune.DELAYED:
            loop.call_later(self.weather.chance.delay(LATE_SECONDS_MAX), applied_late, apply)
            raise OutcomeUnknown(f"{name} is on its way")
        answer = apply()
        self.weather.chance.note(f"{loop.time():.6f} {self.name} {name} {type(answer).__name__}")
        await self.wait(self.weather.chance.delay(ANSWER_SECONDS_MAX))
        if misfortune is Misfortune.PAUSE_AFTER:
            await self.wait(PAUSE_SECONDS)
        if misfortune in (Misfortune.CRASH_AFTER, Misfortune.UNANSWERED):
            self.fail(name, misfortune)
        return answer

    def fail(self, name: str, misfortune: Misfortune) -> None:
        """Raise what the misfortune means to the caller."""
        if misfortune in (Misfortune.CRASH_BEFORE, Misfortune.CRASH_AFTER):
            self.die()
            raise Died(self.name)
        if misfortune is Misfortune.REFUSED:
            raise Unavailable(f"{name} refused")
        raise OutcomeUnknown(f"{name} unanswered")

    async def wait(self, seconds: float) -> None:
        """Let time pass; the dead do not come back from it."""
        await asyncio.sleep(seconds)
        if self.is_dead:
            raise Died(self.name)


def applied_late(apply: Callable[[], object]) -> None:
    """Apply a call whose caller has given up; a store that refuses it tells nobody."""
    try:
        apply()
    except (Unavailable, OutcomeUnknown):
        return


@dataclass(frozen=True, slots=True)
class ProcessClock:
    """See ports.Clock: a process's own, as wrong as its process is skewed."""

    process: Process

    def now(self) -> float:
        """Seconds that never go back."""
        return asyncio.get_running_loop().time() + self.process.skew_seconds

    def today(self) -> float:
        """Seconds since 1970, as the process believes."""
        return EPOCH_SECONDS + self.now()

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        await self.process.wait(seconds)
