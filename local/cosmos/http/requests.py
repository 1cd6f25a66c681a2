"""A request as the account sees it, with the headers that change its meaning checked.

Which headers of the service's own a request may have; all others are refused by name.

What faults can hit in an account: its operations, by container.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from local.cosmos.answers import Refusal, unsupported
from local.cosmos.http.addresses import Address
from local.cosmos.items.documents import parse_item
from local.cosmos.items.partitions import KeyRange, parse_key_header
from local.cosmos.query.paging import PAGE_ITEMS
from local.faults import Action
from local.targets import Target

HONOURED_HEADERS = frozenset(
    {
        "x-ms-activity-id",
        "x-ms-consistency-level",
        "x-ms-continuation",
        "x-ms-cosmos-batch-atomic",
        "x-ms-cosmos-batch-continue-on-error",
        "x-ms-cosmos-intended-collection-rid",
        "x-ms-cosmos-is-batch-request",
        "x-ms-cosmos-is-query-plan-request",
        "x-ms-cosmos-offer-autopilot-settings",
        "x-ms-date",
        "x-ms-documentdb-is-upsert",
        "x-ms-documentdb-isquery",
        "x-ms-documentdb-partitionkey",
        "x-ms-documentdb-partitionkeyrangeid",
        "x-ms-documentdb-query-enablecrosspartition",
        "x-ms-end-epk",
        "x-ms-max-item-count",
        "x-ms-offer-throughput",
        "x-ms-session-token",
        "x-ms-start-epk",
    }
)
# They say who asks and what the client can do, or allow what is never done here.
IGNORED_HEADERS = frozenset(
    {
        "x-ms-client-id",
        "x-ms-client-request-id",
        "x-ms-cosmos-allow-tentative-writes",
        "x-ms-cosmos-changefeed-wire-format-version",
        "x-ms-cosmos-correlated-activityid",
        "x-ms-cosmos-priority-level",
        "x-ms-cosmos-query-version",
        "x-ms-cosmos-sdk-supportedcapabilities",
        "x-ms-cosmos-supported-query-features",
        "x-ms-cosmos-throughput-bucket",
        "x-ms-documentdb-query-enable-scan",
        "x-ms-documentdb-query-iscontinuationexpected",
        "x-ms-documentdb-query-parallelizecrosspartitionquery",
        "x-ms-documentdb-responsecontinuationtokenlimitinkb",
        "x-ms-read-key-type",
        "x-ms-thinclient-proxy-operation-type",
        "x-ms-thinclient-proxy-resource-type",
        "x-ms-useragent",
        "x-ms-version",
    }
)


def check_names(headers: Iterable[str]) -> None:
    """Raise a 400 Refusal that names a header which is not honoured."""
    for header in headers:
        name = header.lower()
        if name.startswith("x-ms-") and name not in HONOURED_HEADERS | IGNORED_HEADERS:
            raise unsupported(f"the header {name}")


CONSISTENCY = ("Eventual", "ConsistentPrefix", "Session", "BoundedStaleness", "Strong")
OPERATIONS = {"GET": "read", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}
RANGE_HEADER = "x-ms-documentdb-partitionkeyrangeid"
RANGE_GONE = 1002
STALE_LEVELS = ("Eventual", "ConsistentPrefix", "Session")
READING = ("read", "query", "feed")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; header lookups ignore case.

    `region` is where it came in, None for the endpoint of the whole account. `skew` is how far the
    account's clock is ahead of the time, and `lag` how old what is read may be, both in seconds.
    """

    method: str
    address: Address
    headers: Mapping[str, str]
    body: bytes
    base_url: str
    region: str | None = None
    skew: float = 0.0
    lag: float | None = None

    def flag(self, name: str) -> bool:
        """Whether a header says true."""
        return self.headers.get(name, "").lower() == "true"

    @property
    def document(self) -> Any:
        """The body as JSON; a 400 Refusal when it is not."""
        return parse_item(self.body)

    @property
    def if_match(self) -> str | None:
        """The tag a write is conditional on."""
        return self.headers.get("If-Match")

    @property
    def key(self) -> str | None:
        """The canonical partition key it is bound to."""
        header = self.headers.get("x-ms-documentdb-partitionkey")
        return None if header is None else parse_key_header(header)

    @property
    def key_range(self) -> KeyRange:
        """The part of the ring it is bound to."""
        return KeyRange(
            self.headers.get("x-ms-start-epk", ""), self.headers.get("x-ms-end-epk", "FF")
        )

    @property
    def session_lsns(self) -> dict[int, int]:
        """What a session has seen: LSNs by physical partition, of tokens such as `0:-1#42`."""
        tokens = self.headers.get("x-ms-session-token", "")
        try:
            pairs = (token.split(":") for token in tokens.split(",") if token)
            return {int(number): int(vector.split("#")[1]) for number, vector in pairs}
        except (ValueError, IndexError) as error:
            raise Refusal(400, f"{tokens!r} is not a session token") from error

    @property
    def page_items(self) -> int:
        """How many results a page may have; -1 leaves it to the service."""
        text = self.headers.get("x-ms-max-item-count", "-1")
        try:
            count = int(text)
        except ValueError as error:
            raise Refusal(400, f"x-ms-max-item-count {text!r} is not a number") from error
        return count if count > 0 else PAGE_ITEMS

    @property
    def throughput(self) -> int:
        """The request units a second a container is created for, at most; 0 if that is left open.

        They come as a number, or as a ceiling that the service scales up to.
        """
        text = self.headers.get("x-ms-offer-throughput", "0")
        scaled = parse_item(self.headers.get("x-ms-cosmos-offer-autopilot-settings", "{}"))
        try:
            return int(scaled.get("maxThroughput", text))
        except (AttributeError, TypeError, ValueError) as error:
            raise Refusal(400, "throughput must be a whole number") from error

    @property
    def may_cross_partitions(self) -> bool:
        """Whether a query may look beyond one partition."""
        is_allowed = self.flag("x-ms-documentdb-query-enablecrosspartition")
        return is_allowed or RANGE_HEADER in self.headers or self.method == "GET"

    @property
    def is_strong(self) -> bool:
        """Whether reads pay for strong consistency: yes unless the request relaxes it."""
        level = self.headers.get("x-ms-consistency-level", "Strong")
        return level in ("Strong", "BoundedStaleness")

    @property
    def is_batch(self) -> bool:
        """Whether it is a transactional batch."""
        return self.flag("x-ms-cosmos-is-batch-request")

    @property
    def is_query(self) -> bool:
        """Whether its body is a query."""
        content = self.headers.get("Content-Type", "")
        is_marked = self.flag("x-ms-documentdb-isquery") or self.is_query_plan
        return is_marked or content.startswith("application/query")

    @property
    def is_write(self) -> bool:
        """Whether it would change something."""
        return self.method != "GET" and not self.is_query

    @property
    def is_query_plan(self) -> bool:
        """Whether it asks how the query in its body is put together from several partitions."""
        return self.flag("x-ms-cosmos-is-query-plan-request")

    @property
    def is_change_feed(self) -> bool:
        """Whether it reads what has changed."""
        return "A-IM" in self.headers

    def check_headers(self, consistency: str) -> None:
        """Refuse what is not honoured, and a level above the account's `consistency`."""
        check_names(self.headers)
        level = self.headers.get("x-ms-consistency-level", consistency)
        if level not in CONSISTENCY:
            raise Refusal(400, f"x-ms-consistency-level {level!r} is unknown")
        if CONSISTENCY.index(level) > CONSISTENCY.index(consistency):
            raise Refusal(400, f"consistency {level} is stronger than the account's {consistency}")
        if "If-None-Match" in self.headers and self.method != "GET":
            raise unsupported("If-None-Match on a write")
        if self.is_batch:
            self._check_batch()

    def _check_batch(self) -> None:
        if not self.flag("x-ms-cosmos-batch-atomic"):
            raise unsupported("batches that are not atomic")
        if self.flag("x-ms-cosmos-batch-continue-on-error"):
            raise unsupported("batches that continue on error")

    def query(self) -> tuple[str, dict[str, Any]]:
        """The text and the parameters of a query body."""
        document = self.document
        text = document.get("query") if isinstance(document, dict) else None
        if not isinstance(text, str):
            raise Refusal(400, "a query body needs the property 'query'")
        parameters = document.get("parameters") or []
        try:
            return text, {one["name"]: one["value"] for one in parameters}
        except (KeyError, TypeError) as error:
            raise Refusal(400, "query parameters need 'name' and 'value'") from error


def operation_of(method: str, address: Address, headers: Mapping[str, str]) -> str:
    """The name an operation has in faults and counters."""
    if address.kind != "docs":
        return "account"
    request = Request(method, address, headers, b"", "")
    if method == "GET" and address.is_feed:
        return "feed" if request.is_change_feed else "query"
    if method != "POST":
        return OPERATIONS.get(method, method.lower())
    if request.is_query_plan:
        return "query-plan"
    if request.is_batch or request.is_query:
        return "batch" if request.is_batch else "query"
    return "upsert" if request.flag("x-ms-documentdb-is-upsert") else "create"


def method_refusal(request: Request) -> Refusal:
    """The refusal of a method on a resource."""
    return unsupported(f"{request.method} on {request.address.kind or 'the account'}")


def json_bytes(document: Any) -> bytes:
    """A document as a response body."""
    return json.dumps(document, separators=(",", ":")).encode()


COMPONENT = "cosmos"
ITEM_OPERATIONS = {
    *OPERATIONS.values(),
    *("create", "upsert", "batch", "query", "query-plan", "feed"),
}
ACCOUNT_OPERATION = "account"
ACTIONS = frozenset(
    {Action.DOWN, Action.DELAY, Action.STATUS, Action.DROP_ANSWER, Action.DROP_CONNECTION}
)
OF_READS = ACTIONS | {Action.STALE_READ}
OF_ACCOUNT = ACTIONS | {Action.CLOCK_OFFSET}


def targets(containers: Iterable[str], regions: Iterable[str] = ()) -> list[Target]:
    """The account with all that is in it, and each container; all of them are in all regions."""
    items = {name: OF_READS if name in READING else ACTIONS for name in ITEM_OPERATIONS}
    places = frozenset(regions)
    whole = Target(COMPONENT, {ACCOUNT_OPERATION: OF_ACCOUNT, **items}, places)
    return [whole, *(Target(f"{COMPONENT}.{name}", items, places) for name in containers)]
