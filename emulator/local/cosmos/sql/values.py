"""The comparison of values in Cosmos SQL: by type first, `undefined` as a value of its own."""

import math
import operator as operators
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeIs

from local.cosmos.exact_json import EXACT_MAX, WrittenNumber


class Undefined(Enum):
    """The value of a property that is not there."""

    UNDEFINED = "undefined"


UNDEFINED: Final = Undefined.UNDEFINED
EQUALITIES = ("=", "!=")
ORDERINGS = {"<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
    "/": operators.truediv,
    "%": math.fmod,
}
# The order of types in ORDER BY.
RANKS = {
    Undefined: 0,
    type(None): 1,
    bool: 2,
    int: 3,
    float: 3,
    WrittenNumber: 3,
    str: 4,
    list: 5,
    dict: 6,
}


def make_sort_key(value: Any) -> tuple[int, Any]:
    """A key that orders values of any types; arrays and objects are all equal to each other."""
    rank = RANKS[type(value)]
    return rank, value if rank in (2, 3, 4) else 0


def make_identity_key(value: Any) -> Any:
    """A hashable key that two values share exactly when they are the same."""
    if isinstance(value, list):
        return 5, tuple(map(make_identity_key, value))
    if isinstance(value, dict):
        return 6, frozenset((name, make_identity_key(inner)) for name, inner in value.items())
    return make_sort_key(value)


def is_same(left: Any, right: Any) -> bool:
    """Return whether two values, of any types and depth, are the same; 1 and true are not."""
    if isinstance(left, list | dict) or isinstance(right, list | dict):
        return bool(make_identity_key(left) == make_identity_key(right))
    return RANKS[type(left)] == RANKS[type(right)] and bool(left == right)


def is_number(value: Any) -> TypeIs[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def normalize_number(value: float) -> int | float | Undefined:
    """The result of a calculation as JSON writes it; what JSON cannot write is undefined."""
    if not math.isfinite(value):
        return UNDEFINED
    is_whole = float(value).is_integer() and abs(value) <= EXACT_MAX
    return int(value) if is_whole else float(value)


def compute(operator: str, left: Any, right: Any) -> Any:
    """Arithmetic on two numbers, or `||` of two strings; anything else is undefined."""
    if operator == "||":
        both = isinstance(left, str) and isinstance(right, str)
        return left + right if both else UNDEFINED
    if not (is_number(left) and is_number(right)):
        return UNDEFINED
    try:
        return normalize_number(ARITHMETIC[operator](float(left), float(right)))
    except (ArithmeticError, ValueError):  # division by zero
        return UNDEFINED


def compare(operator: str, left: Any, right: Any) -> bool | Undefined:
    """Compare two values by an operator.

    Values of different types are unequal and have no order; nor have arrays and objects. Anything
    compared with undefined is undefined.
    """
    if isinstance(left, Undefined) or isinstance(right, Undefined):
        return UNDEFINED
    if operator in EQUALITIES:
        return is_same(left, right) == (operator == "=")
    if RANKS[type(left)] != RANKS[type(right)] or isinstance(left, list | dict):
        return UNDEFINED
    if left is None:
        return operator in ("<=", ">=")
    return bool(ORDERINGS[operator](left, right))


def find_value(document: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        match document, step:
            case dict(), str() if step in document:
                document = document[step]
            case list(), int() if 0 <= step < len(document):
                document = document[step]
            case _:
                return UNDEFINED
    return document
