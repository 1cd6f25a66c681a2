"""The order of results that is not that of an index, and positions in it.

Values are ordered by type first; items with the same values come as they were created, the other
way round where an order is descending, as clients that resume a merged query expect.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import dropwhile
from typing import Any

from local.cosmos.query_page import Position, Row
from local.cosmos.query_syntax import Query
from local.cosmos.query_values import sort_key, value_at


def in_order(query: Query, rows: Iterable[Row], after: Position | None) -> Iterator[Row]:
    """All rows, sorted; from behind a position on, if one is given."""
    ordered = sorted(rows, key=birth_of, reverse=is_backward(query))
    for key in reversed(query.order):
        ordered.sort(key=partial(order_value, key.path), reverse=key.is_descending)
    if after is None:
        return iter(ordered)
    return dropwhile(lambda row: not is_behind(query, row, after), ordered)


def position_of(query: Query, row: Row) -> Position:
    """Where a row stands in the order, in terms that JSON can hold."""
    return [[order_value(key.path, row) for key in query.order], row.birth]


def is_behind(query: Query, row: Row, position: Position) -> bool:
    """Whether a row comes after a position."""
    values, birth = position[0], int(position[1])
    for key, value in zip(query.order, values, strict=True):
        own, other = order_value(key.path, row), tuple(value)
        if own != other:
            return (own > other) != key.is_descending
    return row.birth < birth if is_backward(query) else row.birth > birth


def is_backward(query: Query) -> bool:
    """Whether items with the same values come newest first."""
    return any(key.is_descending for key in query.order)


def birth_of(row: Row) -> int:
    """The number that an item was given when it was created."""
    return row.birth


def order_value(path: tuple[str, ...], row: Row) -> tuple[int, Any]:
    """The sort key of a row."""
    return sort_key(value_at(row.item, path))
