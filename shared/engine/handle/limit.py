"""A handler has a limit of its own: what takes longer is cut off, and its message goes on.

A run past the timeout of the host takes the whole worker with it, and every other session's run in
it; the other region would then do the same, and so on for ever.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from pathlib import Path
from threading import Thread, get_ident
from types import CodeType
from typing import Any

# How often the watchdog looks, in seconds.
LOOK_SECONDS = 0.5
# Runs that were cut off may go on in their threads; with so many of them no other is begun.
ABANDONED_MAX = 1_000
FOLDER = str(Path(__file__).parent)
THREAD_NAME = "lockstep-handler"


class HandlerCutOff(BaseException):
    """Raised inside a handler that runs for too long, past every `except Exception` of its own."""


class TookTooLong(TimeoutError):
    """A run of a handler was cut off at its limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"took more than {seconds:g} s")


class Watchdog:
    """Cuts off runs that do not end in the thread of the event loop.

    A thread looks at what runs now and then. Only for a run that is late does it switch monitoring
    on, whose callback is called by the running thread itself, at the next line or jump. So whether
    the run is still going on is decided where the exception is raised, and no other code can meet
    it; and a run in time costs two entries in a dictionary. Code in C that never comes back to
    Python cannot be cut off.
    """

    def __init__(self) -> None:
        # By thread: when the run has to end, on the monotonic clock. A handler's runner keeps this.
        self.ends: dict[int, float] = {}
        self.thread: Thread | None = None
        self.tool: int | None = None

    def start(self) -> None:
        self.thread = Thread(target=self.look, name="lockstep-watchdog", daemon=True)
        self.thread.start()

    def look(self) -> None:
        """Switch monitoring on while a run is late."""
        while True:
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            is_late = any(end < now for end in list(self.ends.values()))
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
        is_late = end is not None and end < time.monotonic()
        # Never in the few lines of this folder that begin and end the watch.
        if is_late and not code.co_filename.startswith(FOLDER):
            raise HandlerCutOff


# One for the process: its thread is started with the first run.
WATCHDOG = Watchdog()


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
