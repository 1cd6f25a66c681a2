"""Processes that can die or freeze at any await, and the journal and bus as they reach them.

Of a dead process nothing is ever heard again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.adapters.memory_store import EPOCH_SECONDS
from shared.domain.errors import LockstepError, OutcomeUnknown, Throttled, Unavailable
from shared.domain.journal import Entry
from shared.domain.message import Message
from simulation.broker import Namespace
from simulation.faults import Misfortune, Weather
from simulation.recorder import WitnessedJournal
from simulation.virtual_time import now

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


WRITES = frozenset({"append", "replace", "owe", "acknowledge", "stage", "save_ledger", "compact"})


class DistantJournal:
    """See ports.Journal. Every call goes through the process and may go wrong there."""

    def __init__(self, process: Process, journal: WitnessedJournal) -> None:
        self.process = process
        self.journal = journal

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """A method of the twin, called from afar."""
        method = getattr(self.journal, name)
        writes = name in WRITES

        async def distant(*arguments: Any, **options: Any) -> Any:
            if writes and self.journal.is_read_only(now()):
                await self.process.wait(0.01)
                raise Unavailable(f"{name}: the write region fails over")
            return await self.process.call(
                name, lambda: finished(method(*arguments, **options)), writes=writes
            )

        return distant

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:
        """The newest entry, or an older one where that will do."""
        head: Entry | None = await self.process.call(
            "head", lambda: finished(self.journal.head(session)), writes=False
        )
        if newest or head is None or head.position == 0:
            return head
        weather = self.process.weather
        where = f"{self.process.name} head"
        if not weather.strikes(weather.climate.stale_reads, "stale read", where, now()):
            return head
        return self.journal.entry_at(session, head.position - 1) or head


def finished[T](work: Awaitable[T]) -> T:
    """The result of a coroutine of the twin, which never waits for anything."""
    coroutine: Any = work
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("the twin waited for something")


@dataclass(frozen=True, slots=True)
class DistantBus:
    """See ports.Bus: the namespaces of all regions, as one process reaches them."""

    process: Process
    namespaces: dict[str, Namespace]

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """Send, perhaps only the first of them."""
        namespace = self.namespaces[region]
        if namespace.is_down(now()):
            await self.process.wait(0.01)
            raise Unavailable(f"region {region} is dark")
        sent = self.first_of(messages, f"{self.process.name} send {region} {queue}")
        await self.process.call(
            f"send {region} {queue}",
            lambda: namespace.accept(queue, sent, now() + delay_seconds),
            writes=True,
        )
        if len(sent) < len(messages):
            raise OutcomeUnknown("part of a batch was sent")

    def first_of(self, messages: Sequence[Message], where: str) -> Sequence[Message]:
        """All messages, or as many as get through."""
        weather = self.process.weather
        if len(messages) < 2 or not weather.strikes(
            weather.climate.calls, "half a batch", where, now()
        ):
            return messages
        return messages[: int(weather.chance.delay(len(messages)))]
