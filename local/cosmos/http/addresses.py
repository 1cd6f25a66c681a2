"""The address of a resource: what a URL path names, and what its signature covers.

Self-links: addresses by resource ids, which clients use for an item they are handed whole.

`dbs/AAAAAQ==/colls/AAAAAQAAAAE=/docs/AAAAAQAAAAEBAAAAAAAAAA==` names a database, a container and an
item by numbers they were given at birth. What is signed of such an address is the last of its ids,
in lower case.
"""

import base64
import binascii
from dataclasses import dataclass, replace
from urllib.parse import unquote

from local.cosmos.answers import Refusal, unsupported
from local.cosmos.items.containers import Catalogue

KINDS = ("dbs", "colls", "docs", "pkranges")
UNKNOWN_KINDS = {
    "sprocs": "stored procedures",
    "triggers": "triggers",
    "udfs": "user defined functions",
    "users": "users",
    "permissions": "permissions",
    "offers": "throughput offers",
    "conflicts": "conflict feeds",
    "attachments": "attachments",
    "clientencryptionkeys": "client encryption keys",
    "operations": "partition key deletes",
    "addresses": "direct mode addresses",
}


@dataclass(frozen=True, slots=True)
class Address:
    """`names` pairs each kind with an id; a feed ends in a kind that has none.

    `dbs/lockstep/colls/journal/docs` is the feed of kind docs in database lockstep, container
    journal; `link` and `kind` are what the authorization header signs. `birth` is an item's number
    in a self-link.
    """

    kind: str
    link: str
    database: str = ""
    container: str = ""
    item: str = ""
    is_feed: bool = False
    birth: int | None = None


def parse_address(path: str) -> Address:
    """Read a raw URL path; a Refusal names what is not offered."""
    parts = [unquote(part) for part in path.strip("/").split("/") if part]
    for kind in parts[::2]:
        if kind not in KINDS:
            raise unsupported(UNKNOWN_KINDS.get(kind, f"resources of kind {kind!r}"))
    if tuple(parts[::2]) not in SHAPES:
        raise Refusal(400, f"{path!r} is not the address of a resource")
    is_feed = len(parts) % 2 == 1
    database, container, item = [*parts[1::2], "", "", ""][:3]
    link = "/".join(parts[:-1] if is_feed else parts)
    kind = parts[-1 if is_feed else -2] if parts else ""
    return Address(kind, link, database, container, item, is_feed)


SHAPES = {
    (),
    ("dbs",),
    ("dbs", "colls"),
    ("dbs", "colls", "docs"),
    ("dbs", "colls", "pkranges"),
}


DATABASE_BYTES, CONTAINER_BYTES = 4, 8


def by_name(address: Address, catalogue: Catalogue) -> Address:
    """The address with the names of its database and container; one by names is returned as it is.

    An item stays without its name, but for its number `birth`. A 404 Refusal when there is no such
    database or container.
    """
    database_bytes = raw_id(address.database)
    if len(database_bytes) != DATABASE_BYTES:
        return address
    last = address.item or address.container or address.database
    named = replace(address, database=database_name(address.database, catalogue))
    if address.container:
        named = replace(named, container=container_name(named, catalogue))
    birth = raw_id(address.item)[CONTAINER_BYTES:]
    return replace(
        named,
        item="",
        birth=int.from_bytes(birth, "little") if birth else None,
        link=last.lower(),
    )


def database_name(rid: str, catalogue: Catalogue) -> str:
    """The name of the database with a resource id."""
    for database in catalogue.databases():
        if database.rid == rid:
            return database.name
    raise Refusal(404, f"there is no database with the resource id {rid!r}")


def container_name(address: Address, catalogue: Catalogue) -> str:
    """The name of the container with a resource id in a database by name."""
    for container in catalogue.containers(catalogue.database(address.database)):
        if container.rid == address.container:
            return container.name
    message = f"there is no container with the resource id {address.container!r}"
    raise Refusal(404, message, substatus=1003)


def raw_id(text: str) -> bytes:
    """The bytes of a resource id, none of a text that is no such id."""
    try:
        return base64.b64decode(text, altchars=b"+-", validate=True)
    except (binascii.Error, ValueError):
        return b""
