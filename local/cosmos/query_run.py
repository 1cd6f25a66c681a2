"""Running a query: a page of results, what it cost, and where the next page begins."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, starmap
from typing import Any

from local.cosmos import charges
from local.cosmos.answers import Refusal
from local.cosmos.catalogue import Container
from local.cosmos.continuation import Continuation, parse_continuation
from local.cosmos.partition import WHOLE_RING, KeyRange
from local.cosmos.query_evaluator import evaluate, project
from local.cosmos.query_page import PAGE_ITEMS, PageBuilder, Row
from local.cosmos.query_parser import parse_query
from local.cosmos.query_plan import Plan, plan_query
from local.cosmos.query_syntax import Expression, SelectCount
from local.cosmos.query_values import UNDEFINED, sort_key, value_at
from local.cosmos.storage import Storage


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query as it was sent; `key` binds it to a partition, `key_range` to a part of the ring."""

    text: str
    parameters: dict[str, Any]
    key: str | None = None
    key_range: KeyRange = WHOLE_RING
    is_cross_partition: bool = False
    page_items: int = PAGE_ITEMS
    continuation: str | None = None
    is_strong: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """JSON texts of results; `continuation` None means there is no more."""

    results: list[str]
    charge: float
    continuation: str | None


class QueryRun:
    """One page of one query. Every row looked at is counted and charged."""

    def __init__(self, storage: Storage, container: Container, request: QueryRequest) -> None:
        self._storage = storage
        self._container = container
        self._request = request
        self._query = parse_query(request.text, request.parameters)
        self._plan = plan_query(self._query, container, request.key)
        self._position = parse_continuation(request.continuation, request.text)
        self._sizes: list[int] = []

    def page(self, now: int) -> Page:
        """Answer one page; `now` decides what has expired."""
        self._check_servable()
        if isinstance(self._query.selection, SelectCount):
            results, position = [str(self._count(now))], None
        else:
            results, position = self._fill(self._rows(now))
        charge = charges.query(self._sizes, is_strong=self._request.is_strong)
        return Page(results, charge, position.token(self._request.text) if position else None)

    def _check_servable(self) -> None:
        order = [(key.path, key.is_descending) for key in self._query.order]
        if order and not self._container.policy.can_order_by(order):
            paths = ", ".join("/" + "/".join(path) for path, _ in order)
            raise Refusal(400, f"ORDER BY needs an index the container does not have: {paths}")
        bound = self._plan.has_partition or self._request.is_cross_partition
        if not bound and self._request.key_range.is_everything:
            raise Refusal(400, "a cross-partition query is needed but was not enabled")

    def _count(self, now: int) -> int:
        selection = self._query.selection
        values = (project(selection, json.loads(row.body)) for row in self._matching(now))
        return sum(value is not UNDEFINED for value in values)

    def _fill(self, rows: Iterator[Row]) -> tuple[list[str], Continuation | None]:
        page = PageBuilder(self._query, self._position, self._request.page_items)
        while not page.is_at_limit:
            row = next(rows, None)
            if row is None:
                break
            if page.is_full:
                return page.results, page.position
            page.take(row)
        return page.results, None

    def _rows(self, now: int) -> Iterator[Row]:
        if self._plan.is_ordered:
            return self._matching(now, self._position.after)
        return islice(self._sorted(self._matching(now)), self._position.consumed, None)

    def _sorted(self, rows: Iterator[Row]) -> list[Row]:
        pairs = [(json.loads(row.body), row) for row in rows]
        for key in reversed(self._query.order):
            by_path = partial(order_value, key.path)
            pairs.sort(key=by_path, reverse=key.is_descending)
        return [row for _, row in pairs]

    def _matching(self, now: int, after: tuple[str, str] | None = None) -> Iterator[Row]:
        sql, values = statement(self._plan, now, after)
        key_range = self._request.key_range
        for row in starmap(Row, self._storage.connection.execute(sql, values)):
            if key_range.covers(row.partition):
                self._sizes.append(len(row.body))
                if meets(self._plan.residual, row):
                    yield row


def statement(plan: Plan, now: int, after: tuple[str, str] | None) -> tuple[str, list[Any]]:
    """The SQL of a plan and its values; `after` resumes behind a (partition, id)."""
    where = [*plan.where, "(expires IS NULL OR expires > ?)"]
    values = [*plan.values, now]
    if after is not None:
        where.append(f"({plan.keys}) {'<' if plan.is_descending else '>'} (?, ?)")
        values += after if plan.keys == "partition, id" else reversed(after)
    direction = "DESC" if plan.is_descending else "ASC"
    order = ", ".join(f"{key} {direction}" for key in plan.keys.split(", "))
    return (
        f"SELECT partition, id, body FROM items WHERE {' AND '.join(where)} ORDER BY {order}",  # noqa: S608 - built from constants, values are bound
        values,
    )


def meets(conditions: list[Expression], row: Row) -> bool:
    """Whether what SQL could not decide is true of a row."""
    if not conditions:
        return True
    item = json.loads(row.body)
    return all(evaluate(condition, item) is True for condition in conditions)


def order_value(path: tuple[str, ...], pair: tuple[Any, Row]) -> tuple[int, Any]:
    """The sort key of a parsed row."""
    return sort_key(value_at(pair[0], path))
