"""HTTP around the account: signatures, faults and counters for every request."""

import asyncio
import uuid
from email.utils import formatdate

from aiohttp import web

from local.cosmos.account import Account
from local.cosmos.addresses import Address, parse_address
from local.cosmos.answers import CODES, Answer, Refusal, compact
from local.cosmos.authorization import MasterKey
from local.cosmos.requests import Request, operation_of
from local.counters import Counters
from local.faults import Action, Fault, Faults

COMPONENT = "cosmos"
BODY_BYTES_MAX = 4 * 1024 * 1024
THROTTLED = 429
# Faults that cut the connection before anything is applied.
CUTS = (Action.DOWN, Action.DROP_CONNECTION)
RETRY_AFTER_SECONDS = 0.01


class Gateway:
    """Handles HTTP requests on the account's one thread.

    A fault strikes once per request. Faults and counters know items by their container, as
    `cosmos.<container>`; a fault on `cosmos` hits all of them. Counters take every request that
    reached an operation, under its HTTP status, or `down` and `dropped` when no answer was sent;
    their bytes are those of the request's body and the answer's.
    """

    def __init__(
        self, account: Account, key: MasterKey, faults: Faults, counters: Counters
    ) -> None:
        self._account = account
        self._key = key
        self._faults = faults
        self._counters = counters

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, or break its connection when a fault says so."""
        try:
            address = parse_address(http.raw_path.partition("?")[0])
        except Refusal as refusal:
            return self._respond(http, refusal.answer(), None)
        operation = operation_of(http.method, address, http.headers)
        component = component_of(address)
        fault = self._strike(component, operation)
        if fault is not None and fault.action in CUTS:
            self._counters.add(component, operation, "down")
            return broken(http)
        if fault is not None and fault.action is Action.DELAY:
            await asyncio.sleep(fault.seconds)
        size, answer = await self._answer(http, address, fault)
        is_dropped = fault is not None and fault.action is Action.DROP_ANSWER
        self._counters.add(
            component,
            operation,
            "dropped" if is_dropped else answer.status,
            size=size + len(answer.body),
            request_units=answer.charge,
        )
        return broken(http) if is_dropped else self._respond(http, answer, address)

    def _strike(self, component: str, operation: str) -> Fault | None:
        if self._faults.is_down(component):
            return Fault(component, Action.DOWN)
        return self._faults.strike(component, operation)

    async def _answer(
        self, http: web.BaseRequest, address: Address, fault: Fault | None
    ) -> tuple[int, Answer]:
        if (http.content_length or 0) > BODY_BYTES_MAX:
            refusal = Refusal(413, f"a request may have {BODY_BYTES_MAX} bytes at most")
            return 0, refusal.answer()
        body = await http.content.read() if http.body_exists else b""
        if fault is not None and fault.action is Action.STATUS:
            return len(body), injected(fault)
        refusal_or_none = self._unsigned(http, address)
        if refusal_or_none is not None:
            return len(body), refusal_or_none.answer()
        base_url = f"http://{http.host}/"
        request = Request(http.method, address, http.headers, body, base_url)
        return len(body), self._account.answer(request)

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

    def _respond(
        self, http: web.BaseRequest, answer: Answer, address: Address | None
    ) -> web.Response:
        headers = {
            "Content-Type": "application/json",
            "x-ms-request-charge": str(answer.charge),
            "x-ms-activity-id": http.headers.get("x-ms-activity-id") or str(uuid.uuid4()),
            "x-ms-gatewayversion": "version=2.14.0",
            "Date": formatdate(usegmt=True),
            **answer.headers,
        }
        if address is not None and address.container:
            lsn = self._account.lsn
            headers["lsn"] = str(lsn)
            headers["x-ms-session-token"] = f"0:-1#{lsn}"
            headers["x-ms-alt-content-path"] = f"dbs/{address.database}/colls/{address.container}"
        return web.Response(status=answer.status, body=answer.body or None, headers=headers)


def component_of(address: Address) -> str:
    """The part of the account an address is in: `cosmos.<container>` for items, else `cosmos`."""
    return f"{COMPONENT}.{address.container}" if address.kind == "docs" else COMPONENT


def injected(fault: Fault) -> Answer:
    """The answer of a STATUS fault; `seconds` of a 429 is the time to wait before a retry."""
    code = CODES.get(fault.status, "InjectedFault")
    body = compact({"code": code, "message": "a fault was injected here"}).encode()
    headers = {}
    if fault.status == THROTTLED:
        wait = fault.seconds or RETRY_AFTER_SECONDS
        headers["x-ms-retry-after-ms"] = str(round(wait * 1000))
    return Answer(fault.status, body, 0.0, headers)


def broken(http: web.BaseRequest) -> web.StreamResponse:
    """Cut the connection; what is returned is never sent."""
    if http.transport is not None:
        http.transport.abort()
    return web.Response(status=503)
