"""What COUNT, SUM, AVG, MIN and MAX come to over all rows of a query.

Undefined values are passed over. A value of a type that an aggregate cannot take makes the whole
of it undefined: anything but numbers for SUM and AVG, arrays and objects for MIN and MAX.
"""

from collections.abc import Callable
from typing import Any, Protocol

from local.cosmos.query_values import UNDEFINED, is_number, number_of, sort_key


class Total(Protocol):
    """An aggregate under way; values are never undefined."""

    def add(self, value: Any, /) -> None:
        """Take one row's value into account."""
        ...

    def result(self) -> Any:
        """What it comes to so far, which may be UNDEFINED."""
        ...


class Count:
    """How many values there are."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, _value: Any) -> None:
        """Count it, whatever it is."""
        self._count += 1

    def result(self) -> Any:
        """The count."""
        return self._count


class Sum:
    """The sum of numbers, zero for none; or, with `is_mean`, their mean."""

    def __init__(self, *, is_mean: bool = False) -> None:
        self._sum: float = 0
        self._count = 0
        self._is_defined = True
        self._is_mean = is_mean

    def add(self, value: Any) -> None:
        """Add a number."""
        self._count += 1
        if is_number(value):
            self._sum += value
        else:
            self._is_defined = False

    def result(self) -> Any:
        """The sum or mean."""
        if not self._is_defined or (self._is_mean and self._count == 0):
            return UNDEFINED
        return number_of(self._sum / self._count if self._is_mean else self._sum)


class Extreme:
    """The lowest of scalars, or with `is_highest` the highest: null, booleans, numbers, strings."""

    def __init__(self, *, is_highest: bool) -> None:
        self._best: Any = UNDEFINED
        self._is_defined = True
        self._is_highest = is_highest

    def add(self, value: Any) -> None:
        """Compare a scalar with the best so far."""
        if isinstance(value, list | dict):
            self._is_defined = False
        elif self._best is UNDEFINED or self._is_better(value):
            self._best = value

    def result(self) -> Any:
        """The best scalar."""
        return self._best if self._is_defined else UNDEFINED

    def _is_better(self, value: Any) -> bool:
        one, other = sort_key(value), sort_key(self._best)
        return one > other if self._is_highest else one < other


AGGREGATES: dict[str, Callable[[], Total]] = {
    "COUNT": Count,
    "SUM": Sum,
    "AVG": lambda: Sum(is_mean=True),
    "MIN": lambda: Extreme(is_highest=False),
    "MAX": lambda: Extreme(is_highest=True),
}
