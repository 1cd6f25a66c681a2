"""Callbacks in time, on one thread."""

import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from local.durable.alarms import Alarms

SECONDS_MAX = 5.0


@pytest.fixture
def alarms() -> Iterator[Alarms]:
    alarms = Alarms()
    yield alarms
    alarms.stop()


def test_callbacks_run_in_the_order_of_their_times(alarms: Alarms) -> None:
    heard: Queue[str] = Queue()
    alarms.after(0.05, lambda: heard.put("second"))
    alarms.after(0.0, lambda: heard.put("first"))
    alarms.start()

    alarms.after(0.1, lambda: heard.put("third"))

    assert [heard.get(timeout=SECONDS_MAX) for _ in range(3)] == ["first", "second", "third"]


def test_an_earlier_one_does_not_wait_for_a_later_one(alarms: Alarms) -> None:
    heard: Queue[str] = Queue()
    alarms.start()
    alarms.after(3600, lambda: heard.put("in an hour"))

    alarms.after(0.0, lambda: heard.put("now"))

    assert heard.get(timeout=SECONDS_MAX) == "now"
    assert heard.empty()


def test_a_stop_ends_the_thread(alarms: Alarms) -> None:
    before = threading.active_count()
    alarms.start()
    alarms.after(3600, threading.Event().set)

    alarms.stop()

    assert threading.active_count() == before
