"""Databases and containers: what exists, and how each container keeps its items."""

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from local.cosmos.items.indexing import DEFAULT_POLICY, IndexingPolicy, add_root, parse_policy
from local.cosmos.items.partitions import HashRing, KeyPath, cut_ring, parse_key_path
from local.cosmos.items.storage import Storage
from local.cosmos.items.unique_keys import UniqueKey, parse_unique_keys
from local.cosmos.responses import BadRequest, NotOffered, RequestRefused, write_json

SYSTEM_PROPERTIES = ("_rid", "_self", "_etag", "_attachments", "_ts", "_lsn")
DATABASE_BYTES, CONTAINER_BYTES = 4, 8
CONTAINER_BIT = 1 << 31
ID_BYTES_MAX = 1023
NAME_CHARACTERS_MAX = 255  # of a database or a container
FORBIDDEN_IN_ID = frozenset("/\\?#")
NOT_IN_NAME = FORBIDDEN_IN_ID | frozenset("\t\r\n")
KNOWN_PROPERTIES = {
    "id",
    "partitionKey",
    "defaultTtl",
    "indexingPolicy",
    "conflictResolutionPolicy",
    "geospatialConfig",
    "uniqueKeyPolicy",
}


@dataclass(frozen=True, slots=True)
class Database:
    number: int
    name: str
    created: int

    @property
    def rid(self) -> str:
        """The resource id: four bytes, as the service writes them."""
        return write_resource_id(self.number.to_bytes(4, "big"))

    def describe(self) -> dict[str, Any]:
        own = {"id": self.name, "_colls": "colls/", "_users": "users/"}
        return own | describe_system(self.rid, f"dbs/{self.rid}/", self.created)


@dataclass(frozen=True, slots=True)
class Container:
    """A container with its settings parsed; `default_ttl` None means items never expire.

    `ring` is how its keys are divided among physical partitions.
    """

    number: int
    database: Database
    name: str
    created: int
    properties: dict[str, Any]
    key_path: KeyPath
    policy: IndexingPolicy
    default_ttl: int | None
    ring: HashRing
    unique_keys: tuple[UniqueKey, ...] = ()

    @property
    def rid_bytes(self) -> bytes:
        """The eight bytes under the resource id; those of items start with them.

        The highest bit of the fifth byte tells clients that it is a container's: without it they
        take the resource id for that of a user.
        """
        own = CONTAINER_BIT | self.number
        return self.database.number.to_bytes(4, "big") + own.to_bytes(4, "big")

    @property
    def rid(self) -> str:
        return write_resource_id(self.rid_bytes)

    @property
    def self_link(self) -> str:
        return f"dbs/{self.database.rid}/colls/{self.rid}/"

    @property
    def path(self) -> str:
        """The link by names, which clients keep session tokens under."""
        return f"dbs/{self.database.name}/colls/{self.name}"

    def describe(self) -> dict[str, Any]:
        return self.properties | describe_system(self.rid, self.self_link, self.created)


class Catalogue:
    """All databases and containers of an account; lookups of containers are cached."""

    def __init__(self, storage: Storage, now: Callable[[], float]) -> None:
        self._connection = storage.connection
        self._now = now
        self._containers: dict[tuple[str, str], Container] = {}

    def list_databases(self) -> list[Database]:
        rows = self._connection.execute("SELECT number, name, created FROM databases ORDER BY name")
        return [Database(*row) for row in rows]

    def find_database(self, name: str) -> Database:
        """One database; a 404 when it does not exist."""
        for database in self.list_databases():
            if database.name == name:
                return database
        raise RequestRefused(404, f"database {name!r} does not exist")

    def create_database(self, name: Any) -> Database:
        check_name(name)
        if any(d.name == name for d in self.list_databases()):
            raise RequestRefused(409, f"database {name!r} exists already")
        self._connection.execute(
            "INSERT INTO databases (name, created) VALUES (?, ?)", (name, int(self._now()))
        )
        return self.find_database(name)

    def delete_database(self, name: str) -> None:
        number = self.find_database(name).number
        self._connection.execute("DELETE FROM databases WHERE number = ?", (number,))
        self._containers.clear()

    def list_containers(self, database: Database) -> list[Container]:
        rows = self._connection.execute(
            "SELECT number, name, created, properties, partitions FROM containers"
            " WHERE database = ? ORDER BY name",
            (database.number,),
        )
        return [parse_container(database, *row) for row in rows.fetchall()]

    def find_container(self, database: str, name: str) -> Container:
        """One container; a 404 when it, or its database, does not exist."""
        if (database, name) not in self._containers:
            stored = self.list_containers(self.find_database(database))
            self._containers |= {(database, container.name): container for container in stored}
        if (database, name) not in self._containers:
            raise RequestRefused(404, f"container {name!r} does not exist", substatus=1003)
        return self._containers[database, name]

    def create_container(
        self, database: str, document: dict[str, Any], partitions: int = 1
    ) -> Container:
        """Create from a resource document; 409 when the name is taken, 400 for bad settings."""
        owner = self.find_database(database)
        name = check_name(document.get("id"))
        if any(c.name == name for c in self.list_containers(owner)):
            raise RequestRefused(409, f"container {name!r} exists already")
        properties = write_json(fill_defaults(document))
        created = int(self._now())
        parse_container(owner, 0, name, created, properties, partitions)
        self._connection.execute(
            "INSERT INTO containers (database, name, created, properties, partitions)"
            " VALUES (?, ?, ?, ?, ?)",
            (owner.number, name, created, properties, partitions),
        )
        return self.find_container(database, name)

    def delete_container(self, database: str, name: str) -> None:
        number = self.find_container(database, name).number
        self._connection.execute("DELETE FROM containers WHERE number = ?", (number,))
        self._containers.clear()


def fill_defaults(document: dict[str, Any]) -> dict[str, Any]:
    """A container's properties with defaults filled in; a refusal names what is not offered."""
    properties = {key: value for key, value in document.items() if value is not None}
    for key in properties:
        if key not in KNOWN_PROPERTIES:
            raise NotOffered(f"the container property {key!r}")
    parse_key_path(properties.get("partitionKey"))
    return properties | {
        "partitionKey": {"kind": "Hash", "version": 2, **properties["partitionKey"]},
        "indexingPolicy": add_root(properties.get("indexingPolicy") or DEFAULT_POLICY),
    }


def parse_container(
    database: Database, number: int, name: str, created: int, text: str, partitions: int
) -> Container:
    """A container from its row; a refusal when its settings make no sense."""
    properties = json.loads(text)
    default_ttl = properties.get("defaultTtl")
    if default_ttl is not None and not is_ttl(default_ttl):
        raise BadRequest(f"defaultTtl must be -1 or a positive whole number, not {default_ttl}")
    return Container(
        number=number,
        database=database,
        name=name,
        created=created,
        properties=properties,
        key_path=parse_key_path(properties.get("partitionKey")),
        policy=parse_policy(properties.get("indexingPolicy", DEFAULT_POLICY)),
        default_ttl=default_ttl,
        ring=cut_ring(partitions),
        unique_keys=parse_unique_keys(properties.get("uniqueKeyPolicy")),
    )


def check_name(value: Any) -> str:
    """The id of a database or a container itself; a 400 when it breaks the service's rules."""
    if isinstance(value, str):
        is_odd = value[-1:].isspace() or not NOT_IN_NAME.isdisjoint(value)
        if is_odd or len(value) > NAME_CHARACTERS_MAX:
            raise refuse_id(value, NAME_CHARACTERS_MAX)
    return check_id(value)


def check_id(value: Any) -> str:
    """The id itself; a 400 when it breaks the service's rules."""
    if not isinstance(value, str) or not value:
        raise BadRequest("the required property 'id' is missing or is not a string")
    if len(value.encode()) > ID_BYTES_MAX:
        raise refuse_id(value, ID_BYTES_MAX + 1)
    if FORBIDDEN_IN_ID.intersection(value):
        raise BadRequest(f"id {value!r} holds one of the forbidden characters / \\ ? #")
    return value


def refuse_id(value: str, limit: int) -> BadRequest:
    """A refusal in the words that clients look for."""
    return BadRequest(
        f"The resource id {value[:80]!r} is not allowed. Ensure to provide a unique non-empty"
        f" string less than '{limit}' characters."
    )


def is_ttl(value: Any) -> bool:
    """Return whether a value may stand as a time to live: -1 for never, or seconds above zero."""
    return isinstance(value, int) and not isinstance(value, bool) and (value == -1 or value > 0)


def write_resource_id(raw: bytes) -> str:
    """Write a resource id: base64 with a dash for the slash, so that it can stand in a path."""
    return base64.b64encode(raw, altchars=b"+-").decode()


def decode_id(text: str) -> bytes:
    """The bytes of a resource id; none of a text that is no resource id."""
    try:
        return base64.b64decode(text, altchars=b"+-", validate=True)
    except (binascii.Error, ValueError):
        return b""


def parse_item_number(rid: str) -> int | None:
    """The number of the item that a resource id is of; None when it is of no item."""
    number = decode_id(rid)[CONTAINER_BYTES:]
    return int.from_bytes(number, "little") if number else None


def describe_system(rid: str, link: str, created: int) -> dict[str, Any]:
    etag = f'"00000000-0000-0000-0000-{created:012x}"'
    return {"_rid": rid, "_self": link, "_etag": etag, "_ts": created}
