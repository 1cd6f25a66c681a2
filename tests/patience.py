"""How tests wait for what other processes and threads do: with a limit in fair time."""

import time
from collections.abc import Callable

from proof.testbed.control import ControlRefused
from proof.testbed.patience import Patience, PatienceExhausted

POLL_SECONDS = 0.01
# A poll may ask for what is not there yet: a key, a file, a process that does not listen yet, an
# answer that says something else. Whether it ever comes is for the limit to say.
NOT_YET = (AssertionError, LookupError, OSError, ValueError, ControlRefused)


def eventually[T](ask: Callable[[], T], *, seconds: float = 60.0, what: str = "it") -> T:
    """Ask until the answer is truthy, and return it.

    What an asking raises because something is not there yet counts as no. When the time is over
    this raises PatienceExhausted with the last answer, or because of the last error.
    """
    patience = Patience(seconds)
    while True:
        last, error = None, None
        try:
            if last := ask():
                return last
        except NOT_YET as raised:
            error = raised
        if patience.is_over():
            said = repr(error) if error else repr(last)
            raise PatienceExhausted(f"{what} did not happen within {seconds} s: {said}") from error
        time.sleep(POLL_SECONDS)


def until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait for a condition; raises PatienceExhausted with its name when the time is over."""
    eventually(condition, seconds=seconds, what=what)
