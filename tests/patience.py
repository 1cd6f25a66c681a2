"""How tests wait for what other processes and threads do: with a limit in fair time."""

from collections.abc import Callable

from proof.testbed.control import ControlRefused
from proof.testbed.patience import wait_until

POLL_SECONDS = 0.01
# A poll may ask for what is not there yet: a key, a file, a process that does not listen yet, an
# answer that says something else. Whether it ever comes is for the limit to say.
NOT_YET = (AssertionError, LookupError, OSError, ValueError, ControlRefused)


def eventually[T](ask: Callable[[], T], *, seconds: float = 60.0, what: str = "it") -> T:
    """Ask until the answer is truthy, and return it.

    What an asking raises because something is not there yet counts as no. When the time is over
    this raises PatienceExhausted with the last answer, or because of the last error.
    """
    return wait_until(
        ask,
        seconds=seconds,
        what=f"{what} did not happen",
        poll_seconds=POLL_SECONDS,
        not_yet=NOT_YET,
    )


def until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait for a condition; raises PatienceExhausted with its name when the time is over."""
    eventually(condition, seconds=seconds, what=what)
