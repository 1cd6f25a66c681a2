"""What is given up on is logged once a minute, with the number of times it happened."""

import pytest

from shared.domain.errors import Misconfigured, Unavailable
from shared.engine.worker import FAILURES_MAX, FailureLog
from shared.testkit.memory_store import VirtualClock


def test_the_same_in_the_same_place_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    failures = FailureLog(clock)

    for second in range(121):
        clock.seconds = float(second)
        failures.add("sending outputs", "east", Misconfigured("the queue is disabled"))
    failures.add("sending outputs", "west", Unavailable("busy"))
    failures.add("recording an acknowledgement", "east", Unavailable("busy"))

    first = "sending outputs: east: Misconfigured: the queue is disabled"
    again = f"{first} (59 more since the last warning)"
    assert caplog.messages == [
        *(first, again, again),
        "sending outputs: west: Unavailable: busy",
        "recording an acknowledgement: east: Unavailable: busy",
    ]


def test_what_is_remembered_is_bounded() -> None:
    failures = FailureLog(VirtualClock())

    for place in range(3 * FAILURES_MAX):
        failures.add("sending", str(place), Unavailable("busy"))

    assert len(failures.logged) <= FAILURES_MAX
