"""A parsed query: what is selected, where, in which order and how much of it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: a literal of the text, or a parameter's value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Property:
    """A path below the item, `c.a["b"][0]` as ("a", "b", 0); the item itself is the empty path."""

    path: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left operator right` with one of = != < <= > >=."""

    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left operator right` with one of + - * / % on numbers, or || on strings."""

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
class Choice:
    """`test ? chosen : other`; only a test that is true chooses the first."""

    test: "Expression"
    chosen: "Expression"
    other: "Expression"


@dataclass(frozen=True, slots=True)
class Call:
    """A built-in function, its name in upper case."""

    name: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """COUNT, SUM, AVG, MIN or MAX of the argument, written as `text`, over all rows.

    Aggregates of a query are numbered from zero.
    """

    name: str
    argument: "Expression"
    text: str
    number: int


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """`[a, b]`; elements that are undefined are left out."""

    elements: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """`{"name": a}`, and what SELECT a AS name makes; members that are undefined are left out."""

    members: tuple[tuple[str, "Expression"], ...]


type Expression = (
    Literal
    | Property
    | Comparison
    | Arithmetic
    | Logical
    | Negation
    | Membership
    | Choice
    | Call
    | Aggregate
    | ArrayOf
    | ObjectOf
)


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One path of ORDER BY."""

    path: tuple[str, ...]
    is_descending: bool


@dataclass(frozen=True, slots=True)
class Texts:
    """Parts of the text as they were written, for a query that is made from this one.

    `value` is an expression for a result; `source` is without FROM, `condition` without WHERE.
    """

    alias: str
    source: str
    value: str
    condition: str
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A whole query.

    `selection` of `SELECT *` is the item; `is_value` tells SELECT VALUE. `top` is that of TOP,
    `limit` that of OFFSET LIMIT. `aggregates` are those in the selection, by their numbers.
    """

    selection: Expression
    texts: Texts
    is_value: bool = False
    is_distinct: bool = False
    condition: Expression | None = None
    order: tuple[OrderKey, ...] = ()
    top: int | None = None
    offset: int = 0
    limit: int | None = None
    aggregates: tuple[Aggregate, ...] = ()

    @property
    def shows_items(self) -> bool:
        """Whether results are the items as they are."""
        return self.selection == Property(())

    @property
    def count_max(self) -> int | None:
        """How many results there may be, by TOP or LIMIT."""
        return self.limit if self.top is None else self.top
