"""Requests about the account itself: its description, databases, containers, partition ranges."""

from typing import Any

from local.cosmos import charges
from local.cosmos.answers import Answer, Refusal, unsupported
from local.cosmos.catalogue import Catalogue, Container
from local.cosmos.regions import Regions
from local.cosmos.requests import Request, json_bytes
from local.cosmos.ring import partitions_for


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


def method_refusal(request: Request) -> Refusal:
    """The refusal of a method on a resource."""
    return unsupported(f"{request.method} on {request.address.kind or 'the account'}")
