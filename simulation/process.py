"""A process that can die or freeze at any await; of the dead nothing is ever heard again."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from shared.adapters.memory_store import EPOCH_SECONDS
from shared.domain.errors import LockstepError, OutcomeUnknown, Throttled, Unavailable
from simulation.loop import now
from simulation.weather import Misfortune, Weather

ANSWER_SECONDS_MAX = 0.05
# Often longer than a lease and a session lock.
PAUSE_SECONDS_MAX = 30.0
LATE_SECONDS_MAX = 25.0
RETRY_AFTER_SECONDS = 1.0
# Below this two virtual times are the same.
INSTANT_SECONDS = 1e-6


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
    frozen_until: float = 0.0
    # In the order of starting: a set would be in the order of memory addresses.
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    death: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that ends when the process dies."""
        task = asyncio.create_task(self.mortal(work))
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)
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
        self.death.set()
        # The one that dies here and now ends by itself.
        here = asyncio.current_task()
        for task in list(self.tasks):
            if task is not here:
                task.cancel()

    def freeze(self) -> None:
        """Stand still for a while, every task, as a paused virtual machine does."""
        self.frozen_until = now() + self.weather.chance.delay(PAUSE_SECONDS_MAX)

    async def call[T](self, name: str, apply: Callable[[], T], *, writes: bool) -> T:
        """Call the outside: it takes time, and something may happen."""
        chance = self.weather.chance
        misfortune = self.weather.on_call(f"{self.name} {name}", now(), writes=writes)
        await self.wait(chance.delay(ANSWER_SECONDS_MAX))
        await self.suffer_before(misfortune, name, apply)
        answer = apply()
        if misfortune is Misfortune.ECHOED:
            answer = apply()
        chance.note(
            f"{now():.6f} {self.name} {name} {getattr(answer, 'name', type(answer).__name__)}"
        )
        await self.wait(chance.delay(ANSWER_SECONDS_MAX))
        await self.suffer_after(misfortune, name)
        return answer

    async def suffer_before(
        self, misfortune: Misfortune, name: str, apply: Callable[[], object]
    ) -> None:
        """What happens before a call is applied, or instead."""
        match misfortune:
            case Misfortune.REFUSED | Misfortune.RETRY_WITH:
                raise Unavailable(f"{name} {misfortune}")
            case Misfortune.THROTTLED:
                raise Throttled(f"{name} {misfortune}", RETRY_AFTER_SECONDS)
            case Misfortune.LOST:
                raise OutcomeUnknown(f"{name} {misfortune}")
            case Misfortune.DELAYED:
                late = self.weather.chance.delay(LATE_SECONDS_MAX)
                asyncio.get_running_loop().call_later(late, applied_late, apply)
                raise OutcomeUnknown(f"{name} is on its way")
            case Misfortune.CRASH_BEFORE:
                self.die()
                raise Died(self.name)
            case Misfortune.SLOW_BEFORE:
                await self.crawl(apply)
            case Misfortune.FROZEN_BEFORE:
                self.freeze()
                await self.wait(0.0)
            case _:
                return

    async def crawl(self, apply: Callable[[], object]) -> None:
        """Wait for a slow request to arrive; it does, too, when nobody waits for it any more."""
        try:
            await self.wait(self.weather.chance.delay(PAUSE_SECONDS_MAX))
        except (asyncio.CancelledError, Died):
            if now() < self.weather.climate.fair_after:
                applied_late(apply)
            raise

    async def suffer_after(self, misfortune: Misfortune, name: str) -> None:
        """What happens after a call was applied."""
        match misfortune:
            case Misfortune.UNANSWERED:
                raise OutcomeUnknown(f"{name} {misfortune}")
            case Misfortune.CRASH_AFTER:
                self.die()
                raise Died(self.name)
            case Misfortune.SLOW_AFTER:
                await self.wait(self.weather.chance.delay(PAUSE_SECONDS_MAX))
            case Misfortune.FROZEN_AFTER:
                self.freeze()
                await self.wait(0.0)
            case _:
                return

    async def wait(self, seconds: float) -> None:
        """Let time pass; the frozen come back late from it, and the dead do not."""
        await asyncio.sleep(seconds)
        if (left := self.frozen_until - now()) > INSTANT_SECONDS:
            # Whoever was frozen again meanwhile notices at its next wait.
            await asyncio.sleep(left)
        if self.is_dead:
            raise Died(self.name)


def applied_late(apply: Callable[[], object]) -> None:
    """Apply a call whose caller has given up; a store that refuses it tells nobody."""
    try:
        apply()
    except LockstepError:
        return


@dataclass(frozen=True, slots=True)
class ProcessClock:
    """See ports.Clock: a process's own, as wrong as its process is skewed."""

    process: Process

    def now(self) -> float:
        """Seconds that never go back."""
        return now() + self.process.skew_seconds

    def today(self) -> float:
        """Seconds since 1970, as the process believes."""
        return EPOCH_SECONDS + self.now()

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        await self.process.wait(seconds)
