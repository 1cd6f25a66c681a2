"""A handler has a limit of its own: what takes longer is cut off, and its message goes on.

A run past the timeout of the host takes the whole worker with it, and every other session's run in
it; the other region would then do the same, and so on for ever.
"""

import asyncio
import faulthandler
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Thread, get_ident
from types import CodeType
from typing import Any, Protocol

# How often the watchdog looks, in seconds.
LOOK_SECONDS = 0.5
# Runs that were cut off may go on in their threads; with so many of them no other is begun.
ABANDONED_MAX = 1_000
# In this code nothing is raised: it begins and ends the watch, or runs the loop of other runs.
SPARED = (str(Path(__file__).parent), str(Path(asyncio.__file__).parent))
# A run that has not begun after so long finds its loop held by another one, and gets a new one.
HELD_SECONDS = 1.0
# A loop that is not held cuts a run off by itself, within this time after the limit.
MARGIN_SECONDS = 1.0
# For so long after its limit a run that holds a loop is cut off whenever it comes back to Python.
# One that holds the worker's loop may go on for so long before the process is ended.
GRACE_SECONDS = 5.0
STDERR = 2
THREAD_NAME = "lockstep-handler"


class HandlerCutOff(BaseException):
    """Raised inside a handler that runs for too long, past every `except Exception` of its own."""


class TookTooLong(TimeoutError):
    """A run of a handler was cut off at its limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"took more than {seconds:g} s")


class Run:
    """One run of a handler that calls the outside, for whatever runs on its behalf to name it."""


RUN: ContextVar[Run | None] = ContextVar("lockstep_run", default=None)


class Watchdog:
    """Cuts off runs that hold the thread of an event loop.

    A thread looks at what runs now and then. Only for a run that is late does it switch monitoring
    on, whose callback is called by the running thread itself, at the next line or jump. So whether
    the run is still going on is decided where the exception is raised, and no other code can meet
    it; and a run in time costs two entries in a dictionary. Code in C that never comes back to
    Python cannot be cut off. Where it holds the worker's own loop, or the interpreter's lock,
    nothing else goes on in the process, so that is ended; see `may_end_process`.
    """

    def __init__(self) -> None:
        # By thread: when the run has to end, on the monotonic clock. A handler's runner keeps this.
        self.ends: dict[int, float] = {}
        # Runs that hold a loop of handlers beyond their limit, and until when they are cut off.
        self.late: dict[Run, float] = {}
        # How long the interpreter's lock may be held; None where the process is not ended.
        self.lock_seconds: float | None = None
        self.thread: Thread | None = None
        self.tool: int | None = None

    def may_end_process(self, handler_seconds: float) -> None:
        """From now on end the process for what cannot be cut off, some seconds beyond its limit.

        Its message comes again, and is counted (engine/consume/claim.py).
        """
        self.lock_seconds = handler_seconds + GRACE_SECONDS
        end_process_after(self.lock_seconds)
        self.watch()

    def watch(self) -> None:
        """Start the thread unless it runs; a fork has no threads of its parent."""
        if self.thread is None or not self.thread.is_alive():
            self.start()

    def start(self) -> None:
        self.thread = Thread(target=self.look, name="lockstep-watchdog", daemon=True)
        self.thread.start()

    def look(self) -> None:
        """Switch monitoring on while a run is late, and end the process for one that stays so."""
        while True:
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            first = min(list(self.ends.values()), default=now)
            for run in [run for run, until in list(self.late.items()) if until < now]:
                self.late.pop(run, None)
            if sys.monitoring.get_tool(sys.monitoring.DEBUGGER_ID) is not None:
                # A person looks at what runs, for as long as it takes.
                faulthandler.cancel_dump_traceback_later()
            elif self.lock_seconds is not None:
                # Whoever holds the lock for longer keeps this from being called again in time.
                is_overdue = first + GRACE_SECONDS < now
                end_process_after(LOOK_SECONDS if is_overdue else self.lock_seconds)
                if is_overdue:
                    return
            is_late = first < now or bool(self.late)
            if is_late and self.tool is None:
                self.switch_on()
            elif not is_late and self.tool is not None:
                self.switch_off(self.tool)

    def switch_on(self) -> None:
        """Have every line and every jump of Python code in this process call `cut_off`."""
        monitoring = sys.monitoring
        free = [tool for tool in range(6) if monitoring.get_tool(tool) is None]
        if not free:
            return
        # By convention debuggers, coverage and profilers take other ids than these two.
        self.tool = max(free, key=lambda tool: tool in (3, 4))
        monitoring.use_tool_id(self.tool, THREAD_NAME)
        wanted = (monitoring.events.LINE, monitoring.events.JUMP, monitoring.events.PY_START)
        for event in wanted:
            monitoring.register_callback(self.tool, event, self.cut_off)
        monitoring.set_events(self.tool, sum(wanted))

    def switch_off(self, tool: int) -> None:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)
        self.tool = None

    def cut_off(self, code: CodeType, _: int, *__: object) -> None:
        """Called by whatever thread runs Python code: raise in the run that is late."""
        end = self.ends.get(get_ident())
        is_late = (end is not None and end < time.monotonic()) or RUN.get() in self.late
        if is_late and not code.co_filename.startswith(SPARED):
            raise HandlerCutOff


# One for the process: its thread is started with the first run.
WATCHDOG = Watchdog()


def end_process_after(seconds: float) -> None:
    """End the process then, unless this is called again before; standard error says where it was.

    What waits is a thread of C, which needs no lock of the interpreter.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=STDERR)


class Finish(Protocol):
    """Returns the result of a handler's work, or raises TookTooLong after so many seconds."""

    async def __call__[T](self, work: Coroutine[Any, Any, T], seconds: float) -> T: ...


async def finish_within[T](work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Return the result of the work. After the limit it is cancelled, and TookTooLong is raised.

    Nobody waits for work that goes on although it was cancelled.
    """
    # Begun at once: what waits for nothing needs no turn of the loop.
    running = asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
    try:
        if not running.done():
            await asyncio.wait({running}, timeout=seconds)
    finally:
        if not running.done():
            running.add_done_callback(ignore_result)
            running.cancel()
    if not running.done():
        raise TookTooLong(seconds)
    return running.result()


def ignore_result(ended: asyncio.Future[Any]) -> None:
    """Look at an exception that nobody waits for, or asyncio would report it."""
    if not ended.cancelled():
        ended.exception()


class HandlerLoop:
    """An event loop in a thread of its own; `is_held` says that a run could not begin in time."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.is_held = False
        Thread(target=self.run, name=THREAD_NAME, daemon=True).start()

    def run(self) -> None:
        """Turn the loop, whatever stops it: others' runs are in it as well."""
        while not self.loop.is_closed():
            # A task that a handler leaves behind may raise SystemExit, and the loop hands it on.
            with suppress(BaseException):
                self.loop.run_forever()


class HandlerLoops:
    """Runs the work of handlers in a loop of their own, so that none of them holds the worker's.

    It is the same one from run to run, because clients that an app keeps are bound to their loop.
    Only while a run holds it, others have another one.
    """

    def __init__(self) -> None:
        self.loops: list[HandlerLoop] = []

    async def finish[T](self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """See Finish. A run that holds its loop is cut off in it, as soon as it can be."""
        run = Run()
        one, begun = await self.begin(run, work, seconds)
        running = asyncio.wrap_future(begun)
        try:
            done, _ = await asyncio.wait({running}, timeout=seconds + MARGIN_SECONDS)
        finally:
            # Does nothing to one that is done.
            running.cancel()
        if done:
            return running.result()
        WATCHDOG.late[run] = time.monotonic() + GRACE_SECONDS
        WATCHDOG.watch()
        # Called when the loop turns again: then nobody holds it.
        one.loop.call_soon_threadsafe(WATCHDOG.late.pop, run, None)
        raise TookTooLong(seconds)

    async def begin[T](
        self, run: Run, work: Coroutine[Any, Any, T], seconds: float
    ) -> tuple[HandlerLoop, Future[T]]:
        """Begin the work in a loop that is not held; the loop, and the running work."""
        caller = asyncio.get_running_loop()

        async def start(
            one: HandlerLoop, waiting: list[Coroutine[Any, Any, T]], begun: asyncio.Future[None]
        ) -> T:
            one.is_held = False
            # Empty where it was taken to another loop while this one was held.
            mine = waiting.pop()
            caller.call_soon_threadsafe(begun.set_result, None)
            RUN.set(run)
            try:
                return await finish_within(mine, seconds)
            except HandlerCutOff:
                raise TookTooLong(seconds) from None

        while True:
            one, waiting, begun = self.free_loop(), [work], caller.create_future()
            # The context of this call goes along, and with it the trace.
            starting = asyncio.run_coroutine_threadsafe(start(one, waiting, begun), one.loop)
            try:
                await asyncio.wait({begun}, timeout=HELD_SECONDS)
            except asyncio.CancelledError:
                starting.cancel()
                if waiting:
                    waiting.pop().close()
                raise
            try:
                work = waiting.pop()
            except IndexError:
                return one, starting
            one.is_held = True

    def free_loop(self) -> HandlerLoop:
        """The first loop that is not held, so that it is the same one again when it is let go."""
        for one in self.loops:
            if not one.is_held:
                return one
        if len(self.loops) >= ABANDONED_MAX:
            raise RuntimeError(f"{ABANDONED_MAX} runs of handlers do not end")
        self.loops.append(HandlerLoop())
        return self.loops[-1]


class HandlerThreads(Executor):
    """Runs each piece of work in a thread of its own, which ends with it or with the process.

    How many run side by side is up to the host, which takes so many sessions at once. A pool would
    fill up with runs that never end: a thread cannot be stopped from outside.
    """

    def __init__(self) -> None:
        self.running: set[Thread] = set()

    def submit[**P, T](
        self, work: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
    ) -> Future[T]:
        """Begin the work at once."""
        future: Future[T] = Future()
        if len(self.running) >= ABANDONED_MAX:
            future.set_exception(RuntimeError(f"{ABANDONED_MAX} runs of handlers do not end"))
            return future
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                future.set_result(work(*arguments, **options))
            except BaseException as error:
                future.set_exception(error)
            finally:
                self.running.discard(thread)

        thread = Thread(target=run, name=THREAD_NAME, daemon=True)
        self.running.add(thread)
        thread.start()
        return future
