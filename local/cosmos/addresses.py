"""The address of a resource: what a URL path names, and what its signature covers."""

from dataclasses import dataclass
from urllib.parse import unquote

from local.cosmos.answers import Refusal, unsupported

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
