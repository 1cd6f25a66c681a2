"""A request as the account sees it, with the headers that change its meaning checked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from local.cosmos.addresses import Address
from local.cosmos.answers import Refusal, unsupported
from local.cosmos.items import parse_item
from local.cosmos.partition import KeyRange, parse_key_header
from local.cosmos.query_page import PAGE_ITEMS

CONSISTENCY = ("Eventual", "ConsistentPrefix", "Session", "BoundedStaleness", "Strong")
OPERATIONS = {"GET": "read", "PUT": "replace", "DELETE": "delete"}
RANGE_HEADER = "x-ms-documentdb-partitionkeyrangeid"
ONLY_RANGE = "0"
RANGE_GONE = 1002
REFUSED_HEADERS = {
    "x-ms-documentdb-pre-trigger-include": "pre-triggers",
    "x-ms-documentdb-post-trigger-include": "post-triggers",
    "x-ms-cosmos-is-query-plan-request": "query plans",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; header lookups ignore case."""

    method: str
    address: Address
    headers: Mapping[str, str]
    body: bytes
    base_url: str

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
    def page_items(self) -> int:
        """How many results a page may have; -1 leaves it to the service."""
        text = self.headers.get("x-ms-max-item-count", "-1")
        try:
            count = int(text)
        except ValueError as error:
            raise Refusal(400, f"x-ms-max-item-count {text!r} is not a number") from error
        return count if count > 0 else PAGE_ITEMS

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
        return self.flag("x-ms-documentdb-isquery") or content.startswith("application/query")

    @property
    def is_change_feed(self) -> bool:
        """Whether it reads what has changed."""
        return "A-IM" in self.headers

    def check_headers(self, consistency: str) -> None:
        """Refuse what is not honoured, and a level above the account's `consistency`."""
        for name, what in REFUSED_HEADERS.items():
            if name in self.headers:
                raise unsupported(what)
        level = self.headers.get("x-ms-consistency-level", consistency)
        if level not in CONSISTENCY:
            raise Refusal(400, f"x-ms-consistency-level {level!r} is unknown")
        if CONSISTENCY.index(level) > CONSISTENCY.index(consistency):
            raise Refusal(400, f"consistency {level} is stronger than the account's {consistency}")
        if self.headers.get(RANGE_HEADER, ONLY_RANGE) != ONLY_RANGE:
            raise Refusal(410, "there is no such partition key range", substatus=RANGE_GONE)
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
    if request.is_batch or request.is_query:
        return "batch" if request.is_batch else "query"
    return "upsert" if request.flag("x-ms-documentdb-is-upsert") else "create"


def json_bytes(document: Any) -> bytes:
    """A document as a response body."""
    return json.dumps(document, separators=(",", ":")).encode()
