"""Retry policies of functions, as the worker hands them over."""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

FOR_EVER = -1


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Up to `max_count` more runs after a failed one (infinity: for ever), pauses in seconds.

    The n-th pause is `first` times `factor` to the n, and never above `longest`.
    """

    max_count: float
    first: float
    longest: float
    factor: float

    @classmethod
    def read(cls, options: Any) -> "RetryPolicy":
        """Read the worker's options; a strategy of another name raises ValueError.

        The real host strews its exponential pauses a little; these double exactly.
        """
        count = options.max_retry_count
        max_count = math.inf if count == FOR_EVER else float(count)
        match options.retry_strategy:
            case "fixed_delay":
                delay = seconds(options.delay_interval)
                return cls(max_count, delay, delay, 1.0)
            case "exponential_backoff":
                least, most = seconds(options.minimum_interval), seconds(options.maximum_interval)
                return cls(max_count, least, most, 2.0)
            case other:
                raise ValueError(f"the retry strategy {other!r} is not honoured")

    def pause(self, failures: int) -> float:
        """How long to wait after so many failures in a row, at least one."""
        exponent = min(failures - 1, 1000)
        return float(min(self.first * self.factor**exponent, self.longest))

    @property
    def told_count(self) -> int:
        """The most retries, as a function is told: -1 for ever."""
        return FOR_EVER if math.isinf(self.max_count) else int(self.max_count)


def seconds(interval: timedelta) -> float:
    """An interval in seconds."""
    return interval.total_seconds()
