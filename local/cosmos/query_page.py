"""Collecting one page of results within its limits."""

import json
from dataclasses import dataclass
from typing import Any

from local.cosmos.answers import compact
from local.cosmos.continuation import Continuation
from local.cosmos.query_evaluator import evaluate
from local.cosmos.query_syntax import Query
from local.cosmos.query_values import UNDEFINED

type Position = list[Any]  # of a row in the order of a query; JSON can hold it

PAGE_ITEMS = 100
PAGE_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Row:
    """One stored item met on the way; its JSON is parsed when it is needed, and once."""

    partition: str
    id: str
    birth: int
    body: str
    parsed: dict[str, Any] | None = None

    @property
    def item(self) -> dict[str, Any]:
        """The item."""
        if self.parsed is None:
            self.parsed = json.loads(self.body)
        return self.parsed


def shown_of(query: Query, row: Row) -> Any:
    """What the selection shows of a row; UNDEFINED when it shows nothing."""
    return evaluate(query.selection, row.item)


class PageBuilder:
    """Takes rows in their final order; passes over the OFFSET, counts up to the LIMIT.

    `consumed` and `shown` count rows and results on this page and those before it; `last` is the
    row that was taken last.
    """

    def __init__(self, query: Query, start: Continuation, items_max: int) -> None:
        self.results: list[str] = []
        self.consumed, self.shown = start.consumed, start.shown
        self.last: Row | None = None
        self._query = query
        self._items_max = items_max
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the page holds as many results, or bytes, as a page may."""
        return len(self.results) >= self._items_max or self._bytes >= PAGE_BYTES

    @property
    def is_at_limit(self) -> bool:
        """Whether TOP or LIMIT is reached, on this page or over all of them."""
        limit = self._query.count_max
        return limit is not None and self.shown >= limit

    def take(self, row: Row) -> None:
        """Consume a row; it yields a result unless OFFSET or an undefined VALUE drops it."""
        is_skipped = self.consumed < self._query.offset
        result = None if is_skipped else self._result(row)
        if result is not None:
            self.results.append(result)
            self._bytes += len(result)
            self.shown += 1
        self.consumed += 1
        self.last = row

    def _result(self, row: Row) -> str | None:
        if self._query.shows_items:
            return row.body
        value = shown_of(self._query, row)
        return None if value is UNDEFINED else compact(value)
