"""HTTP around the account: signatures, faults and counters for every request.

The master-key signature every request carries.

Specification: "Access control in the Azure Cosmos DB REST API", authorization header of type
`master`. Resource tokens and Entra ID tokens are refused by name.
"""

import asyncio
import base64
import hashlib
import hmac
import uuid
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from urllib.parse import unquote

from aiohttp import web

from local.cosmos.answers import CODES, Answer, Refusal, compact
from local.cosmos.http.account import Account
from local.cosmos.http.addresses import Address, parse_address
from local.cosmos.http.requests import (
    ACTIONS,
    COMPONENT,
    READING,
    STALE_LEVELS,
    Request,
    operation_of,
)
from local.counters import Counters
from local.faults import Action, Fault, Faults

# The key every Cosmos DB emulator shares; it is published and protects nothing.
EMULATOR_KEY = (
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
)


class MasterKey:
    """Signs requests, and checks the signatures of others."""

    def __init__(self, key: str) -> None:
        self._secret = base64.b64decode(key)

    def signature(self, verb: str, resource_type: str, link: str, date: str) -> str:
        """The signature of a request; `date` is the value of its x-ms-date header."""
        text = f"{verb.lower()}\n{resource_type}\n{link}\n{date.lower()}\n\n"
        digest = hmac.digest(self._secret, text.encode(), hashlib.sha256)
        return base64.b64encode(digest).decode()

    def check(
        self, header: str | None, *, verb: str, resource_type: str, link: str, date: str
    ) -> None:
        """Raise a 401 Refusal unless the header is this key's signature of the request."""
        fields = token_fields(header)
        if fields.get("type") != "master":
            raise Refusal(401, f"authorization of type {fields.get('type')!r} is not offered")
        expected = self.signature(verb, resource_type, link, date)
        if not hmac.compare_digest(fields.get("sig", "").encode(), expected.encode()):
            raise Refusal(401, "the authorization signature does not match the account key")


def token_fields(header: str | None) -> dict[str, str]:
    """Take `type=..&ver=..&sig=..` apart; a 401 Refusal when there is no header."""
    if not header:
        raise Refusal(401, "the authorization header is missing")
    pairs = (part.partition("=") for part in unquote(header).split("&"))
    return {name: value for name, _, value in pairs}


BODY_BYTES_MAX = 4 * 1024 * 1024
THROTTLED = 429
# Faults that cut the connection before anything is applied.
CUTS = (Action.DOWN, Action.DROP_CONNECTION)
LATE = (Action.STALE_READ,)
RETRY_AFTER_SECONDS = 0.01


class Gateway:
    """Handles HTTP requests on the account's one thread.

    A fault strikes once per request. Faults and counters know items by their container, as
    `cosmos.<container>`; a fault on `cosmos` hits all of them. Counters take every request that
    reached an operation, under its HTTP status, or `down` and `dropped` when no answer was sent;
    their bytes are those of the request's body and the answer's. `clock` is the account's.
    """

    def __init__(
        self,
        account: Account,
        key: MasterKey,
        faults: Faults,
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._account = account
        self._key = key
        self._faults = faults
        self._counters = counters
        self._clock = clock

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, or break its connection when a fault says so."""
        try:
            address = self._account.named(parse_address(http.raw_path.partition("?")[0]))
        except Refusal as refusal:
            return self._respond(http, refusal.answer(), 0.0)
        operation = operation_of(http.method, address, http.headers)
        component = component_of(address)
        region = self._region(http, address)
        fault = self._strike(component, operation, region)
        if fault is not None and fault.action in CUTS:
            self._counters.add(component, operation, "down")
            return broken(http)
        if fault is not None and fault.action is Action.DELAY:
            await asyncio.sleep(fault.seconds)
        size, answer = await self._answer(http, address, operation, region, fault)
        is_dropped = fault is not None and fault.action is Action.DROP_ANSWER
        self._counters.add(
            component,
            operation,
            "dropped" if is_dropped else answer.status,
            size=size + len(answer.body),
            request_units=answer.charge,
        )
        return broken(http) if is_dropped else self._respond(http, answer, self._skew(region))

    def _region(self, http: web.BaseRequest, address: Address) -> str | None:
        """Where a request is served: behind the account's own endpoint that is the write region.

        None is for the account's description there, which no region's loss takes away.
        """
        regions = self._account.regions
        region = regions.at(port_of(http))
        return regions.write if region is None and address.kind else region

    def _strike(self, component: str, operation: str, region: str | None) -> Fault | None:
        if self._faults.is_down(component, region):
            return Fault(component, Action.DOWN)
        return self._faults.strike(component, operation, region=region, among=ACTIONS)

    async def _answer(
        self,
        http: web.BaseRequest,
        address: Address,
        operation: str,
        region: str | None,
        fault: Fault | None,
    ) -> tuple[int, Answer]:
        body = await body_of(http)
        if body is None:
            refusal = Refusal(413, f"a request may have {BODY_BYTES_MAX} bytes at most")
            return 0, refusal.answer()
        if fault is not None and fault.action is Action.STATUS:
            return len(body), injected(fault)
        refusal_or_none = self._unsigned(http, address)
        if refusal_or_none is not None:
            return len(body), refusal_or_none.answer()
        request = Request(
            http.method,
            address,
            http.headers,
            body,
            base_url=f"http://{http.host}/",
            region=region,
            skew=self._skew(region),
            lag=self._lag(http, address, operation, region),
        )
        return len(body), self._account.answer(request)

    def _lag(
        self, http: web.BaseRequest, address: Address, operation: str, region: str | None
    ) -> float | None:
        """How late a read is here, None for not at all; the account remembers as far back."""
        faults = self._faults.in_force(Action.STALE_READ)
        self._account.remember(max((fault.seconds for fault in faults), default=None))
        level = http.headers.get("x-ms-consistency-level")
        if not faults or operation not in READING or level not in STALE_LEVELS:
            return None
        fault = self._faults.strike(component_of(address), operation, region=region, among=LATE)
        return None if fault is None else fault.seconds

    def _skew(self, region: str | None) -> float:
        """How far the clock of a region is ahead."""
        faults = self._faults.in_force(Action.CLOCK_OFFSET)
        return sum(fault.seconds for fault in faults if fault.covers(COMPONENT, region))

    def _unsigned(self, http: web.BaseRequest, address: Address) -> Refusal | None:
        try:
            self._key.check(
                http.headers.get("authorization"),
                verb=http.method,
                resource_type=address.kind,
                link=address.link,
                date=http.headers.get("x-ms-date", ""),
            )
        except Refusal as refusal:
            return refusal
        return None

    def _respond(self, http: web.BaseRequest, answer: Answer, skew: float) -> web.Response:
        headers = {
            "Content-Type": "application/json",
            "x-ms-request-charge": str(answer.charge),
            "x-ms-activity-id": http.headers.get("x-ms-activity-id") or str(uuid.uuid4()),
            "x-ms-gatewayversion": "version=2.14.0",
            "Date": http_date(int(self._clock() + skew)),
            **answer.headers,
        }
        return web.Response(status=answer.status, body=answer.body or None, headers=headers)


async def body_of(http: web.BaseRequest) -> bytes | None:
    """The body, whose length a client need not tell beforehand; None if it is too long."""
    if (http.content_length or 0) > BODY_BYTES_MAX:
        return None
    body = bytearray()
    while piece := await http.content.readany():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            return None
    return bytes(body)


def port_of(http: web.BaseRequest) -> int:
    """The port a request came in by; 0 when its connection is gone."""
    transport = http.transport
    return 0 if transport is None else int(transport.get_extra_info("sockname")[1])


@lru_cache(maxsize=4)
def http_date(seconds: int) -> str:
    """A second since 1970 as the Date header has it."""
    return formatdate(seconds, usegmt=True)


def component_of(address: Address) -> str:
    """The part of the account an address is in: `cosmos.<container>` for items, else `cosmos`."""
    return f"{COMPONENT}.{address.container}" if address.kind == "docs" else COMPONENT


def injected(fault: Fault) -> Answer:
    """The answer of a STATUS fault; `seconds` of a 429 is the time to wait before a retry."""
    code = CODES.get(fault.status, "InjectedFault")
    body = compact({"code": code, "message": "a fault was injected here"}).encode()
    headers = {} if fault.substatus is None else {"x-ms-substatus": str(fault.substatus)}
    if fault.status == THROTTLED:
        wait = fault.seconds or RETRY_AFTER_SECONDS
        headers["x-ms-retry-after-ms"] = str(round(wait * 1000))
    return Answer(fault.status, body, 0.0, headers)


def broken(http: web.BaseRequest) -> web.StreamResponse:
    """Cut the connection; what is returned is never sent."""
    if http.transport is not None:
        http.transport.abort()
    return web.Response(status=503)
