"""Processes that can die or freeze at any await, and the journal and bus as they reach them.

A killed process does nothing more, and nothing reaches it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from proof.simulation.world.broker import Namespace
from proof.simulation.world.faults import FaultInjector, NetworkFault
from proof.simulation.world.recorder import RecordingJournal
from proof.simulation.world.virtual_time import is_during, now
from shared.domain.errors import (
    LockstepError,
    Misconfigured,
    OutcomeUnknown,
    Throttled,
    Unavailable,
)
from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.testkit.injected_faults import ProcessKilled
from shared.testkit.intercepted import WRITES, InterceptedJournal
from shared.testkit.memory_store import EPOCH_SECONDS

ANSWER_SECONDS_MAX = 0.05
# Often longer than a lease and a session lock.
PAUSE_SECONDS_MAX = 30.0
LATE_SECONDS_MAX = 25.0
RETRY_AFTER_SECONDS = 1.0
# As the adapter of Service Bus does, which is not imported for its SDK.
SEND_SECONDS_MAX = 10.0
# As the settings of an app have it, for a call to the journal.
CALL_SECONDS = 10.0
# Below this two virtual times are the same.
INSTANT_SECONDS = 1e-6


@dataclass
class Process:
    name: str
    region: str
    injector: FaultInjector
    # How wrong its clocks are.
    skew_seconds: float = 0.0
    frozen_until: float = 0.0
    # In the order of starting: a set would be in the order of memory addresses.
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    killed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_killed(self) -> bool:
        return self.killed.is_set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self.run_until_killed(work))
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)
        return task

    async def run_until_killed(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (ProcessKilled, asyncio.CancelledError):
            if not self.is_killed:
                raise

    async def attempt[T](self, work: Awaitable[T]) -> T | None:
        """Return what the work gives; None where it raised LockstepError, or the process died."""
        results: list[T] = []

        async def run() -> None:
            with suppress(LockstepError):
                results.append(await work)

        await self.start(run())
        return results[0] if results else None

    def kill(self) -> None:
        self.killed.set()
        # The task that calls this ends by itself.
        here = asyncio.current_task()
        for task in list(self.tasks):
            if task is not here:
                task.cancel()

    def freeze(self) -> None:
        self.frozen_until = now() + self.injector.rng.delay(PAUSE_SECONDS_MAX)

    async def call[T](self, name: str, apply: Callable[[], T], *, writes: bool) -> T:
        rng = self.injector.rng
        fault = self.injector.draw_network_fault(f"{self.name} {name}", now(), writes=writes)
        await self.wait(rng.delay(ANSWER_SECONDS_MAX))
        await self.fail_before(fault, name, apply)
        answer = apply()
        if fault is NetworkFault.SENT_TWICE:
            answer = apply()
        outcome = getattr(answer, "name", type(answer).__name__)
        rng.trace_event(f"{now():.6f} {self.name} {name} {outcome}")
        await self.wait(rng.delay(ANSWER_SECONDS_MAX))
        await self.fail_after(fault, name)
        return answer

    async def fail_before(
        self, fault: NetworkFault, name: str, apply: Callable[[], object]
    ) -> None:
        """Fail as injected before the call is applied, or instead."""
        match fault:
            case NetworkFault.REFUSED | NetworkFault.RETRY_WITH:
                raise Unavailable(f"{name} {fault}")
            case NetworkFault.THROTTLED:
                raise Throttled(f"{name} {fault}", RETRY_AFTER_SECONDS)
            case NetworkFault.LOST:
                raise OutcomeUnknown(f"{name} {fault}")
            case NetworkFault.APPLIED_LATE:
                late = self.injector.rng.delay(LATE_SECONDS_MAX)
                asyncio.get_running_loop().call_later(late, apply_late, apply)
                raise OutcomeUnknown(f"{name} may still be applied")
            case NetworkFault.CRASH_BEFORE:
                self.kill()
                raise ProcessKilled(self.name)
            case NetworkFault.SLOW_BEFORE:
                await self.wait_for_slow_request(apply)
            case NetworkFault.FROZEN_BEFORE:
                self.freeze()
                await self.wait(0.0)

    async def wait_for_slow_request(self, apply: Callable[[], object]) -> None:
        """Wait until a slow request arrives, which it does even if its sender dies."""
        try:
            await self.wait(self.injector.rng.delay(PAUSE_SECONDS_MAX))
        except (asyncio.CancelledError, ProcessKilled):
            if now() < self.injector.profile.faults_end_at:
                apply_late(apply)
            raise

    async def fail_after(self, fault: NetworkFault, name: str) -> None:
        match fault:
            case NetworkFault.UNANSWERED:
                raise OutcomeUnknown(f"{name} {fault}")
            case NetworkFault.CRASH_AFTER:
                self.kill()
                raise ProcessKilled(self.name)
            case NetworkFault.SLOW_AFTER:
                await self.wait(self.injector.rng.delay(PAUSE_SECONDS_MAX))
            case NetworkFault.FROZEN_AFTER:
                self.freeze()
                await self.wait(0.0)

    async def wait(self, seconds: float) -> None:
        """Let time pass; a frozen process goes on late, and a killed one does not."""
        await asyncio.sleep(seconds)
        if (left := self.frozen_until - now()) > INSTANT_SECONDS:
            # A process that is frozen again meanwhile notices that at its next wait.
            await asyncio.sleep(left)
        if self.is_killed:
            raise ProcessKilled(self.name)


def apply_late(apply: Callable[[], object]) -> None:
    """Apply a call whose caller has given up, and so hears nothing of an error."""
    with suppress(LockstepError):
        apply()


@dataclass(frozen=True, slots=True)
class ProcessClock:
    """See ports.Clock: a process's own, as wrong as its process is skewed."""

    process: Process

    def now(self) -> float:
        return now() + self.process.skew_seconds

    def today(self) -> float:
        """Return the seconds since 1970, as the process believes."""
        return EPOCH_SECONDS + self.now()

    async def sleep(self, seconds: float) -> None:
        await self.process.wait(seconds)


class RemoteJournal(InterceptedJournal):
    """A journal as a process reaches it: every call may go wrong on its way there and back."""

    def __init__(
        self,
        process: Process,
        journal: RecordingJournal,
        write_seconds: float = 0.0,
        forbidden: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(journal)
        self.process = process
        self.recording = journal
        self.write_seconds = write_seconds
        self.forbidden = forbidden

    async def intercept(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make the call through the process, as far away as the store is.

        It fails where the store refuses this region's app, or nothing is written for now.
        """
        writes = name in WRITES
        await self.process.wait(self.write_seconds if writes else self.write_seconds / 2)
        if is_during(self.forbidden, now()):
            raise Misconfigured(f"{name}: forbidden (403)")
        if writes and is_during(self.recording.fail_over, now()):
            if self.recording.silent is not None:
                await self.process.wait(CALL_SECONDS)
                if self.recording.silent.random() < 0.5:
                    apply_late(lambda: result_of(call()))
                raise OutcomeUnknown(f"{name}: the write region is silent")
            await self.process.wait(0.01)
            raise Unavailable(f"{name}: the write region fails over")
        return await self.process.call(name, lambda: result_of(call()), writes=writes)

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:
        head = await super().head(session)
        if newest or head is None or head.position == 0:
            return head
        injector = self.process.injector
        where = f"{self.process.name} head"
        if not injector.inject(injector.profile.stale_reads, "stale read", where, now()):
            return head
        return self.recording.entry_at(session, head.position - 1) or head


def result_of[T](work: Awaitable[T]) -> T:
    """Return the result of a coroutine of the in-memory twin, which never waits for anything."""
    coroutine: Any = work
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("the twin waited for something")


@dataclass(frozen=True, slots=True)
class RemoteBus:
    """See ports.Bus: the namespaces of all regions, as one process reaches them."""

    process: Process
    namespaces: dict[str, Namespace]

    async def look(self, region: str, queue: str) -> None:
        if self.namespaces[region].signal.is_down(now()):
            await self.process.wait(0.01)
            raise Unavailable(f"region {region} is unavailable")
        await self.process.call(f"look {region} {queue}", lambda: None, writes=False)

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        namespace = self.namespaces[region]
        if is_during(namespace.refusing.get(queue), now()):
            await self.process.wait(0.01)
            raise Misconfigured(f"no queue {queue!r} in {region}, or no right to send to it")
        if namespace.signal.is_down(now()) and namespace.is_silent:
            # The adapter gives up after this time. What it sent may have been taken.
            await self.process.wait(SEND_SECONDS_MAX)
            raise OutcomeUnknown(f"region {region} took a connection and did not answer")
        if namespace.signal.is_down(now()):
            await self.process.wait(0.01)
            raise Unavailable(f"region {region} is unavailable")
        injector, sent, name = self.process.injector, messages, f"send {region} {queue}"
        if len(messages) > 1 and injector.inject(
            injector.profile.calls, "half a batch", f"{self.process.name} {name}", now()
        ):
            sent = messages[: int(injector.rng.delay(len(messages)))]
        await self.process.call(
            name,
            lambda: namespace.accept(queue, sent, now() + delay_seconds),
            writes=True,
        )
        if len(sent) < len(messages):
            raise OutcomeUnknown("part of a batch was sent")

    async def end_dead_letters(self, *_: object, **__: object) -> int:
        """See Bus.end_dead_letters: the simulated broker never gives up on a message."""
        return 0
