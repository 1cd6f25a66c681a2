"""The address of a resource: what a URL path names, and what its signature covers.

An address names resources by their names, or is a self-link of resource ids, which clients use for
an item they hold: `dbs/AAAAAQ==/colls/AAAAAQAAAAE=/docs/AAAAAQAAAAEBAAAAAAAAAA==` names a database,
a container and an item by the numbers they were given when they were created.
"""

import base64
import binascii
from dataclasses import dataclass, replace
from urllib.parse import unquote

from local.cosmos.items.containers import Catalogue
from local.cosmos.responses import BadRequest, NotOffered, RequestRefused

KINDS = ("dbs", "colls", "docs", "pkranges")
SHAPES = {(), ("dbs",), ("dbs", "colls"), ("dbs", "colls", "docs"), ("dbs", "colls", "pkranges")}
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
DATABASE_BYTES, CONTAINER_BYTES = 4, 8


@dataclass(frozen=True, slots=True)
class Address:
    """`dbs/lockstep/colls/journal/docs` is the feed of kind docs in container journal.

    A feed ends in a kind without an id. `link` and `kind` are what the authorization header signs.
    `item_number` names an item in a self-link.
    """

    kind: str
    link: str
    database: str = ""
    container: str = ""
    item: str = ""
    is_feed: bool = False
    item_number: int | None = None


def parse_address(path: str) -> Address:
    """Read a raw URL path; a refusal names what is not offered."""
    parts = [unquote(part) for part in path.strip("/").split("/") if part]
    for kind in parts[::2]:
        if kind not in KINDS:
            raise NotOffered(UNKNOWN_KINDS.get(kind, f"resources of kind {kind!r}"))
    if tuple(parts[::2]) not in SHAPES:
        raise BadRequest(f"{path!r} is not the address of a resource")
    is_feed = len(parts) % 2 == 1
    database, container, item = [*parts[1::2], "", "", ""][:3]
    link = "/".join(parts[:-1] if is_feed else parts)
    kind = parts[-1 if is_feed else -2] if parts else ""
    return Address(kind, link, database, container, item, is_feed)


def resolve_self_link(address: Address, catalogue: Catalogue) -> Address:
    """The same address by the names of its database and container; one by names stays as it is.

    An item keeps its number instead of a name. A 404 when there is no such database or container.
    """
    if len(decode_id(address.database)) != DATABASE_BYTES:
        return address
    database = next((d for d in catalogue.list_databases() if d.rid == address.database), None)
    if database is None:
        message = f"there is no database with the resource id {address.database!r}"
        raise RequestRefused(404, message)
    name = ""
    if address.container:
        found = (c.name for c in catalogue.list_containers(database) if c.rid == address.container)
        name = next(found, "")
        if not name:
            message = f"there is no container with the resource id {address.container!r}"
            raise RequestRefused(404, message, substatus=1003)
    number = decode_id(address.item)[CONTAINER_BYTES:]
    # Clients sign the last resource id of a self-link, in lower case.
    signed = address.item or address.container or address.database
    return replace(
        address,
        database=database.name,
        container=name,
        item="",
        item_number=int.from_bytes(number, "little") if number else None,
        link=signed.lower(),
    )


def decode_id(text: str) -> bytes:
    """The bytes of a resource id; none of a text that is no resource id."""
    try:
        return base64.b64decode(text, altchars=b"+-", validate=True)
    except (binascii.Error, ValueError):
        return b""
