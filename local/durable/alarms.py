"""Callbacks at points in time, run by one thread however many there are."""

import heapq
import time
from collections.abc import Callable
from itertools import count
from threading import Condition, Thread


class Alarms:
    """Runs each callback once, at its time or soon after; nothing runs before `start`."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._thread: Thread | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Begin to run what is due."""
        self._is_stopping = False
        self._thread = Thread(target=self._run, name="durable-alarms", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Run nothing more; what was not due is kept for the next start."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Run a callback in so many seconds; it must not block for long, nor raise."""
        with self._changed:
            due = time.monotonic() + max(seconds, 0.0)
            heapq.heappush(self._heap, (due, next(self._numbers), callback))
            self._changed.notify()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            callback()

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next callback that is due; None at the end."""
        with self._changed:
            while not self._is_stopping:
                wait = self._heap[0][0] - time.monotonic() if self._heap else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._heap)[2]
                self._changed.wait(wait)
            return None
