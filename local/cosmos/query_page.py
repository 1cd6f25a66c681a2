"""Collecting one page of results within its limits."""

import json
from dataclasses import dataclass

from local.cosmos.answers import compact
from local.cosmos.continuation import Continuation
from local.cosmos.query_evaluator import project
from local.cosmos.query_syntax import Query, SelectAll
from local.cosmos.query_values import UNDEFINED

PAGE_ITEMS = 100
PAGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One stored item met on the way."""

    partition: str
    id: str
    body: str


class PageBuilder:
    """Takes rows in their final order; passes over the OFFSET, counts up to the LIMIT."""

    def __init__(self, query: Query, position: Continuation, items_max: int) -> None:
        self.results: list[str] = []
        self.position = position
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
        limit = self._query.limit
        return limit is not None and self.position.shown >= limit

    def take(self, row: Row) -> None:
        """Consume a row; it yields a result unless OFFSET or an undefined VALUE drops it."""
        is_skipped = self.position.consumed < self._query.offset
        result = None if is_skipped else self._result(row)
        if result is not None:
            self.results.append(result)
            self._bytes += len(result)
        self.position = Continuation(
            self.position.consumed + 1,
            self.position.shown + (result is not None),
            (row.partition, row.id),
        )

    def _result(self, row: Row) -> str | None:
        if isinstance(self._query.selection, SelectAll):
            return row.body
        value = project(self._query.selection, json.loads(row.body))
        return None if value is UNDEFINED else compact(value)
