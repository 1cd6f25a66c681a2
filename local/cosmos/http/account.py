"""An account: from a request to an answer, with neither HTTP nor faults in sight.

Requests about the account itself: its description, databases, containers, partition ranges.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from local.cosmos.answers import Answer, Refusal, unsupported
from local.cosmos.config import ONE_REGION, CosmosConfig
from local.cosmos.http.addresses import Address, by_name
from local.cosmos.http.documents import Documents, pkranges_of
from local.cosmos.http.requests import RANGE_HEADER, Request, json_bytes, method_refusal
from local.cosmos.items import charges
from local.cosmos.items.containers import Catalogue, Container
from local.cosmos.items.partitions import partitions_for
from local.cosmos.items.storage import Storage
from local.cosmos.regions.write_region import Regions

RID_MISMATCH = 1024
SESSION_NOT_AVAILABLE = 1002
PURGE_SECONDS = 5.0


class Account:
    """Databases, containers and items of one account over one storage file.

    Calls must come from one thread at a time; each runs to its end, so writes are serial. The
    default consistency is `consistency`. `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        clock: Callable[[], float],
        consistency: str = "Strong",
        regions: Sequence[str] = ONE_REGION,
    ) -> None:
        self._storage = Storage(path, clock)
        self._clock = clock
        self._skew = 0.0
        self._consistency = consistency
        self.regions = Regions(regions, self._storage.write_region)
        self._catalogue = Catalogue(self._storage, self.now)
        self._metadata = Metadata(self._catalogue, self.regions, consistency)
        self._documents = Documents(self._storage, self.now)
        self._purge_due = 0.0

    def now(self) -> float:
        """Seconds since 1970, as far as the account knows."""
        return self._clock() + self._skew

    def move_write_region(self, name: str) -> None:
        """Let another region take the writes, and keep that; raises UnknownRegion."""
        self.regions.move(name)
        self._storage.keep_write_region(name)

    def remember(self, seconds: float | None) -> None:
        """Keep what late reads need to look back so far, from now on; None for no further."""
        self._storage.remember(seconds)

    def provide(self, config: CosmosConfig) -> None:
        """Create the database and the containers that do not exist yet."""
        if all(one.name != config.database for one in self._catalogue.databases()):
            self._catalogue.create_database(config.database)
        owner = self._catalogue.database(config.database)
        existing = {one.name for one in self._catalogue.containers(owner)}
        for container in config.containers:
            if container.name not in existing:
                self._catalogue.create_container(
                    config.database, dict(container.properties), container.partitions
                )

    def container_names(self) -> set[str]:
        """The names of the containers of all databases."""
        return {
            container.name
            for database in self._catalogue.databases()
            for container in self._catalogue.containers(database)
        }

    def close(self) -> None:
        """Close the storage."""
        self._storage.close()

    def named(self, address: Address) -> Address:
        """An address by names, for one that may be a self-link; a 404 Refusal when it is broken."""
        return by_name(address, self._catalogue)

    def answer(self, request: Request) -> Answer:
        """Answer one request; a refusal is an answer too."""
        self._skew = request.skew
        self._purge()
        return settled(self._answer, request)

    def _purge(self) -> None:
        if self._clock() >= self._purge_due:
            self._purge_due = self._clock() + PURGE_SECONDS
            self._documents.purge()

    def _answer(self, request: Request) -> Answer:
        request.check_headers(self._consistency)
        if request.is_write:
            self.regions.check_write(request.region)
        if request.address.kind == "docs":
            return self._answer_in_container(request)
        answer = self._metadata.answer(request)
        return answer.with_headers({"lsn": str(self._storage.version)})

    def _answer_in_container(self, request: Request) -> Answer:
        container = self._container(request)
        pkranges = pkranges_of(request, container)
        if request.lag is not None:
            with self._storage.seen_late(request.lag):
                answer = settled(self._answer_late, request, container)
        else:
            answer = settled(self._documents.answer, request, container)
        return answer.with_headers(self._position(container, pkranges))

    def _answer_late(self, request: Request, container: Container) -> Answer:
        for pkrange, lsn in request.session_lsns.items():
            if self._storage.lsn(container.number, pkrange) < lsn:
                message = "the session has seen what has not come here yet"
                raise Refusal(404, message, substatus=SESSION_NOT_AVAILABLE)
        return self._documents.answer(request, container)

    def _position(self, container: Container, pkranges: Sequence[int]) -> dict[str, str]:
        """Where the physical partitions of a request stand, for sessions and feeds."""
        lsns = [self._storage.lsn(container.number, number) for number in pkranges]
        tokens = [f"{number}:-1#{lsn}" for number, lsn in zip(pkranges, lsns, strict=True)]
        return {
            "lsn": str(lsns[-1]),
            "x-ms-session-token": ",".join(tokens),
            RANGE_HEADER: str(pkranges[-1]),
            "x-ms-alt-content-path": container.path,
        }

    def _container(self, request: Request) -> Container:
        address = request.address
        container = self._catalogue.container(address.database, address.container)
        intended = request.headers.get("x-ms-cosmos-intended-collection-rid")
        if intended is not None and intended != container.rid:
            message = "the container was deleted and created again"
            raise Refusal(400, message, substatus=RID_MISMATCH)
        return container


def settled[**P](work: Callable[P, Answer], *args: P.args, **kwargs: P.kwargs) -> Answer:
    """The answer of some work, its refusal included."""
    try:
        return work(*args, **kwargs)
    except Refusal as refusal:
        return refusal.answer()
    except UnicodeEncodeError:
        return Refusal(400, "the text holds half of a surrogate pair").answer()
    except RecursionError:
        return Refusal(400, "the document is nested too deeply").answer()


class Metadata:
    """Everything that is not an item."""

    def __init__(self, catalogue: Catalogue, regions: Regions, consistency: str) -> None:
        self._catalogue = catalogue
        self._regions = regions
        self._consistency = consistency

    def answer(self, request: Request) -> Answer:
        """Answer a request whose address is not that of items."""
        address = request.address
        if request.is_query:
            raise unsupported(f"queries over {address.kind}")
        match request.method, address.kind, address.is_feed:
            case "GET", "", _:
                return ok(self._account(request.base_url))
            case "GET", "pkranges", True:
                return self._partition_ranges(request)
            case _, "dbs", _:
                return self._databases(request)
            case _, "colls", _:
                return self._containers(request)
            case _:
                raise method_refusal(request)

    def _account(self, base_url: str) -> dict[str, Any]:
        written, read = self._regions.locations(base_url)
        return {
            "_self": "",
            "id": "local",
            "_rid": "local",
            "_dbs": "//dbs/",
            "writableLocations": [written],
            "readableLocations": read,
            "enableMultipleWriteLocations": False,
            "userReplicationPolicy": {"minReplicaSetSize": 3, "maxReplicasetSize": 4},
            "userConsistencyPolicy": {"defaultConsistencyLevel": self._consistency},
            "queryEngineConfiguration": "{}",
        }

    def _databases(self, request: Request) -> Answer:
        name = request.address.database
        match request.method, request.address.is_feed:
            case "GET", True:
                found = [one.document() for one in self._catalogue.databases()]
                return ok({"_rid": "", "Databases": found, "_count": len(found)})
            case "POST", True:
                document = object_of(request)
                return ok(self._catalogue.create_database(document.get("id")).document(), 201)
            case "GET", False:
                return ok(self._catalogue.database(name).document())
            case "DELETE", False:
                self._catalogue.delete_database(name)
                return Answer(204)
            case _:
                raise method_refusal(request)

    def _containers(self, request: Request) -> Answer:
        address = request.address
        match request.method, address.is_feed:
            case "GET", True:
                return self._list_containers(address.database)
            case "POST", True:
                partitions = partitions_for(request.throughput)
                container = self._catalogue.create_container(
                    address.database, object_of(request), partitions
                )
                return ok(container.document(), 201)
            case "GET", False:
                return ok(self._container(request).document())
            case "DELETE", False:
                self._catalogue.delete_container(address.database, address.container)
                return Answer(204)
            case _:
                raise method_refusal(request)

    def _list_containers(self, database: str) -> Answer:
        owner = self._catalogue.database(database)
        found = [one.document() for one in self._catalogue.containers(owner)]
        return ok({"_rid": owner.rid, "DocumentCollections": found, "_count": len(found)})

    def _partition_ranges(self, request: Request) -> Answer:
        container = self._container(request)
        tag = f'"{container.number}"'
        if request.headers.get("If-None-Match") == tag:
            return Answer(304, headers={"etag": tag})
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
        return Answer(200, json_bytes(document), headers={"etag": tag})

    def _container(self, request: Request) -> Container:
        return self._catalogue.container(request.address.database, request.address.container)


def ok(document: dict[str, Any], status: int = 200) -> Answer:
    """A resource as an answer, with its tag if it has one."""
    headers = {"etag": document["_etag"]} if "_etag" in document else {}
    return Answer(status, json_bytes(document), charges.METADATA, headers)


def object_of(request: Request) -> dict[str, Any]:
    """The body, which must be a JSON object."""
    document = request.document
    if not isinstance(document, dict):
        raise Refusal(400, "the body must be a JSON object")
    return document
