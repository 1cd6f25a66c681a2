"""A parsed query, and what its expressions mean for one item."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from local.cosmos.sql.functions import BUILT_IN
from local.cosmos.sql.values import UNDEFINED, compare, compute, find_value

type Item = dict[str, Any]
type Expression = (
    Literal
    | PropertyPath
    | Comparison
    | Arithmetic
    | Logical
    | Negation
    | Membership
    | FunctionCall
    | Aggregate
    | ArrayOf
    | ObjectOf
)


# Each expression has a value for an item, which may be UNDEFINED. `totals` are the values of a
# query's aggregates, by their numbers.


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: a literal of the text, or a parameter's value."""

    value: Any

    def evaluate(self, _item: Item, _totals: Sequence[Any] = ()) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class PropertyPath:
    """A path below the item, `c.a["b"][0]` as ("a", "b", 0); the item itself is the empty path."""

    path: tuple[str | int, ...]

    def evaluate(self, item: Item, _totals: Sequence[Any] = ()) -> Any:
        return find_value(item, self.path)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left operator right` with one of = != < <= > >=."""

    operator: str
    left: Expression
    right: Expression

    def evaluate(self, item: Item, totals: Sequence[Any] = ()) -> Any:
        left = self.left.evaluate(item, totals)
        return compare(self.operator, left, self.right.evaluate(item, totals))


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left operator right` with one of + - * / % on numbers, or || on strings."""

    operator: str
    left: Expression
    right: Expression

    def evaluate(self, item: Item, totals: Sequence[Any] = ()) -> Any:
        left = self.left.evaluate(item, totals)
        return compute(self.operator, left, self.right.evaluate(item, totals))


@dataclass(frozen=True, slots=True)
class Logical:
    """AND or OR of two or more operands."""

    operator: str
    operands: tuple[Expression, ...]

    def evaluate(self, item: Item, totals: Sequence[Any] = ()) -> Any:
        values = [operand.evaluate(item, totals) for operand in self.operands]
        return combine(values, decisive=self.operator == "OR")


@dataclass(frozen=True, slots=True)
class Negation:
    operand: Expression

    def evaluate(self, item: Item, totals: Sequence[Any] = ()) -> Any:
        value = self.operand.evaluate(item, totals)
        return not value if isinstance(value, bool) else UNDEFINED


@dataclass(frozen=True, slots=True)
class Membership:
    """`operand IN (choices)`."""

    operand: Expression
    choices: tuple[Expression, ...]

    def evaluate(self, item: Item, totals: Sequence[Any] = ()) -> Any:
        value = self.operand.evaluate(item, totals)
        equal = [compare("=", value, choice.evaluate(item, totals)) for choice in self.choices]
        return combine(equal, decisive=True)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A built-in function, its name in upper case."""

    name: str
    arguments: tuple[Expression, ...]

    def evaluate(self, item: Item, totals: Sequence[Any] = ()) -> Any:
        return BUILT_IN[self.name]([one.evaluate(item, totals) for one in self.arguments])


@dataclass(frozen=True, slots=True)
class Aggregate:
    """COUNT, SUM, AVG, MIN or MAX of the argument, written as `text`, over all rows.

    Aggregates of a query are numbered from zero.
    """

    name: str
    argument: Expression
    text: str
    number: int

    def evaluate(self, _item: Item, totals: Sequence[Any] = ()) -> Any:
        return totals[self.number]


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """`[a, b]`; elements that are undefined are left out."""

    elements: tuple[Expression, ...]

    def evaluate(self, item: Item, totals: Sequence[Any] = ()) -> Any:
        values = [one.evaluate(item, totals) for one in self.elements]
        return [value for value in values if value is not UNDEFINED]


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """`{"name": a}`, and what SELECT a AS name makes; members that are undefined are left out."""

    members: tuple[tuple[str, Expression], ...]

    def evaluate(self, item: Item, totals: Sequence[Any] = ()) -> Any:
        named = {name: one.evaluate(item, totals) for name, one in self.members}
        return {name: value for name, value in named.items() if value is not UNDEFINED}


def combine(values: list[Any], *, decisive: bool) -> Any:
    """AND (decisive False) or OR (decisive True), in the logic of true, false and undefined.

    One decisive operand settles it; otherwise one that is not a boolean makes it undefined.
    """
    if any(value is decisive for value in values):
        return decisive
    return (not decisive) if all(isinstance(value, bool) for value in values) else UNDEFINED


@dataclass(frozen=True, slots=True)
class OrderKey:
    path: tuple[str, ...]
    is_descending: bool


@dataclass(frozen=True, slots=True)
class QueryTexts:
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
    texts: QueryTexts
    is_value: bool = False
    is_distinct: bool = False
    condition: Expression | None = None
    order: tuple[OrderKey, ...] = ()
    top: int | None = None
    offset: int = 0
    limit: int | None = None
    aggregates: tuple[Aggregate, ...] = ()

    @property
    def is_newest_first(self) -> bool:
        """Return whether items that the order does not tell apart come newest first."""
        return any(key.is_descending for key in self.order)

    @property
    def count_max(self) -> int | None:
        """The highest number of results, by TOP or LIMIT."""
        return self.limit if self.top is None else self.top
