"""Running a query: a page of results, what it cost, and where the next page begins.

A page resumes after the last row taken, whatever was written in between; only without repeats, by
SELECT DISTINCT, does it resume by count. It ends where a physical partition ends, even when it is
empty. Where no index has the order, all rows are sorted: by type first, and items with the same
values as they were created, or the other way round where an order is descending, as clients that
resume a merged query expect.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile, islice, starmap
from typing import Any

from local.cosmos import charges
from local.cosmos.exact_json import read_json, write_exactly
from local.cosmos.items.containers import Container, parse_item_number
from local.cosmos.items.partitions import WHOLE_RING, KeyRange
from local.cosmos.items.storage import Storage
from local.cosmos.query.index_metrics import IndexMetrics, find_index_metrics
from local.cosmos.query.merging import NOT_SERVABLE, build_merging_plan, needs_merging
from local.cosmos.query.plan import QueryPlan, plan_query
from local.cosmos.responses import BadRequest, NotOffered, write_json
from local.cosmos.sql.functions import AGGREGATES
from local.cosmos.sql.parser import parse_query
from local.cosmos.sql.syntax import Aggregate, Expression, Literal, PropertyPath, Query
from local.cosmos.sql.values import UNDEFINED, find_value, make_identity_key, make_sort_key

PAGE_ITEMS = 100
PAGE_BYTES = 4 * 1024 * 1024
CHECKSUM_BYTES = 4  # before the fields of a continuation token
COLUMNS = "partition, id, birth, body"  # in the order of ItemRow's fields

type Position = list[Any]  # of a row in the order of a query; JSON can hold it


@dataclass
class ItemRow:
    """One stored item that a query comes across; its JSON is parsed when needed, and once."""

    partition: str
    id: str
    number: int
    body: str

    @cached_property
    def item(self) -> Any:
        return read_json(self.body)


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query as it was sent.

    `key` binds it to a partition, `key_range` to a part of the ring, which is in the physical
    partitions `pkranges`; there are none where all is in one, or the key tells which.
    `names_partition` tells that the client chose the physical one, so it merges by itself.
    """

    text: str
    parameters: dict[str, Any]
    key: str | None = None
    pkranges: tuple[int, ...] = ()
    key_range: KeyRange = WHOLE_RING
    is_cross_partition: bool = False
    names_partition: bool = False
    page_items: int = PAGE_ITEMS
    continuation: str | None = None
    resume_filter: Any = None
    is_strong: bool = True


@dataclass(frozen=True, slots=True)
class QueryPage:
    """JSON texts of results; `continuation` None means there is no more.

    `looked_at` are the sizes of the items that no index ruled out.
    """

    results: list[str]
    charge: float
    continuation: str | None
    looked_at: list[int]

    def write_metrics(self) -> str:
        """Write what the query had to load and gave out, as clients read it, without times."""
        loaded, given = len(self.looked_at), len(self.results)
        counts = {
            "retrievedDocumentCount": loaded,
            "retrievedDocumentSize": sum(self.looked_at),
            "outputDocumentCount": given,
            "outputDocumentSize": sum(len(one.encode()) for one in self.results),
            "indexUtilizationRatio": f"{min(1.0, given / loaded) if loaded else 1.0:.2f}",
        }
        return ";".join(f"{name}={count}" for name, count in counts.items())


class QueryRun:
    def __init__(self, storage: Storage, container: Container, request: QueryRequest) -> None:
        self._storage = storage
        self._container = container
        self._request = request
        self._query = parse_query(request.text, request.parameters)
        self._plan = plan_query(self._query, container, request.key)
        # A token is bound to what it was given for, but not to the condition, to which clients that
        # resume a merged query add another. Where a page resumes by count it is.
        texts = self._query.texts
        bound_to = write_json([texts.source, texts.value, *texts.order])
        self._token_mark = request.text if self._query.is_distinct else bound_to
        self._start = parse_continuation(request.continuation, self._token_mark)
        # A condition that names the key tells the partition, too, unless the client chose another.
        is_found = self._plan.has_partition and not request.names_partition
        self._pkranges = () if is_found else request.pkranges
        if self._start.place >= max(1, len(self._pkranges)):
            raise BadRequest("the continuation token belongs to another container")
        if self._pkranges:
            # The plus keeps SQLite from using the index for it where others are narrower.
            column = "+pkrange" if self._plan.has_partition else "pkrange"
            self._plan.narrow(f"{column} = ?", self._pkranges[self._start.place])
        self._resume: OrderPosition | None = None
        if request.resume_filter is not None:
            self._resume = parse_resume_filter(request.resume_filter, self._query)
        self._sizes: list[int] = []

    def read_page(self, now: int) -> QueryPage:
        """Read one page; `now` decides what has expired."""
        self._check_servable()
        if self._query.aggregates:
            results, rest = self._aggregate(now), None
        else:
            results, rest = self._fill_page(self._list_rows(now))
        charge = charges.query(self._sizes, is_strong=self._request.is_strong)
        token = rest.write_token(self._token_mark) if rest else None
        return QueryPage(results, charge, token, self._sizes)

    def find_index_metrics(self) -> IndexMetrics:
        """Find which indexes the query uses, and which it could."""
        return find_index_metrics(self._query, self._plan, self._container)

    def _check_servable(self) -> None:
        order = tuple((key.path, key.is_descending) for key in self._query.order)
        if order and not self._container.policy.can_order_by(order):
            paths = ", ".join("/" + "/".join(path) for path, _ in order)
            raise BadRequest(f"ORDER BY needs an index the container does not have: {paths}")
        if self._request.key is not None:
            return
        # A condition that names the key is enough for all but aggregates.
        if self._plan.has_partition and not self._query.aggregates:
            return
        if self._request.key_range.is_everything and not self._request.is_cross_partition:
            raise BadRequest("a cross-partition query is needed but was not enabled")
        is_chosen = self._request.names_partition or len(self._request.pkranges) == 1
        if not is_chosen and needs_merging(self._query):
            # Where there is only one physical partition, too. The substatus makes clients ask for
            # the plan.
            raise BadRequest(
                "a client must merge this query: several physical partitions may answer it",
                substatus=NOT_SERVABLE,
                additional=write_json(build_merging_plan(self._query)),
            )

    def _aggregate(self, now: int) -> list[str]:
        columns: list[list[Any]] = [[] for _ in self._query.aggregates]
        for row in self._scan(self._list_candidates(now)):
            for aggregate, values in zip(self._query.aggregates, columns, strict=True):
                value = aggregate.argument.evaluate(row.item)
                if value is not UNDEFINED:
                    values.append(value)
        if not self._plan.scanned and all(is_count_of_items(one) for one in self._query.aggregates):
            self._sizes.clear()  # an index counts items without a look at them
        names = (aggregate.name for aggregate in self._query.aggregates)
        totals = [AGGREGATES[name](values) for name, values in zip(names, columns, strict=True)]
        shown = self._query.selection.evaluate({}, totals)
        return [] if shown is UNDEFINED else [write_exactly(shown)]

    def _fill_page(self, rows: Iterator[ItemRow]) -> tuple[list[str], "Continuation | None"]:
        """Results until the page is full; OFFSET and an undefined VALUE drop rows."""
        consumed, shown = self._start.consumed, self._start.shown
        limit = self._query.count_max
        results: list[str] = []
        size = 0
        last: ItemRow | None = None
        while limit is None or shown < limit:
            if (row := next(rows, None)) is None:
                break
            if last and (len(results) >= self._request.page_items or size >= PAGE_BYTES):
                position = self._find_position(last)
                return results, Continuation(consumed, shown, position, self._start.place)
            result = None if consumed < self._query.offset else self._show(row)
            if result is not None:
                results.append(result)
                size += len(result)
                shown += 1
            consumed += 1
            last = row
        if (place := self._start.place + 1) < len(self._pkranges):
            return results, Continuation(consumed, shown, None, place)
        return results, None

    def _show(self, row: ItemRow) -> str | None:
        if self._query.selection == PropertyPath(()):
            return row.body
        value = self._query.selection.evaluate(row.item)
        return None if value is UNDEFINED else write_exactly(value)

    def _find_position(self, row: ItemRow) -> Position | None:
        if self._query.is_distinct:
            return None
        if self._plan.is_ordered:
            return [*(find_value(row.item, key.path) for key in self._query.order), row.number]
        return [[make_order_key(key.path, row) for key in self._query.order], row.number]

    def _list_rows(self, now: int) -> Iterator[ItemRow]:
        after = self._start.after
        if self._plan.is_ordered:
            rows = self._scan(self._list_candidates(now, after))
        else:
            rows = self._scan(sort_rows(self._query, self._list_candidates(now), after))
        if not self._query.is_distinct:
            return rows
        return islice(drop_repeats(self._query, rows), self._start.consumed, None)

    def _list_candidates(self, now: int, after: Position | None = None) -> Iterator[ItemRow]:
        """Yield the items that the indexes of the container would lead to."""
        sql, values = write_statement(self._plan, now, after)
        key_range = self._request.key_range
        for row in starmap(ItemRow, self._storage.connection.execute(sql, values)):
            if self._resume is not None and not self._resume.precedes(row, self._query):
                continue
            if key_range.covers(row.partition) and meets_all(self._plan.served, row):
                yield row

    def _scan(self, candidates: Iterable[ItemRow]) -> Iterator[ItemRow]:
        """Yield the items that meet the rest of the condition; all looked at are charged."""
        for row in candidates:
            self._sizes.append(len(row.body.encode()))
            if meets_all(self._plan.scanned, row):
                yield row


def write_statement(plan: QueryPlan, now: int, after: Position | None) -> tuple[str, list[Any]]:
    """The SQL of a plan and its values; `after` resumes after a row's keys."""
    where = [*plan.where, "(expires IS NULL OR expires > ?)"]
    values = [*plan.values, now]
    if after is not None:
        places = ", ".join("?" * len(plan.keys))
        where.append(f"({', '.join(plan.keys)}) {'<' if plan.is_descending else '>'} ({places})")
        values += after
    direction = "DESC" if plan.is_descending else "ASC"
    order = ", ".join(f"{key} {direction}" for key in plan.keys)
    sql = f"SELECT {COLUMNS} FROM items WHERE {' AND '.join(where)} ORDER BY {order}"  # noqa: S608 - built from constants, values are bound
    return sql, values


def is_count_of_items(aggregate: Aggregate) -> bool:
    return aggregate.name == "COUNT" and isinstance(aggregate.argument, Literal)


def meets_all(conditions: list[Expression], row: ItemRow) -> bool:
    return all(condition.evaluate(row.item) is True for condition in conditions)


def drop_repeats(query: Query, rows: Iterable[ItemRow]) -> Iterator[ItemRow]:
    """The first row of each result."""
    seen = set()
    for row in rows:
        key = make_identity_key(query.selection.evaluate(row.item))
        if key not in seen:
            seen.add(key)
            yield row


def sort_rows(query: Query, rows: Iterable[ItemRow], after: Position | None) -> Iterator[ItemRow]:
    """All rows in order; only those after a position, if one is given."""
    ordered = sorted(rows, key=lambda row: row.number, reverse=query.is_newest_first)
    for key in reversed(query.order):
        path = key.path
        ordered.sort(key=lambda row: make_order_key(path, row), reverse=key.is_descending)
    if after is None:
        return iter(ordered)
    position = OrderPosition(tuple(map(tuple, after[0])), int(after[1]), is_excluded=True)
    return dropwhile(lambda row: not position.precedes(row, query), ordered)


def make_order_key(path: tuple[str, ...], row: ItemRow) -> tuple[int, Any]:
    return make_sort_key(find_value(row.item, path))


@dataclass(frozen=True, slots=True)
class OrderPosition:
    """A place in the order of a query: `values` of its keys, and the `number` of an item.

    Without a number it is before all items of these values, or, `is_excluded`, behind them. With
    one it is before that item, or behind it.
    """

    values: tuple[Any, ...]
    number: int | None
    is_excluded: bool

    def precedes(self, row: ItemRow, query: Query) -> bool:
        """Return whether a row comes after this place."""
        for key, value in zip(query.order, self.values, strict=True):
            own = make_order_key(key.path, row)
            if own != value:
                return bool((own > value) != key.is_descending)
        if self.number is None or row.number == self.number:
            return not self.is_excluded
        return (row.number < self.number) == query.is_newest_first


def parse_resume_filter(document: Any, query: Query) -> OrderPosition:
    """Read where a client goes on with a merged query: the last values it has seen of ORDER BY.

    `rid` is the last item it has seen in this partition; `exclude` says that all with these values
    have been seen. The client writes undefined as an empty array. A value that is an array or an
    object comes as a hash, which no order here has, so it is refused.
    """
    match document:
        case {"value": list(values), **rest} if rest.keys() <= {"rid", "exclude"}:
            rid, is_excluded = rest.get("rid"), rest.get("exclude", False)
        case _:
            raise BadRequest("a resumeFilter has value, a list, and perhaps rid and exclude")
    if not isinstance(rid, str | None) or not isinstance(is_excluded, bool):
        raise BadRequest("rid of a resumeFilter is a text, exclude is true or false")
    if not query.order or len(values) != len(query.order):
        raise BadRequest("a resumeFilter needs a value for each expression of ORDER BY")
    if any(value != [] and isinstance(value, list | dict) for value in values):
        raise NotOffered("a resumeFilter with an array or an object as its value")
    number = None
    if rid is not None:
        number = parse_item_number(rid)
        if number is None:
            raise BadRequest(f"{rid!r} in a resumeFilter is not the resource id of an item")
    seen = tuple(make_sort_key(UNDEFINED if value == [] else value) for value in values)
    return OrderPosition(seen, number, is_excluded)


@dataclass(frozen=True, slots=True)
class Continuation:
    """`consumed` rows were read, `shown` of them given out; `after` is the last one's position.

    `place` counts the physical partitions that were read to their end.
    """

    consumed: int = 0
    shown: int = 0
    after: Position | None = None
    place: int = 0

    def write_token(self, query: str) -> str:
        """An opaque text that only fits this query, behind a sum that tells if it was changed."""
        check = zlib.crc32(query.encode())
        fields = write_json([check, self.consumed, self.shown, self.after, self.place]).encode()
        summed = zlib.crc32(fields).to_bytes(CHECKSUM_BYTES) + fields
        return base64.urlsafe_b64encode(summed).decode()


def parse_continuation(token: str | None, query: str) -> Continuation:
    """Read a token; a 400 when it is damaged or of another query."""
    if not token:
        return Continuation()
    try:
        summed = base64.urlsafe_b64decode(token)
    except ValueError as error:
        raise BadRequest("the continuation token is damaged") from error
    fields = summed[CHECKSUM_BYTES:]
    if zlib.crc32(fields) != int.from_bytes(summed[:CHECKSUM_BYTES]) or not fields:
        raise BadRequest("the continuation token is damaged")
    check, *rest = json.loads(fields)
    if check != zlib.crc32(query.encode()):
        raise BadRequest("the continuation token belongs to another query")
    return Continuation(*rest)
