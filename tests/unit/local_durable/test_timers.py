"""Callbacks in time, on one thread."""

import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from local.durable.timing import Timers

SECONDS_MAX = 5.0


@pytest.fixture
def timers() -> Iterator[Timers]:
    timers = Timers()
    yield timers
    timers.stop()


def test_callbacks_run_in_the_order_of_their_times(timers: Timers) -> None:
    ran: Queue[str] = Queue()
    timers.after(0.05, lambda: ran.put("second"))
    timers.after(0.0, lambda: ran.put("first"))
    timers.start()

    timers.after(0.1, lambda: ran.put("third"))

    assert [ran.get(timeout=SECONDS_MAX) for _ in range(3)] == ["first", "second", "third"]


def test_an_earlier_one_does_not_wait_for_a_later_one(timers: Timers) -> None:
    ran: Queue[str] = Queue()
    timers.start()
    timers.after(3600, lambda: ran.put("in an hour"))

    timers.after(0.0, lambda: ran.put("now"))

    assert ran.get(timeout=SECONDS_MAX) == "now"
    assert ran.empty()


def test_a_stop_ends_the_thread(timers: Timers) -> None:
    before = threading.active_count()
    timers.start()
    timers.after(3600, threading.Event().set)

    timers.stop()

    assert threading.active_count() == before
