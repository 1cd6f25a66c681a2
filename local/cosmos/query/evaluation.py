"""What an expression means for one item.

What COUNT, SUM, AVG, MIN and MAX come to over all rows of a query.

Undefined values are passed over. A value of a type that an aggregate cannot take makes the whole
of it undefined: anything but numbers for SUM and AVG, arrays and objects for MIN and MAX.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from local.cosmos.query.functions import BUILT_IN
from local.cosmos.query.syntax import (
    Aggregate,
    Arithmetic,
    ArrayOf,
    Call,
    Choice,
    Comparison,
    Expression,
    Literal,
    Logical,
    Membership,
    Negation,
    ObjectOf,
    Property,
)
from local.cosmos.query.values import (
    UNDEFINED,
    compare,
    compute,
    is_number,
    number_of,
    sort_key,
    value_at,
)


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


type Totals = Sequence[Any]

NO_TOTALS: Totals = ()


def evaluate(expression: Expression, item: dict[str, Any], totals: Totals = NO_TOTALS) -> Any:
    """The value of an expression, which may be UNDEFINED; `totals` are of its aggregates."""
    match expression:
        case Literal(value):
            return value
        case Property(path):
            return value_at(item, path)
        case Comparison(operator, left, right):
            values = evaluate(left, item, totals), evaluate(right, item, totals)
            return compare(operator, *values)
        case Arithmetic(operator, left, right):
            values = evaluate(left, item, totals), evaluate(right, item, totals)
            return compute(operator, *values)
        case Logical() | Negation() | Membership() | Choice():
            return evaluate_logic(expression, item, totals)
        case _:
            return evaluate_whole(expression, item, totals)


def evaluate_logic(
    expression: Logical | Negation | Membership | Choice, item: dict[str, Any], totals: Totals
) -> Any:
    """AND, OR, NOT, IN and choices, in the logic of true, false and undefined."""
    match expression:
        case Logical(operator, operands):
            values = [evaluate(operand, item, totals) for operand in operands]
            return combined(values, decisive=operator == "OR")
        case Negation(operand):
            value = evaluate(operand, item, totals)
            return not value if isinstance(value, bool) else UNDEFINED
        case Membership(operand, choices):
            value = evaluate(operand, item, totals)
            equal = [compare("=", value, evaluate(choice, item, totals)) for choice in choices]
            return combined(equal, decisive=True)
        case Choice(test, chosen, other):
            is_chosen = evaluate(test, item, totals) is True
            return evaluate(chosen if is_chosen else other, item, totals)


def evaluate_whole(
    expression: Call | Aggregate | ArrayOf | ObjectOf, item: dict[str, Any], totals: Totals
) -> Any:
    """Functions, aggregates, and arrays and objects that are put together."""
    match expression:
        case Call(name, arguments):
            return BUILT_IN[name]([evaluate(one, item, totals) for one in arguments])
        case Aggregate(number=number):
            return totals[number]
        case ArrayOf(elements):
            values = [evaluate(one, item, totals) for one in elements]
            return [value for value in values if value is not UNDEFINED]
        case ObjectOf(members):
            named = {name: evaluate(one, item, totals) for name, one in members}
            return {name: value for name, value in named.items() if value is not UNDEFINED}


def combined(values: list[Any], *, decisive: bool) -> Any:
    """AND (decisive False) or OR (decisive True).

    One decisive operand settles it; otherwise one that is not a boolean makes it undefined.
    """
    if any(value is decisive for value in values):
        return decisive
    return (not decisive) if all(isinstance(value, bool) for value in values) else UNDEFINED
