"""What COUNT, SUM, AVG, MIN and MAX make of the values of all rows, those undefined left out.

A value of a type that an aggregate cannot take makes the whole of it undefined: anything but
numbers for SUM and AVG, arrays and objects for MIN and MAX. Numbers are added as they come:
Python's own `sum` rounds in a way that the service does not promise.
"""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

from local.cosmos.query.values import UNDEFINED, is_number, make_sort_key, normalize_number


def add_up(values: list[Any]) -> Any:
    """The sum, which is zero of no values."""
    return normalize_number(reduce(add, values, 0)) if all(map(is_number, values)) else UNDEFINED


def average(values: list[Any]) -> Any:
    if not values or not all(map(is_number, values)):
        return UNDEFINED
    return normalize_number(reduce(add, values, 0) / len(values))


def find_extreme(values: list[Any], choose: Callable[..., Any]) -> Any:
    """The lowest or highest of scalars: null, booleans, numbers, strings."""
    if not values or any(isinstance(value, list | dict) for value in values):
        return UNDEFINED
    return choose(values, key=make_sort_key)


AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "COUNT": len,
    "SUM": add_up,
    "AVG": average,
    "MIN": lambda values: find_extreme(values, min),
    "MAX": lambda values: find_extreme(values, max),
}
