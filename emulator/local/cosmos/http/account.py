"""An account: from a request to a response, with neither HTTP nor faults in sight.

It answers for itself, its databases, containers and partition ranges; items are in `documents`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from local.cosmos import charges
from local.cosmos.config import ONE_REGION, STRONGEST, CosmosConfig
from local.cosmos.http.documents import DocumentRequests, find_only, find_pkranges
from local.cosmos.http.requests import RANGE_HEADER, CosmosRequest
from local.cosmos.items.containers import Catalogue, Container
from local.cosmos.items.partitions import count_partitions
from local.cosmos.items.storage import Storage
from local.cosmos.query.merging import needs_merging
from local.cosmos.responses import (
    BadRequest,
    CosmosResponse,
    NotOffered,
    RequestRefused,
    write_json,
)
from local.cosmos.sql.parser import parse_query
from local.cosmos.sql.values import UNDEFINED
from local.loopback import HOST

RID_MISMATCH = 1024
SESSION_NOT_AVAILABLE = 1002
WRITE_FORBIDDEN = 3
PURGE_SECONDS = 5.0
# A text of JSON, as the service gives it. The .NET client passes it to its query engine, which ends
# the client's process when the object is empty.
QUERY_ENGINE = write_json(
    {
        "maxSqlQueryInputLength": 262144,
        "maxJoinsPerSqlQuery": 5,
        "maxLogicalAndPerSqlQuery": 500,
        "maxLogicalOrPerSqlQuery": 500,
        "maxUdfRefPerSqlQuery": 10,
        "maxInExpressionItemsCount": 16000,
        "queryMaxInMemorySortDocumentCount": 500,
        "maxQueryRequestTimeoutFraction": 0.9,
        "sqlAllowNonFiniteNumbers": False,
        "sqlAllowAggregateFunctions": True,
        "sqlAllowSubQuery": False,
        "sqlAllowScalarSubQuery": False,
        "allowNewKeywords": True,
        "sqlAllowLike": True,
        "sqlAllowGroupByClause": False,
        "maxSpatialQueryCells": 12,
        "spatialMaxGeometryPointCount": 256,
        "sqlDisableOptimizationFlags": 0,
        "sqlAllowTop": True,
        "enableSpatialIndexing": True,
    }
)


class UnknownRegion(ValueError):
    """The account has no region of that name."""


class AccountRegions:
    """The regions of the account: all of them are read, one is written.

    They share one store, so what was acknowledged is everywhere at once. An account of one region
    has one endpoint. One of several has an endpoint per region and one of its own, which passes
    everything on to the write region, wherever that is, and is gone with it.
    """

    def __init__(self, names: Sequence[str], write: str | None = None) -> None:
        self.names = tuple(names)
        self.write = write if write in self.names else self.names[0]
        self.ports: dict[int, str] = {}  # the region behind each

    def find_by_port(self, port: int) -> str:
        """The region behind a port: behind the account's own it is the write region."""
        return self.ports.get(port, self.write)

    def check_write(self, request: CosmosRequest) -> None:
        """Raise the 403 of a write that came to a region which is only read."""
        taker = request.moved_to or self.write
        if request.region != taker:
            message = f"writes go to region {taker}, not to {request.region}"
            raise RequestRefused(403, message, substatus=WRITE_FORBIDDEN)

    def list_locations(self, base_url: str) -> tuple[dict[str, str], list[dict[str, str]]]:
        """Return where to write, and where to read, the write region first.

        `base_url` is where the request came in: the endpoint of an account of one region.
        """
        urls = {name: f"http://{HOST}:{port}/" for port, name in self.ports.items()}
        read = [
            {"name": name, "databaseAccountEndpoint": urls.get(name, base_url)}
            for name in sorted(self.names, key=lambda name: name != self.write)
        ]
        return read[0], read


class CosmosAccount:
    """Databases, containers and items of one account over one storage file.

    Calls must come from one thread at a time; each runs to its end, so writes are serial. The
    default consistency is `consistency`; with `partitions_fail_over` clients are told to look for
    the region that takes the writes of a partition. `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        clock: Callable[[], float],
        consistency: str = STRONGEST,
        regions: Sequence[str] = ONE_REGION,
        partitions_fail_over: bool = False,
    ) -> None:
        self.storage = Storage(path, clock)
        self._clock = clock
        self._skew = 0.0
        self.consistency = consistency
        self.partitions_fail_over = partitions_fail_over
        self.regions = AccountRegions(regions, self.storage.write_region)
        self.catalogue = Catalogue(self.storage, self.now)
        self._documents = DocumentRequests(self.storage, self.now)
        self._purge_due = 0.0

    def now(self) -> float:
        """Seconds since 1970, by the clock of the region that serves the current request."""
        return self._clock() + self._skew

    def move_write_region(self, name: str) -> None:
        """Let another region take the writes, and store that; raises UnknownRegion."""
        names = self.regions.names
        if name not in names:
            raise UnknownRegion(f"there is no region {name!r}, only {', '.join(names)}")
        self.regions.write = name
        self.storage.store_write_region(name)

    def create_missing(self, config: CosmosConfig) -> None:
        if all(one.name != config.database for one in self.catalogue.list_databases()):
            self.catalogue.create_database(config.database)
        owner = self.catalogue.find_database(config.database)
        existing = {one.name for one in self.catalogue.list_containers(owner)}
        for container in config.containers:
            if container.name not in existing:
                properties = dict(container.properties)
                self.catalogue.create_container(config.database, properties, container.partitions)

    def count_partitions(self) -> dict[str, int]:
        """The number of physical partitions by the name of a container, of whatever database."""
        counts: dict[str, int] = {}
        for database in self.catalogue.list_databases():
            for one in self.catalogue.list_containers(database):
                counts[one.name] = max(len(one.ring.numbers), counts.get(one.name, 0))
        return counts

    def find_partition(self, request: CosmosRequest) -> str | None:
        """The number of the one physical partition that a request is for, if there is one."""
        address = request.address
        if address.kind != "docs":
            return None
        try:
            container = self.catalogue.find_container(address.database, address.container)
            number = find_only(find_pkranges(request, container))
        except (RequestRefused, UnicodeEncodeError, RecursionError):
            return None  # the request itself is refused when it is its turn
        return None if number is None else str(number)

    def respond(self, request: CosmosRequest) -> CosmosResponse:
        self._skew = request.skew
        if self._clock() >= self._purge_due:
            self._purge_due = self._clock() + PURGE_SECONDS
            self.storage.purge(int(self.now()))
        return catch_refusal(self._respond, request)

    def _respond(self, request: CosmosRequest) -> CosmosResponse:
        request.check_headers()
        if request.is_write:
            self.regions.check_write(request)
        if request.address.kind == "docs":
            return self._respond_in_container(request)
        if request.is_query:
            return self._find_resources(request)
        match request.method, request.address.kind, request.address.is_feed:
            case "GET", "", _:
                response = respond_with(self._describe(request.base_url))
            case "GET", "pkranges", True:
                response = self._list_partition_ranges(request)
            case _, "dbs", _:
                response = self._respond_about_databases(request)
            case _, "colls", _:
                response = self._respond_about_containers(request)
            case _:
                raise request.refuse_method()
        return response.add_headers({"lsn": str(self.storage.version)})

    def _respond_in_container(self, request: CosmosRequest) -> CosmosResponse:
        address = request.address
        container = self.catalogue.find_container(address.database, address.container)
        intended = request.headers.get("x-ms-cosmos-intended-collection-rid")
        if intended not in (None, container.rid):
            message = "the container was deleted and created again"
            raise BadRequest(message, substatus=RID_MISMATCH)
        pkranges = find_pkranges(request, container)
        if request.lag is None:
            response = catch_refusal(self._documents.respond, request, container)
        else:
            with self.storage.show_past(request.lag):
                response = catch_refusal(self._respond_late, request, container)
        lsns = {number: self.storage.find_lsn(container.number, number) for number in pkranges}
        return response.add_headers(
            {
                "lsn": str(lsns[pkranges[-1]]),
                "x-ms-session-token": ",".join(f"{n}:-1#{lsn}" for n, lsn in lsns.items()),
                RANGE_HEADER: str(pkranges[-1]),
                "x-ms-alt-content-path": container.path,
            }
        )

    def _respond_late(self, request: CosmosRequest, container: Container) -> CosmosResponse:
        for pkrange, lsn in request.session_lsns.items():
            if self.storage.find_lsn(container.number, pkrange) < lsn:
                message = "the session has seen what has not come here yet"
                raise RequestRefused(404, message, substatus=SESSION_NOT_AVAILABLE)
        return self._documents.respond(request, container)

    def _describe(self, base_url: str) -> dict[str, Any]:
        written, read = self.regions.list_locations(base_url)
        return {
            "_self": "",
            "id": "local",
            "_rid": "local",
            "_dbs": "//dbs/",
            "writableLocations": [written],
            "readableLocations": read,
            "enableMultipleWriteLocations": False,
            "enablePerPartitionFailoverBehavior": self.partitions_fail_over,
            "userReplicationPolicy": {"minReplicaSetSize": 3, "maxReplicasetSize": 4},
            "userConsistencyPolicy": {"defaultConsistencyLevel": self.consistency},
            "queryEngineConfiguration": QUERY_ENGINE,
        }

    def _find_resources(self, request: CosmosRequest) -> CosmosResponse:
        """The databases, or the containers of one, for which a condition holds, in one page."""
        address = request.address
        if request.method != "POST" or not address.is_feed or address.kind not in ("dbs", "colls"):
            raise NotOffered(f"queries over {address.kind or 'the account'}")
        text, parameters, resume_filter = request.read_query()
        query = parse_query(text, parameters)
        if needs_merging(query) or resume_filter is not None or request.is_query_plan:
            raise NotOffered(f"more than conditions in a query over {address.kind}")
        if address.kind == "dbs":
            key, rid = "Databases", ""
            documents = [one.describe() for one in self.catalogue.list_databases()]
        else:
            owner = self.catalogue.find_database(address.database)
            key, rid = "DocumentCollections", owner.rid
            documents = [one.describe() for one in self.catalogue.list_containers(owner)]
        found = [
            shown
            for document in documents
            if query.condition is None or query.condition.evaluate(document) is True
            if (shown := query.selection.evaluate(document)) is not UNDEFINED
        ]
        return respond_with({"_rid": rid, key: found, "_count": len(found)})

    def _respond_about_databases(self, request: CosmosRequest) -> CosmosResponse:
        name = request.address.database
        match request.method, request.address.is_feed:
            case "GET", True:
                found = [one.describe() for one in self.catalogue.list_databases()]
                return respond_with({"_rid": "", "Databases": found, "_count": len(found)})
            case "POST", True:
                created = self.catalogue.create_database(read_object(request).get("id"))
                return respond_with(created.describe(), 201)
            case "GET", False:
                return respond_with(self.catalogue.find_database(name).describe())
            case "DELETE", False:
                self.catalogue.delete_database(name)
                return CosmosResponse(204)
            case _:
                raise request.refuse_method()

    def _respond_about_containers(self, request: CosmosRequest) -> CosmosResponse:
        database, name = request.address.database, request.address.container
        match request.method, request.address.is_feed:
            case "GET", True:
                owner = self.catalogue.find_database(database)
                found = [one.describe() for one in self.catalogue.list_containers(owner)]
                listing = {"DocumentCollections": found, "_count": len(found)}
                return respond_with({"_rid": owner.rid, **listing})
            case "POST", True:
                partitions = count_partitions(request.throughput)
                document = read_object(request)
                created = self.catalogue.create_container(database, document, partitions)
                return respond_with(created.describe(), 201)
            case "GET", False:
                return respond_with(self.catalogue.find_container(database, name).describe())
            case "DELETE", False:
                self.catalogue.delete_container(database, name)
                return CosmosResponse(204)
            case _:
                raise request.refuse_method()

    def _list_partition_ranges(self, request: CosmosRequest) -> CosmosResponse:
        address = request.address
        container = self.catalogue.find_container(address.database, address.container)
        tag = f'"{container.number}"'
        if request.headers.get("If-None-Match") == tag:
            return CosmosResponse(304, headers={"etag": tag})
        ranges = [
            {
                "id": str(number),
                "minInclusive": one.start,
                "maxExclusive": one.end,
                "status": "online",
                "parents": [],
            }
            for number, one in enumerate(container.ring.ranges)
        ]
        document = {"_rid": container.rid, "PartitionKeyRanges": ranges, "_count": len(ranges)}
        return CosmosResponse(200, write_json(document).encode(), headers={"etag": tag})


def respond_with(document: dict[str, Any], status: int = 200) -> CosmosResponse:
    headers = {"etag": document["_etag"]} if "_etag" in document else {}
    return CosmosResponse(status, write_json(document).encode(), charges.METADATA, headers)


def read_object(request: CosmosRequest) -> dict[str, Any]:
    document = request.document
    if not isinstance(document, dict):
        raise BadRequest("the body must be a JSON object")
    return document


def catch_refusal[*A](work: Callable[[*A], CosmosResponse], *arguments: *A) -> CosmosResponse:
    try:
        return work(*arguments)
    except RequestRefused as refusal:
        return refusal.to_response()
    except UnicodeEncodeError:
        return BadRequest("the text holds half of a surrogate pair").to_response()
    except RecursionError:
        return BadRequest("the document is nested too deeply").to_response()
