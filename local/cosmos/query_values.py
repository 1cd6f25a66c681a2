"""How Cosmos SQL compares values: by type first, with `undefined` as a value of its own."""

import operator as operators
from collections.abc import Callable
from enum import Enum
from typing import Any, Final


class Undefined(Enum):
    """The value of a property that is not there."""

    UNDEFINED = "undefined"


UNDEFINED: Final = Undefined.UNDEFINED
EQUALITIES = ("=", "!=")
ORDERINGS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}


RANKS: dict[type, int] = {
    Undefined: 0,
    type(None): 1,
    bool: 2,
    int: 3,
    float: 3,
    str: 4,
    list: 5,
    dict: 6,
}


def type_rank(value: Any) -> int:
    """The order of types in ORDER BY: undefined, null, boolean, number, string, array, object."""
    return RANKS[type(value)]


def sort_key(value: Any) -> tuple[int, Any]:
    """A key that orders values of any types; arrays and objects are all equal to each other."""
    rank = type_rank(value)
    return rank, value if rank in (2, 3, 4) else 0


def compare(operator: str, left: Any, right: Any) -> bool | Undefined:
    """One comparison.

    Values of different types are unequal and have no order; nor have arrays and objects. Anything
    compared with undefined is undefined.
    """
    if isinstance(left, Undefined) or isinstance(right, Undefined):
        return UNDEFINED
    is_same_type = type_rank(left) == type_rank(right)
    if operator in EQUALITIES:
        is_equal = is_same_type and left == right
        return bool(is_equal) == (operator == "=")
    if not is_same_type or isinstance(left, list | dict):
        return UNDEFINED
    if left is None:
        return operator in ("<=", ">=")
    return bool(ORDERINGS[operator](left, right))


def value_at(document: Any, path: tuple[str, ...]) -> Any:
    """The value at a path, or UNDEFINED."""
    for name in path:
        if not isinstance(document, dict) or name not in document:
            return UNDEFINED
        document = document[name]
    return document
