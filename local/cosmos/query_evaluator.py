"""What an expression means for one item."""

from typing import Any

from local.cosmos.answers import unsupported
from local.cosmos.query_syntax import (
    Call,
    Comparison,
    Expression,
    Literal,
    Logical,
    Membership,
    Negation,
    Property,
    SelectAll,
    SelectCount,
    SelectFields,
    Selection,
    SelectValue,
)
from local.cosmos.query_values import UNDEFINED, compare, value_at


def evaluate(expression: Expression, item: dict[str, Any]) -> Any:
    """The value of an expression, which may be UNDEFINED."""
    match expression:
        case Literal(value):
            return value
        case Property(path):
            return value_at(item, path)
        case Comparison(operator, left, right):
            return compare(operator, evaluate(left, item), evaluate(right, item))
        case Call(name, arguments):
            return call(name, [evaluate(argument, item) for argument in arguments])
        case _:
            return evaluate_logic(expression, item)


def evaluate_logic(expression: Logical | Negation | Membership, item: dict[str, Any]) -> Any:
    """AND, OR, NOT and IN, in the logic of true, false and undefined."""
    match expression:
        case Logical(operator, operands):
            values = [evaluate(operand, item) for operand in operands]
            return combined(values, decisive=operator == "OR")
        case Negation(operand):
            value = evaluate(operand, item)
            return not value if isinstance(value, bool) else UNDEFINED
        case Membership(operand, choices):
            value = evaluate(operand, item)
            equal = [compare("=", value, evaluate(choice, item)) for choice in choices]
            return combined(equal, decisive=True)


def combined(values: list[Any], *, decisive: bool) -> Any:
    """AND (decisive False) or OR (decisive True).

    One decisive operand settles it; otherwise one that is not a boolean makes it undefined.
    """
    if any(value is decisive for value in values):
        return decisive
    return (not decisive) if all(isinstance(value, bool) for value in values) else UNDEFINED


def call(name: str, values: list[Any]) -> Any:
    """A built-in function; arguments of the wrong type make it undefined."""
    match name, values:
        case "IS_DEFINED", [value]:
            return value is not UNDEFINED
        case "STARTSWITH", [str(text), str(prefix)]:
            return text.startswith(prefix)
        case "ARRAY_LENGTH", [list(elements)]:
            return len(elements)
        case (("STARTSWITH" | "ARRAY_LENGTH"), _):
            return UNDEFINED
        case _:
            raise unsupported(f"{name} in this place of a query")


def project(selection: Selection, item: dict[str, Any]) -> Any:
    """What the selection shows of an item; UNDEFINED when it shows nothing."""
    match selection:
        case SelectAll():
            return item
        case SelectValue(expression) | SelectCount(expression):
            return evaluate(expression, item)
        case SelectFields(fields):
            shown = {name: evaluate(expression, item) for name, expression in fields}
            return {name: value for name, value in shown.items() if value is not UNDEFINED}
