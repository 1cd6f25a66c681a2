"""Requests for the items of a container, from which the account has found it."""

from collections.abc import Callable, Sequence

from local.cosmos.answers import Answer, Refusal, item_list, unsupported
from local.cosmos.http.requests import RANGE_GONE, RANGE_HEADER, Request, json_bytes, method_refusal
from local.cosmos.items.batch import run_batch
from local.cosmos.items.change_feed import FeedRequest, parse_position, parse_since, read_feed
from local.cosmos.items.containers import Container
from local.cosmos.items.documents import Done, Items, Place
from local.cosmos.items.patch import parse_patch
from local.cosmos.items.storage import Storage
from local.cosmos.query.merging import merging_plan
from local.cosmos.query.paging import QueryRequest, QueryRun
from local.cosmos.query.parser import parse_query


class Documents:
    """Reads, writes, queries and feeds. `now` is the account's clock in seconds since 1970."""

    def __init__(self, storage: Storage, now: Callable[[], float]) -> None:
        self._storage = storage
        self._now = now
        self._items = Items(storage, now)

    def purge(self) -> None:
        """Remove what has expired."""
        self._items.purge()

    def answer(self, request: Request, container: Container) -> Answer:
        """Answer one request; raises Refusal."""
        match request.method, request.address.is_feed:
            case "POST", True if request.is_batch:
                place = place_of(request, container)
                return run_batch(self._storage, self._items, place, request.body)
            case "POST", True if request.is_query:
                return self._query(request, container, *request.query())
            case "GET", True if request.is_change_feed:
                return self._feed(request, container)
            case "GET", True:
                return self._query(request, container, "SELECT * FROM c", {})
            case "GET", False:
                return self._read(request, container)
            case ("POST", True) | ("PUT" | "PATCH" | "DELETE", False):
                return self._write(request, container)
            case _:
                raise method_refusal(request)

    def _read(self, request: Request, container: Container) -> Answer:
        place = place_of(request, container)
        item_id = self._item_id(request, place)
        done = self._items.read(place, item_id, is_strong=request.is_strong)
        if request.headers.get("If-None-Match") in ("*", done.etag):
            return Answer(304, b"", 1.0, {"etag": done.etag})
        return item_answer(done, is_minimal=False)

    def _item_id(self, request: Request, place: Place) -> str:
        address = request.address
        return address.item if address.birth is None else self._items.id_of(place, address.birth)

    def _write(self, request: Request, container: Container) -> Answer:
        place = place_of(request, container)
        with self._storage.transaction():
            done = self._written(request, place)
        return item_answer(done, is_minimal=request.headers.get("Prefer") == "return=minimal")

    def _written(self, request: Request, place: Place) -> Done:
        item_id, if_match = self._item_id(request, place), request.if_match
        if request.method == "PUT":
            return self._items.replace(place, item_id, request.document, if_match)
        if request.method == "PATCH":
            return self._items.patch(place, item_id, parse_patch(request.document), if_match)
        if request.method == "DELETE":
            return self._items.delete(place, item_id, if_match)
        if request.flag("x-ms-documentdb-is-upsert"):
            return self._items.upsert(place, request.document, if_match)
        if if_match is not None:
            raise unsupported("If-Match on a create")
        return self._items.create(place, request.document)

    def _query(
        self, request: Request, container: Container, text: str, parameters: dict[str, object]
    ) -> Answer:
        if request.is_query_plan:
            return Answer(200, json_bytes(merging_plan(parse_query(text, parameters))))
        query = QueryRequest(
            text,
            parameters,
            key=request.key,
            key_range=request.key_range,
            pkrange=narrower(request, container),
            is_cross_partition=request.may_cross_partitions,
            page_items=request.page_items,
            continuation=request.headers.get("x-ms-continuation"),
            is_strong=request.is_strong,
        )
        page = QueryRun(self._storage, container, query).page(int(self._now()))
        headers = {"x-ms-item-count": str(len(page.results))}
        if page.continuation:
            headers["x-ms-continuation"] = page.continuation
        return Answer(200, item_list(container.rid, page.results), page.charge, headers)

    def _feed(self, request: Request, container: Container) -> Answer:
        mode = request.headers["A-IM"]
        if mode.lower() not in ("incremental feed", "incremental"):
            raise unsupported(f"the change feed mode {mode!r}")
        pkrange = only(pkranges_of(request, container))
        if pkrange is None:
            raise Refusal(400, "a change feed must name one partition key range, or a partition")
        newest = self._storage.lsn(container.number, pkrange)
        feed = FeedRequest(
            pkrange=pkrange,
            after=parse_position(request.headers.get("If-None-Match"), newest),
            since=parse_since(request.headers.get("If-Modified-Since")),
            key=request.key,
            key_range=request.key_range,
            page_items=request.page_items,
            is_strong=request.is_strong,
        )
        return read_feed(self._storage, container, feed, int(self._now()))


def pkranges_of(request: Request, container: Container) -> tuple[int, ...]:
    """The physical partitions a request is about; a 410 Refusal when there is no such one."""
    ring = container.ring
    named = request.headers.get(RANGE_HEADER)
    if named is not None and not (named.isdecimal() and int(named) < len(ring.ranges)):
        raise Refusal(410, "there is no such partition key range", substatus=RANGE_GONE)
    if request.key is not None:
        return (ring.partition_of(request.key),)
    if named is not None:
        return (int(named),)
    around = ring.partition_around(request.key_range)
    return ring.numbers if around is None else (around,)


def narrower(request: Request, container: Container) -> int | None:
    """The physical partition to look in, where that says more than the key and the container."""
    if request.key is not None or len(container.ring.numbers) == 1:
        return None
    return only(pkranges_of(request, container))


def only(pkranges: Sequence[int]) -> int | None:
    """The one physical partition; None if there are more."""
    return pkranges[0] if len(pkranges) == 1 else None


def place_of(request: Request, container: Container) -> Place:
    """The partition an item operation is bound to, which it must name."""
    key = request.key
    if key is None:
        raise Refusal(400, "the header x-ms-documentdb-partitionkey is required")
    return Place(container, key)


def item_answer(done: Done, *, is_minimal: bool) -> Answer:
    """The answer to an operation on one item; a minimal one has no body."""
    headers = {"etag": done.etag} if done.etag else {}
    body = b"" if is_minimal else done.body.encode()
    return Answer(done.status, body, done.charge, headers)
