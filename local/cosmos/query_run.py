"""Running a query: a page of results, what it cost, and where the next page begins."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, starmap
from typing import Any

from local.cosmos import charges
from local.cosmos.answers import Refusal, compact
from local.cosmos.catalogue import Container
from local.cosmos.continuation import Continuation, parse_continuation
from local.cosmos.partition import WHOLE_RING, KeyRange
from local.cosmos.query_aggregates import AGGREGATES
from local.cosmos.query_evaluator import evaluate
from local.cosmos.query_merging import needs_merging, not_servable
from local.cosmos.query_order import in_order, position_of
from local.cosmos.query_page import PAGE_ITEMS, PageBuilder, Position, Row, shown_of
from local.cosmos.query_parser import parse_query
from local.cosmos.query_plan import Plan, plan_query
from local.cosmos.query_syntax import Expression, Query
from local.cosmos.query_values import UNDEFINED, identity_key
from local.cosmos.storage import Storage

COLUMNS = "partition, id, birth, body"  # in the order of Row's fields


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query as it was sent.

    `key` binds it to a partition, `pkrange` to a physical one, `key_range` to a part of the ring.
    """

    text: str
    parameters: dict[str, Any]
    key: str | None = None
    pkrange: int | None = None
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
    """One page of one query."""

    def __init__(self, storage: Storage, container: Container, request: QueryRequest) -> None:
        self._storage = storage
        self._container = container
        self._request = request
        self._query = parse_query(request.text, request.parameters)
        self._plan = plan_query(self._query, container, request.key)
        if request.pkrange is not None:
            self._plan.narrow("+pkrange = ?", request.pkrange)  # other indexes are narrower
        self._start = parse_continuation(request.continuation, self._mark)
        self._sizes: list[int] = []

    def page(self, now: int) -> Page:
        """Answer one page; `now` decides what has expired."""
        self._check_servable()
        if self._query.aggregates:
            results, rest = self._totals(now), None
        else:
            results, rest = self._fill(self._rows(now))
        charge = charges.query(self._sizes, is_strong=self._request.is_strong)
        return Page(results, charge, rest.token(self._mark) if rest else None)

    @property
    def _mark(self) -> str:
        """What a token is bound to: not the condition, to which clients that resume a merged query
        add another. Where a page resumes by count it is."""
        if self._query.is_distinct:
            return self._request.text
        texts = self._query.texts
        return compact([texts.source, texts.value, *texts.order])

    def _check_servable(self) -> None:
        order = [(key.path, key.is_descending) for key in self._query.order]
        if order and not self._container.policy.can_order_by(order):
            paths = ", ".join("/" + "/".join(path) for path, _ in order)
            raise Refusal(400, f"ORDER BY needs an index the container does not have: {paths}")
        if self._plan.has_partition:
            return
        if self._request.key_range.is_everything and not self._request.is_cross_partition:
            raise Refusal(400, "a cross-partition query is needed but was not enabled")
        is_divided = self._request.pkrange is None and len(self._container.ring.numbers) > 1
        if is_divided and needs_merging(self._query):
            raise not_servable(self._query)

    def _totals(self, now: int) -> list[str]:
        totals = [AGGREGATES[one.name]() for one in self._query.aggregates]
        for row in self._looked_at(self._candidates(now)):
            for aggregate, total in zip(self._query.aggregates, totals, strict=True):
                value = evaluate(aggregate.argument, row.item)
                if value is not UNDEFINED:
                    total.add(value)
        shown = evaluate(self._query.selection, {}, [total.result() for total in totals])
        return [] if shown is UNDEFINED else [compact(shown)]

    def _fill(self, rows: Iterator[Row]) -> tuple[list[str], Continuation | None]:
        page = PageBuilder(self._query, self._start, self._request.page_items)
        while not page.is_at_limit:
            row = next(rows, None)
            if row is None:
                break
            if page.is_full:
                return page.results, self._rest(page)
            page.take(row)
        return page.results, None

    def _rest(self, page: PageBuilder) -> Continuation:
        """Where the next page begins."""
        if page.last is None or self._query.is_distinct:
            position = None
        elif self._plan.is_ordered:
            position = [page.last.partition, page.last.id]
        else:
            position = position_of(self._query, page.last)
        return Continuation(page.consumed, page.shown, position)

    def _rows(self, now: int) -> Iterator[Row]:
        after = self._start.after
        if self._plan.is_ordered:
            rows = self._looked_at(self._candidates(now, after))
        else:
            rows = self._looked_at(in_order(self._query, self._candidates(now), after))
        if not self._query.is_distinct:
            return rows
        return islice(without_repeats(self._query, rows), self._start.consumed, None)

    def _candidates(self, now: int, after: Position | None = None) -> Iterator[Row]:
        """What the indexes of the container would lead to."""
        sql, values = statement(self._plan, now, after)
        key_range = self._request.key_range
        for row in starmap(Row, self._storage.connection.execute(sql, values)):
            if key_range.covers(row.partition) and meets(self._plan.served, row):
                yield row

    def _looked_at(self, candidates: Iterable[Row]) -> Iterator[Row]:
        """Those that meet the rest of the condition; all that are walked over are charged."""
        for row in candidates:
            self._sizes.append(len(row.body.encode()))
            if meets(self._plan.scanned, row):
                yield row


def statement(plan: Plan, now: int, after: Position | None) -> tuple[str, list[Any]]:
    """The SQL of a plan and its values; `after` resumes behind a (partition, id)."""
    where = [*plan.where, "(expires IS NULL OR expires > ?)"]
    values = [*plan.values, now]
    if after is not None:
        where.append(f"({plan.keys}) {'<' if plan.is_descending else '>'} (?, ?)")
        values += after if plan.keys == "partition, id" else reversed(after)
    direction = "DESC" if plan.is_descending else "ASC"
    order = ", ".join(f"{key} {direction}" for key in plan.keys.split(", "))
    sql = f"SELECT {COLUMNS} FROM items WHERE {' AND '.join(where)} ORDER BY {order}"  # noqa: S608 - built from constants, values are bound
    return sql, values


def without_repeats(query: Query, rows: Iterable[Row]) -> Iterator[Row]:
    """The first row of each result."""
    seen = set()
    for row in rows:
        key = identity_key(shown_of(query, row))
        if key not in seen:
            seen.add(key)
            yield row


def meets(conditions: list[Expression], row: Row) -> bool:
    """Whether conditions are all true of a row."""
    return all(evaluate(condition, row.item) is True for condition in conditions)
