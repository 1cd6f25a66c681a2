"""Requests for the items of a container, which the account has found."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from local.cosmos import charges
from local.cosmos.http.batches import run_batch, run_bulk
from local.cosmos.http.requests import RANGE_HEADER, CosmosRequest
from local.cosmos.items.containers import Container
from local.cosmos.items.documents import ITEM_BYTES_MAX, ItemResult, PartitionItems
from local.cosmos.items.patch import parse_patch
from local.cosmos.items.storage import Storage
from local.cosmos.query.merging import build_merging_plan
from local.cosmos.query.paging import PAGE_BYTES, QueryRequest, QueryRun
from local.cosmos.responses import (
    BadRequest,
    CosmosResponse,
    NotOffered,
    RequestRefused,
    write_item_list,
    write_json,
)
from local.cosmos.sql.parser import parse_query

RANGE_GONE = 1002
TAG = re.compile(r'"?(\d{1,18})"?')  # so many digits always fit into an integer of SQLite


@dataclass(frozen=True, slots=True)
class DocumentRequests:
    """Reads, writes, queries and feeds. `now` is the account's clock in seconds since 1970."""

    storage: Storage
    now: Callable[[], float]

    def respond(self, request: CosmosRequest, container: Container) -> CosmosResponse:
        match request.method, request.address.is_feed:
            case "POST", True if request.is_batch:
                return self._run_batch(request, container)
            case "POST", True if request.is_query:
                return self._query(request, container, *request.read_query())
            case "GET", True if request.is_change_feed:
                return self._read_feed(request, container)
            case "GET", True:
                return self._query(request, container, "SELECT * FROM c", {}, None)
            case "GET", False:
                return self._read(request, self._find_items(request, container))
            case ("POST", True) | ("PUT" | "PATCH" | "DELETE", False):
                items = self._find_items(request, container)
                with self.storage.transaction():
                    result = self._write(request, items)
                is_minimal = request.headers.get("Prefer") == "return=minimal"
                return respond_with_item(result, is_minimal=is_minimal)
            case _:
                raise request.refuse_method()

    def _read(self, request: CosmosRequest, items: PartitionItems) -> CosmosResponse:
        item_id = find_id(request, items)
        result = items.read(item_id, is_strong=request.is_strong)
        if request.headers.get("If-None-Match") in ("*", result.etag):
            return CosmosResponse(304, b"", 1.0, {"etag": result.etag})
        return respond_with_item(result, is_minimal=False)

    def _write(self, request: CosmosRequest, items: PartitionItems) -> ItemResult:
        if len(request.body) > ITEM_BYTES_MAX:  # as it was sent, escapes included
            raise RequestRefused(413, f"an item may be sent in {ITEM_BYTES_MAX} bytes at most")
        item_id, if_match = find_id(request, items), request.headers.get("If-Match")
        if request.method == "PUT":
            return items.replace(item_id, request.document, if_match)
        if request.method == "PATCH":
            return items.patch(item_id, parse_patch(request.document), if_match)
        if request.method == "DELETE":
            return items.delete(item_id, if_match)
        if request.operation == "upsert":
            return items.upsert(request.document, if_match)
        if if_match is not None:
            raise NotOffered("If-Match on a create")
        return items.create(request.document)

    def _find_items(self, request: CosmosRequest, container: Container) -> PartitionItems:
        """The items of the logical partition that an operation is bound to, which it must name."""
        key = request.key
        if key is None:
            raise BadRequest("the header x-ms-documentdb-partitionkey is required")
        return PartitionItems(self.storage, container, key, self.now)

    def _run_batch(self, request: CosmosRequest, container: Container) -> CosmosResponse:
        if request.is_atomic:
            return run_batch(self.storage, self._find_items(request, container), request.body)
        named = find_only(find_pkranges(request, container))

        def find_items(key: str | None) -> PartitionItems:
            key = request.key if key is None else key
            if key is None:
                raise BadRequest("an operation needs a partitionKey, or the request its header")
            if named is not None and container.ring.find_partition(key) != named:
                message = "the partition key is not in this partition key range"
                raise RequestRefused(410, message, substatus=RANGE_GONE)
            return PartitionItems(self.storage, container, key, self.now)

        does_go_on = request.has_flag("x-ms-cosmos-batch-continue-on-error")
        return run_bulk(self.storage, find_items, request.body, does_go_on=does_go_on)

    def _query(
        self,
        request: CosmosRequest,
        container: Container,
        text: str,
        parameters: dict[str, Any],
        resume_filter: Any,
    ) -> CosmosResponse:
        if request.is_query_plan:
            query = parse_query(text, parameters)
            plan = build_merging_plan(query, has_key=request.key is not None)
            return CosmosResponse(200, write_json(plan).encode())
        # A physical partition narrows a query only where neither a key nor the container does.
        is_narrowed = request.key is not None or len(container.ring.numbers) == 1
        asked = QueryRequest(
            text,
            parameters,
            key=request.key,
            key_range=request.key_range,
            pkranges=() if is_narrowed else find_pkranges(request, container),
            is_cross_partition=request.may_cross_partitions,
            names_partition=RANGE_HEADER in request.headers,
            page_items=request.page_items,
            continuation=request.headers.get("x-ms-continuation"),
            resume_filter=resume_filter,
            is_strong=request.is_strong,
        )
        run = QueryRun(self.storage, container, asked)
        page = run.read_page(int(self.now()))
        headers = {"x-ms-item-count": str(len(page.results))}
        if page.continuation:
            headers["x-ms-continuation"] = page.continuation
        if request.has_flag("x-ms-documentdb-populatequerymetrics"):
            headers["x-ms-documentdb-query-metrics"] = page.write_metrics()
        if request.has_flag("x-ms-cosmos-populateindexmetrics-v2"):
            headers["x-ms-cosmos-index-utilization"] = run.find_index_metrics().write_json()
        elif request.has_flag("x-ms-cosmos-populateindexmetrics"):
            headers["x-ms-cosmos-index-utilization"] = run.find_index_metrics().write_base64()
        body = write_item_list(container.rid, page.results)
        return CosmosResponse(200, body, page.charge, headers)

    def _read_feed(self, request: CosmosRequest, container: Container) -> CosmosResponse:
        """One page of the change feed in latest-version mode: each item once, oldest change first.

        304 with the newest position when there is none. Deletes and overwritten versions do not
        appear, as on the real service. A position in the feed of a physical partition is the
        sequence number (LSN) of the last transaction read, as an entity tag. What one transaction
        wrote has one number and is never torn apart, so a page may hold more items than were asked
        for.
        """
        mode = request.headers["A-IM"]
        if mode.lower() not in ("incremental feed", "incremental"):
            raise NotOffered(f"the change feed mode {mode!r}")
        pkrange = find_only(find_pkranges(request, container))
        if pkrange is None:
            raise BadRequest("a change feed must name one partition key range, or a partition")
        newest = self.storage.find_lsn(container.number, pkrange)
        position = parse_position(request.headers.get("If-None-Match"), newest)
        since = parse_since(request.headers.get("If-Modified-Since"))
        key, key_range, page_items = request.key, request.key_range, request.page_items
        sql = "SELECT lsn, partition, body FROM items WHERE container = ? AND pkrange = ?"
        sql += " AND lsn > ? AND (expires IS NULL OR expires > ?)"
        values: list[object] = [container.number, pkrange, position, int(self.now())]
        if key is not None:
            sql += " AND partition = ?"
            values.append(key)
        if since is not None:
            sql += " AND ts >= ?"
            values.append(since)
        texts: list[str] = []
        sizes: list[int] = []
        size = 0
        rows = self.storage.connection.execute(f"{sql} ORDER BY lsn, version", values)
        for lsn, partition, body in rows:
            is_full = len(texts) >= page_items or size >= PAGE_BYTES
            if is_full and lsn != position:  # a page ends with a transaction
                break
            position = lsn
            if key_range.covers(partition):
                texts.append(f'{body[:-1]},"_lsn":{lsn}}}')
                sizes.append(len(body))
                size += len(body)
        else:
            position = max(position, newest)
        charge = charges.query(sizes, is_strong=request.is_strong)
        headers = {"etag": f'"{position}"', "x-ms-item-count": str(len(texts))}
        if not texts:
            return CosmosResponse(304, b"", charge, headers)
        return CosmosResponse(200, write_item_list(container.rid, texts), charge, headers)


def parse_position(if_none_match: str | None, newest: int) -> int:
    """The sequence number to resume after; `*` is now."""
    if if_none_match is None:
        return 0
    if if_none_match == "*":
        return newest
    if (match := TAG.fullmatch(if_none_match)) is None:
        raise BadRequest(f"{if_none_match!r} is not a position in the change feed")
    return int(match[1])


def parse_since(if_modified_since: str | None) -> int | None:
    """The second to start from, of an If-Modified-Since header."""
    if if_modified_since is None:
        return None
    try:
        return int(parsedate_to_datetime(if_modified_since).timestamp())
    except ValueError as error:
        raise BadRequest(f"If-Modified-Since {if_modified_since!r} is not a date") from error


def find_pkranges(request: CosmosRequest, container: Container) -> tuple[int, ...]:
    """The physical partitions a request is about; a 410 when it names one that does not exist."""
    ring = container.ring
    named = request.headers.get(RANGE_HEADER)
    if named is not None and not (named.isdecimal() and int(named) < len(ring.ranges)):
        raise RequestRefused(410, "there is no such partition key range", substatus=RANGE_GONE)
    if request.key is not None:
        return (ring.find_partition(request.key),)
    if named is not None:
        return (int(named),)
    around = ring.find_partition_around(request.key_range)
    return ring.numbers if around is None else (around,)


def find_only(pkranges: Sequence[int]) -> int | None:
    return pkranges[0] if len(pkranges) == 1 else None


def find_id(request: CosmosRequest, items: PartitionItems) -> str:
    number = request.address.item_number
    return request.address.item if number is None else items.find_id(number)


def respond_with_item(result: ItemResult, *, is_minimal: bool) -> CosmosResponse:
    headers = {"etag": result.etag} if result.etag else {}
    body = b"" if is_minimal else result.body.encode()
    return CosmosResponse(result.status, body, result.charge, headers)
