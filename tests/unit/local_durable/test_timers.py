"""Callbacks in time, on one thread."""

import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from local.durable.timing import Timers
from local.loopback import LoopThread

SECONDS_MAX = 5.0


@pytest.fixture
def timers() -> Iterator[Timers]:
    loop = LoopThread("timers")
    timers = Timers(loop.loop)
    yield timers
    loop.end()
    timers.close()


def test_callbacks_run_in_the_order_of_their_times(timers: Timers) -> None:
    ran: Queue[str] = Queue()
    timers.after(0.1, lambda: ran.put("second"))
    timers.after(0.0, lambda: ran.put("first"))

    timers.after(0.2, lambda: ran.put("third"))

    assert [ran.get(timeout=SECONDS_MAX) for _ in range(3)] == ["first", "second", "third"]


def test_an_earlier_one_does_not_wait_for_a_later_one(timers: Timers) -> None:
    ran: Queue[str] = Queue()
    timers.after(3600, lambda: ran.put("in an hour"))

    timers.after(-1.0, lambda: ran.put("now"))

    assert ran.get(timeout=SECONDS_MAX) == "now"
    assert ran.empty()


def test_the_thread_ends_when_the_loop_has_ended() -> None:
    before = threading.active_count()
    loop, ran = LoopThread("timers"), threading.Event()
    timers = Timers(loop.loop)
    timers.after(0.0, ran.set)
    assert ran.wait(SECONDS_MAX)
    timers.after(3600, ran.clear)

    loop.end()
    timers.close()

    assert threading.active_count() == before
    assert ran.is_set()
