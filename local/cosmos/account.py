"""An account: from a request to an answer, with neither HTTP nor faults in sight."""

from collections.abc import Callable
from pathlib import Path

from local.cosmos.answers import Answer, Refusal, item_list, unsupported
from local.cosmos.batch import run_batch
from local.cosmos.catalogue import Catalogue, Container
from local.cosmos.change_feed import FeedRequest, parse_position, parse_since, read_feed
from local.cosmos.config import CosmosConfig
from local.cosmos.items import Done, Items, Place
from local.cosmos.metadata import Metadata, method_refusal
from local.cosmos.query_run import QueryRequest, QueryRun
from local.cosmos.requests import Request
from local.cosmos.storage import Storage

RID_MISMATCH = 1024
PURGE_SECONDS = 5.0


class Account:
    """Databases, containers and items of one account over one storage file.

    Calls must come from one thread at a time; each runs to its end, so writes are serial. The
    default consistency is `consistency`. `now` gives seconds since 1970.
    """

    def __init__(
        self, path: Path | None, *, now: Callable[[], float], consistency: str = "Strong"
    ) -> None:
        self._storage = Storage(path)
        self._now = now
        self._consistency = consistency
        self._catalogue = Catalogue(self._storage, now)
        self._metadata = Metadata(self._catalogue, consistency)
        self._items = Items(self._storage, now)
        self._purge_due = 0.0

    @property
    def lsn(self) -> int:
        """The sequence number of the newest change."""
        return self._storage.lsn

    def provide(self, config: CosmosConfig) -> None:
        """Create the database and the containers that do not exist yet."""
        if all(one.name != config.database for one in self._catalogue.databases()):
            self._catalogue.create_database(config.database)
        owner = self._catalogue.database(config.database)
        existing = {one.name for one in self._catalogue.containers(owner)}
        for container in config.containers:
            if container.name not in existing:
                self._catalogue.create_container(config.database, dict(container.properties))

    def close(self) -> None:
        """Close the storage."""
        self._storage.close()

    def answer(self, request: Request) -> Answer:
        """Answer one request; a refusal is an answer too."""
        self._purge()
        try:
            request.check_headers(self._consistency)
            if request.address.kind != "docs":
                return self._metadata.answer(request)
            return self._answer_items(request)
        except Refusal as refusal:
            return refusal.answer()
        except UnicodeEncodeError:
            return Refusal(400, "the text holds half of a surrogate pair").answer()
        except RecursionError:
            return Refusal(400, "the document is nested too deeply").answer()

    def _purge(self) -> None:
        if self._now() >= self._purge_due:
            self._purge_due = self._now() + PURGE_SECONDS
            self._items.purge()

    def _answer_items(self, request: Request) -> Answer:
        container = self._container(request)
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
            case ("POST", True) | ("PUT" | "DELETE", False):
                return self._write(request, container)
            case _:
                raise method_refusal(request)

    def _container(self, request: Request) -> Container:
        address = request.address
        container = self._catalogue.container(address.database, address.container)
        intended = request.headers.get("x-ms-cosmos-intended-collection-rid")
        if intended is not None and intended != container.rid:
            message = "the container was deleted and created again"
            raise Refusal(400, message, substatus=RID_MISMATCH)
        return container

    def _read(self, request: Request, container: Container) -> Answer:
        place = place_of(request, container)
        done = self._items.read(place, request.address.item, is_strong=request.is_strong)
        if request.headers.get("If-None-Match") in ("*", done.etag):
            return Answer(304, b"", 1.0, {"etag": done.etag})
        return item_answer(done, is_minimal=False)

    def _write(self, request: Request, container: Container) -> Answer:
        place = place_of(request, container)
        with self._storage.transaction():
            done = self._written(request, place)
        return item_answer(done, is_minimal=request.headers.get("Prefer") == "return=minimal")

    def _written(self, request: Request, place: Place) -> Done:
        item_id, if_match = request.address.item, request.if_match
        if request.method == "PUT":
            return self._items.replace(place, item_id, request.document, if_match)
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
        query = QueryRequest(
            text,
            parameters,
            key=request.key,
            key_range=request.key_range,
            is_cross_partition=request.flag("x-ms-documentdb-query-enablecrosspartition")
            or request.method == "GET",
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
        feed = FeedRequest(
            after=parse_position(request.headers.get("If-None-Match"), self._storage),
            since=parse_since(request.headers.get("If-Modified-Since")),
            key=request.key,
            key_range=request.key_range,
            page_items=request.page_items,
            is_strong=request.is_strong,
        )
        return read_feed(self._storage, container, feed, int(self._now()))


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
