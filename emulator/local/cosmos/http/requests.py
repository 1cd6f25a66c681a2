"""A request as the account sees it, with the headers that change its meaning checked.

It also says by which operation a request is known in faults and counters, and which faults can hit
an operation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from local.cosmos.config import CONSISTENCY, STRONGEST
from local.cosmos.exact_json import parse_json
from local.cosmos.items.containers import (
    DATABASE_BYTES,
    Catalogue,
    decode_id,
    parse_item_number,
)
from local.cosmos.items.partitions import KeyRange, parse_key_header
from local.cosmos.query.paging import PAGE_ITEMS
from local.cosmos.responses import BadRequest, NotOffered, RequestRefused
from local.faults import Action, Target

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
    "addresses": "direct mode: choose ConnectionMode.Gateway in .NET, gatewayMode() in Java",
}

HONOURED_HEADERS = {
    "x-ms-activity-id",
    "x-ms-consistency-level",
    "x-ms-continuation",
    "x-ms-cosmos-batch-atomic",
    "x-ms-cosmos-batch-continue-on-error",
    "x-ms-cosmos-intended-collection-rid",
    "x-ms-cosmos-is-batch-request",
    "x-ms-cosmos-is-query-plan-request",
    "x-ms-cosmos-offer-autopilot-settings",
    "x-ms-cosmos-populateindexmetrics",
    "x-ms-cosmos-populateindexmetrics-v2",
    "x-ms-date",
    "x-ms-documentdb-is-upsert",
    "x-ms-documentdb-isquery",
    "x-ms-documentdb-partitionkey",
    "x-ms-documentdb-partitionkeyrangeid",
    "x-ms-documentdb-populatequerymetrics",
    "x-ms-documentdb-query-enablecrosspartition",
    "x-ms-end-epk",
    "x-ms-max-item-count",
    "x-ms-offer-throughput",
    "x-ms-session-token",
    "x-ms-start-epk",
}
# They say who asks and what the client can do, allow what is never done here, or ask for
# diagnostics, which an answer may leave out.
IGNORED_HEADERS = {
    "x-ms-client-id",
    "x-ms-client-request-id",
    "x-ms-cosmos-allow-tentative-writes",
    "x-ms-cosmos-batch-ordered",
    "x-ms-cosmos-changefeed-wire-format-version",
    "x-ms-cosmos-correlated-activityid",
    "x-ms-cosmos-populatequeryadvice",
    "x-ms-cosmos-priority-level",
    "x-ms-cosmos-query-optimisticdirectexecute",
    "x-ms-cosmos-query-version",
    "x-ms-cosmos-sdk-supportedcapabilities",
    "x-ms-cosmos-supported-query-features",
    "x-ms-cosmos-supported-serialization-formats",
    "x-ms-cosmos-throughput-bucket",
    "x-ms-cosmos-use-thinclient",
    "x-ms-dedicatedgateway-bypass-cache",
    "x-ms-dedicatedgateway-max-age",
    "x-ms-documentdb-query-enable-low-precision-order-by",
    "x-ms-documentdb-query-enable-scan",
    "x-ms-documentdb-query-iscontinuationexpected",
    "x-ms-documentdb-query-parallelizecrosspartitionquery",
    "x-ms-documentdb-responsecontinuationtokenlimitinkb",
    "x-ms-noretry-449",
    "x-ms-read-key-type",
    "x-ms-thinclient-proxy-operation-type",
    "x-ms-thinclient-proxy-resource-type",
    "x-ms-useragent",
    "x-ms-version",
}
KNOWN_HEADERS = HONOURED_HEADERS | IGNORED_HEADERS
RANGE_HEADER = "x-ms-documentdb-partitionkeyrangeid"

# passThrough tells that the client merges nothing.
QUERY_KEYS = ("query", "parameters", "resumeFilter", "passThrough")
STALE_LEVELS = ("Eventual", "ConsistentPrefix", "Session")

COMPONENT = "cosmos"
ACCOUNT_OPERATION = "account"
OPERATIONS = {"GET": "read", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}
ITEM_OPERATIONS = {*OPERATIONS.values(), "create", "upsert", "batch", "query", "query-plan", "feed"}
READING = ("read", "query", "feed")
ACTIONS = frozenset(
    {Action.DOWN, Action.DELAY, Action.STATUS, Action.DROP_ANSWER, Action.DROP_CONNECTION}
)


@dataclass(frozen=True, slots=True)
class Address:
    """The address in a URL path: `dbs/lockstep/colls/journal/docs` is the feed of docs in journal.

    A feed ends in a kind without an id. `link` and `kind` are what the authorization header signs.
    A resource is named by its name or, in a self-link, by its resource id. Clients use self-links
    for an item they hold: `dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs/AAAAAYAAAAEBAAAAAAAAAA==` names a
    database, a container and an item by the numbers they were given when they were created. That
    of the item is `item_number`.
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
    # Clients sign the last resource id of a self-link, in lower case.
    signed = address.item or address.container or address.database
    return replace(
        address,
        database=database.name,
        container=name,
        item="",
        item_number=parse_item_number(address.item),
        link=signed.lower(),
    )


@dataclass(frozen=True, slots=True)
class CosmosRequest:
    """One HTTP request; header lookups ignore case.

    `region` is where it is served, and `moved_to` the region that takes the writes of its physical
    partition, if that is not the account's write region. `skew` is how far the account's clock is
    ahead of the time, and `lag` how old what is read may be, both in seconds. `account_level` is
    the account's own consistency.
    """

    method: str
    address: Address
    headers: Mapping[str, str]
    body: bytes
    base_url: str
    region: str = ""
    moved_to: str | None = None
    skew: float = 0.0
    lag: float | None = None
    account_level: str = STRONGEST

    def has_flag(self, name: str) -> bool:
        return self.headers.get(name, "").lower() == "true"

    @property
    def document(self) -> Any:
        return parse_json(self.body)

    @property
    def key(self) -> str | None:
        header = self.headers.get("x-ms-documentdb-partitionkey")
        return None if header is None else parse_key_header(header)

    @property
    def key_range(self) -> KeyRange:
        start, end = self.headers.get("x-ms-start-epk", ""), self.headers.get("x-ms-end-epk", "FF")
        return KeyRange(start, end)

    @property
    def session_lsns(self) -> dict[int, int]:
        """The LSNs that a session has seen, by physical partition, of tokens such as `0:-1#42`."""
        tokens = self.headers.get("x-ms-session-token", "")
        try:
            pairs = (token.split(":") for token in tokens.split(",") if token)
            return {int(number): int(vector.split("#")[1]) for number, vector in pairs}
        except (ValueError, IndexError) as error:
            raise BadRequest(f"{tokens!r} is not a session token") from error

    @property
    def page_items(self) -> int:
        """The number of results that a page may have; -1 leaves it to the service."""
        text = self.headers.get("x-ms-max-item-count", "-1")
        try:
            count = int(text)
        except ValueError as error:
            raise BadRequest(f"x-ms-max-item-count {text!r} is not a number") from error
        return count if count > 0 else PAGE_ITEMS

    @property
    def throughput(self) -> int:
        """The request units a second a container is created for, at most; 0 if that is left open.

        They come as a number, or as a ceiling that the service scales up to.
        """
        text = self.headers.get("x-ms-offer-throughput", "0")
        scaled = parse_json(self.headers.get("x-ms-cosmos-offer-autopilot-settings", "{}"))
        try:
            return int(scaled.get("maxThroughput", text))
        except (AttributeError, TypeError, ValueError) as error:
            raise BadRequest("throughput must be a whole number") from error

    @property
    def may_cross_partitions(self) -> bool:
        is_allowed = self.has_flag("x-ms-documentdb-query-enablecrosspartition")
        return is_allowed or RANGE_HEADER in self.headers or self.method == "GET"

    @property
    def is_strong(self) -> bool:
        """Return whether reads cost what strong consistency costs."""
        return self.level not in STALE_LEVELS

    @property
    def level(self) -> str:
        """The consistency of a read: what the request asks for, or else the account's own."""
        return self.headers.get("x-ms-consistency-level", self.account_level)

    @property
    def is_batch(self) -> bool:
        return self.has_flag("x-ms-cosmos-is-batch-request")

    @property
    def is_atomic(self) -> bool:
        """Return whether the request is a batch that is applied as a whole, or not at all."""
        return self.is_batch and self.has_flag("x-ms-cosmos-batch-atomic")

    @property
    def is_query(self) -> bool:
        content = self.headers.get("Content-Type", "")
        is_marked = self.has_flag("x-ms-documentdb-isquery") or self.is_query_plan
        return is_marked or content.startswith("application/query")

    @property
    def is_write(self) -> bool:
        """Return whether only the region that takes the writes may serve it."""
        return self.method != "GET" and not self.is_query

    @property
    def is_query_plan(self) -> bool:
        """Return whether the request asks how a client merges the results of partitions."""
        return self.has_flag("x-ms-cosmos-is-query-plan-request")

    @property
    def is_change_feed(self) -> bool:
        return "A-IM" in self.headers

    @property
    def operation(self) -> str:
        if self.address.kind != "docs":
            return ACCOUNT_OPERATION
        if self.method == "GET" and self.address.is_feed:
            return "feed" if self.is_change_feed else "query"
        if self.method != "POST":
            return OPERATIONS.get(self.method, self.method.lower())
        if self.is_query_plan:
            return "query-plan"
        if self.is_batch or self.is_query:
            return "batch" if self.is_batch else "query"
        return "upsert" if self.has_flag("x-ms-documentdb-is-upsert") else "create"

    def check_headers(self) -> None:
        """Refuse what is not honoured, and a level above the account's own."""
        for header in self.headers:
            name = header.lower()
            if name.startswith("x-ms-") and name not in KNOWN_HEADERS:
                raise NotOffered(f"the header {name}")
        if self.level not in CONSISTENCY:
            raise BadRequest(f"x-ms-consistency-level {self.level!r} is unknown")
        if CONSISTENCY.index(self.level) > CONSISTENCY.index(self.account_level):
            message = (
                f"consistency {self.level} is stronger than the account's {self.account_level}"
            )
            raise BadRequest(message)
        if_none_match = self.headers.get("If-None-Match")
        means_nothing_new = if_none_match == "*" and self.operation == "create"
        if if_none_match is not None and self.method != "GET" and not means_nothing_new:
            raise NotOffered("If-None-Match on a write, but for * on a create")
        if self.is_atomic and self.has_flag("x-ms-cosmos-batch-continue-on-error"):
            raise NotOffered("atomic batches that continue on error")

    def read_query(self) -> tuple[str, dict[str, Any], Any]:
        """Text and parameters of a query, and its `resumeFilter`, None if it has none."""
        document = self.document
        text = document.get("query") if isinstance(document, dict) else None
        if not isinstance(text, str):
            raise BadRequest("a query body needs the property 'query'")
        for key in document:
            if key not in QUERY_KEYS:
                raise NotOffered(f"{key!r} in the body of a query")
        parameters = document.get("parameters") or []
        try:
            named = {one["name"]: one["value"] for one in parameters}
        except (KeyError, TypeError) as error:
            raise BadRequest("query parameters need 'name' and 'value'") from error
        return text, named, document.get("resumeFilter")

    def refuse_method(self) -> NotOffered:
        return NotOffered(f"{self.method} on {self.address.kind or 'the account'}")


def list_targets(
    containers: Mapping[str, int],
    regions: Iterable[str] = (),
    *,
    partitions_fail_over: bool = False,
) -> list[Target]:
    """Return what faults can hit: the account with all in it, and each container by itself.

    Containers are given with the number of their physical partitions.
    """
    moves = frozenset({Action.MOVE_WRITES} if partitions_fail_over else ())
    items = {
        name: ACTIONS | {Action.STALE_READ} if name in READING else ACTIONS | moves
        for name in ITEM_OPERATIONS
    }
    places, states = frozenset(regions), frozenset({Action.SILENT})
    whole = {ACCOUNT_OPERATION: ACTIONS | {Action.CLOCK_OFFSET}, **items}
    return [
        Target(COMPONENT, whole, places, states),
        *(
            Target(f"{COMPONENT}.{name}", items, places, states, frozenset(map(str, range(count))))
            for name, count in containers.items()
        ),
    ]
