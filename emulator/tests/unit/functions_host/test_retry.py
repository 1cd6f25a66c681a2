"""Retry policies, as the worker hands them over."""

import math
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from local.functions_host.config.functions import RetryPolicy


def options(strategy: str, count: int, **intervals: timedelta) -> Any:
    return SimpleNamespace(retry_strategy=strategy, max_retry_count=count, **intervals)


def test_a_fixed_delay_stays_the_same() -> None:
    policy = RetryPolicy.read(options("fixed_delay", 3, delay_interval=timedelta(seconds=2)))

    assert policy.max_count == 3
    assert [policy.pause(failures) for failures in (1, 2, 10)] == [2.0, 2.0, 2.0]


def test_an_exponential_backoff_doubles_up_to_its_maximum_for_ever() -> None:
    policy = RetryPolicy.read(
        options(
            "exponential_backoff",
            -1,
            minimum_interval=timedelta(seconds=1),
            maximum_interval=timedelta(seconds=10),
        )
    )

    assert math.isinf(policy.max_count)
    assert policy.wire_max_count == -1
    assert [policy.pause(failures) for failures in (1, 2, 3, 4, 5, 10**6)] == [1, 2, 4, 8, 10, 10]


def test_another_strategy_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'by_mood'"):
        RetryPolicy.read(options("by_mood", 1))
