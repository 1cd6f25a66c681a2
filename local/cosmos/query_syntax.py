"""A parsed query: what is selected, where, in which order and how much of it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: a literal of the text, or a parameter's value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Property:
    """A path below the item, `c.a["b"]` as ("a", "b"); the item itself is the empty path."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left operator right` with one of = != < <= > >=."""

    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Logical:
    """AND or OR of two or more operands."""

    operator: str
    operands: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """NOT of a condition."""

    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Membership:
    """`operand IN (choices)`."""

    operand: "Expression"
    choices: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A built-in function, its name in upper case."""

    name: str
    arguments: tuple["Expression", ...]


type Expression = Literal | Property | Comparison | Logical | Negation | Membership | Call


@dataclass(frozen=True, slots=True)
class SelectAll:
    """`SELECT *`."""


@dataclass(frozen=True, slots=True)
class SelectFields:
    """`SELECT a, b AS c`: pairs of the name in the result and the expression."""

    fields: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class SelectValue:
    """`SELECT VALUE expression`."""

    expression: Expression


@dataclass(frozen=True, slots=True)
class SelectCount:
    """`SELECT VALUE COUNT(1)`; with another argument, rows where it is undefined do not count."""

    argument: Expression


type Selection = SelectAll | SelectFields | SelectValue | SelectCount


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One path of ORDER BY."""

    path: tuple[str, ...]
    is_descending: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A whole query; `limit` is that of TOP or of OFFSET LIMIT."""

    selection: Selection
    condition: Expression | None = None
    order: tuple[OrderKey, ...] = ()
    offset: int = 0
    limit: int | None = None
