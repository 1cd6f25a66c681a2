"""What an expression means for one item."""

from collections.abc import Sequence
from typing import Any

from local.cosmos.query_functions import BUILT_IN
from local.cosmos.query_syntax import (
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
from local.cosmos.query_values import UNDEFINED, compare, compute, value_at

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
