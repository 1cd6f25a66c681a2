"""Callbacks in time, on one thread, and when a look at the hub's queue finds what is due."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from queue import Queue

import pytest

from local.durable.timing import TimedBackend, Timers, next_look
from local.loopback import LoopThread

SECONDS_MAX = 60.0


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


@pytest.mark.parametrize(
    ("now", "longest", "look_at"),
    [
        (0.0, 30.0, 0.0),
        (0.04, 30.0, 0.05),
        (1.0, 30.0, 1.55),
        (20.0, 30.0, 25.55),
        (60.0, 30.0, 81.15),
        (111.0, 30.0, 111.15),
        (20.0, 5.0, 21.35),
        (20.0, 0.0, 20.0),
    ],
)
def test_looks_at_the_queue_are_twice_as_far_apart_each_time_up_to_the_longest(
    now: float, longest: float, look_at: float
) -> None:
    assert next_look(100.0, 100.0 + now, longest) == pytest.approx(100.0 + look_at)


def test_what_is_due_in_a_quiet_hub_waits_for_a_look_which_any_message_causes(
    timers: Timers,
) -> None:
    hub, ran = TimedBackend(timers), threading.Event()
    hub.set_polling(36_000.0)
    with hub._lock:
        hub._call_at(datetime.now(UTC), ran.set)
        hub._woken_at = time.monotonic() - 10_000.0

    assert not ran.wait(0.2)
    with hub._lock:
        hub._enqueue_orchestration("whichever")

    assert ran.wait(SECONDS_MAX)
