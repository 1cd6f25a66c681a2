"""Running a query: a page of results, what it cost, and where the next page begins.

Collecting one page of results within its limits.

The order of results that is not that of an index, and positions in it.

Values are ordered by type first; items with the same values come as they were created, the other
way round where an order is descending, as clients that resume a merged query expect.

The token that says where the next page of a query begins.

A page resumes behind the last row taken, whatever was written in between; only without repeats, by
SELECT DISTINCT, does it resume by count.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile, islice, starmap
from typing import Any

from local.cosmos.answers import Refusal, compact
from local.cosmos.items import charges
from local.cosmos.items.containers import Container
from local.cosmos.items.partitions import WHOLE_RING, KeyRange
from local.cosmos.items.storage import Storage
from local.cosmos.query.evaluation import AGGREGATES, evaluate
from local.cosmos.query.merging import needs_merging, not_servable
from local.cosmos.query.parser import parse_query
from local.cosmos.query.plan import Plan, plan_query
from local.cosmos.query.syntax import Expression, Query
from local.cosmos.query.values import UNDEFINED, identity_key, sort_key, value_at


@dataclass(frozen=True, slots=True)
class Continuation:
    """`consumed` rows are passed, `shown` of them given out; `after` is the last one's position."""

    consumed: int = 0
    shown: int = 0
    after: list[Any] | None = None

    def token(self, query: str) -> str:
        """As an opaque text that only fits this query."""
        fields = compact([checksum(query), self.consumed, self.shown, self.after])
        return base64.urlsafe_b64encode(fields.encode()).decode()


def parse_continuation(token: str | None, query: str) -> Continuation:
    """Read a token; a 400 Refusal when it is damaged or of another query."""
    if not token:
        return Continuation()
    try:
        check, consumed, shown, after = json.loads(base64.urlsafe_b64decode(token))
        continuation = Continuation(int(consumed), int(shown), after)
    except (ValueError, TypeError) as error:
        raise Refusal(400, "the continuation token is damaged") from error
    if check != checksum(query):
        raise Refusal(400, "the continuation token belongs to another query")
    return continuation


def checksum(query: str) -> int:
    """A short mark of a query's text."""
    return zlib.crc32(query.encode())


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
