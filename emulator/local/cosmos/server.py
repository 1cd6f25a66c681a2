"""A Cosmos DB account on a port of this machine: signatures, faults and counters around it."""

import asyncio
import base64
import hashlib
import hmac
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import lru_cache
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from aiohttp import web

from local.cosmos.config import CosmosConfig
from local.cosmos.http.account import CosmosAccount
from local.cosmos.http.requests import (
    ACTIONS,
    COMPONENT,
    READING,
    CosmosRequest,
    list_targets,
    parse_address,
    resolve_self_link,
)
from local.cosmos.responses import CODES, CosmosResponse, RequestRefused, write_json
from local.counters import Counters
from local.faults import Action, Fault, Faults, Target
from local.loopback import HOST, LoopbackService

BODY_BYTES_MAX = 4 * 1024 * 1024
THROTTLED = 429
RETRY_AFTER_SECONDS = 0.01
SILENCE_POLL_SECONDS = 0.1

# The key every Cosmos DB emulator shares; it is published and protects nothing.
EMULATOR_KEY = (
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
)


class MasterKey:
    """Signs requests, and checks the signatures of others.

    Specification: "Access control in the Azure Cosmos DB REST API", authorization header of type
    `master`. Resource tokens and Entra ID tokens are refused by name.
    """

    def __init__(self, key: str) -> None:
        self._secret = base64.b64decode(key)

    def sign(self, verb: str, resource_type: str, link: str, date: str) -> str:
        """The signature of a request; `date` is the value of its x-ms-date header."""
        text = f"{verb.lower()}\n{resource_type}\n{link}\n{date.lower()}\n\n"
        digest = hmac.digest(self._secret, text.encode(), hashlib.sha256)
        return base64.b64encode(digest).decode()

    def check(
        self, header: str | None, *, verb: str, resource_type: str, link: str, date: str
    ) -> None:
        """Raise a 401 unless the header, `type=..&ver=..&sig=..`, signs the request by this key."""
        if not header:
            raise RequestRefused(401, "the authorization header is missing")
        pairs = (part.partition("=") for part in unquote(header).split("&"))
        fields = {name: value for name, _, value in pairs}
        if (kind := fields.get("type")) != "master":
            raise RequestRefused(401, f"authorization of type {kind!r} is not offered")
        expected = self.sign(verb, resource_type, link, date)
        if not hmac.compare_digest(fields.get("sig", "").encode(), expected.encode()):
            message = "the authorization signature does not match the account key"
            raise RequestRefused(401, message)


@dataclass(frozen=True, slots=True)
class Gateway:
    """Handles HTTP requests on the account's one thread.

    At most one fault hits a request, beside those of clocks, late reads and moved writes. Faults
    and counters know items by their container, as `cosmos.<container>`; a fault on `cosmos` hits
    all of them. The entity of a fault is a physical partition.
    Counters take every request that reached an operation, under its HTTP status, or `down` and
    `dropped` when no response was sent; their bytes are those of the bodies of both. `clock` is the
    account's.
    """

    account: CosmosAccount
    key: MasterKey
    faults: Faults
    counters: Counters
    clock: Callable[[], float]

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Respond to one request, or break its connection when a fault says so."""
        try:
            address = parse_address(http.raw_path.partition("?")[0])
            address = resolve_self_link(address, self.account.catalogue)
        except RequestRefused as refusal:
            return self._write_response(http, refusal.to_response(), 0.0)
        port = http.transport.get_extra_info("sockname")[1] if http.transport else 0
        region = self.account.regions.find_by_port(port)
        request = CosmosRequest(
            http.method,
            address,
            http.headers,
            b"",
            # By whatever name a client came, the account says its own, as Azure does.
            f"http://{HOST}:{port}/",
            region=region,
            account_level=self.account.consistency,
        )
        operation = request.operation
        component = f"{COMPONENT}.{address.container}" if address.kind == "docs" else COMPONENT
        partition = self.account.find_partition(request)
        was_silent = False
        while http.transport is not None and self.faults.is_silent(component, region):
            was_silent = True
            await asyncio.sleep(SILENCE_POLL_SECONDS)
        if was_silent or self.faults.is_down(component, region, partition):
            fault: Fault | None = Fault(component, Action.DOWN)
        else:
            fault = self.faults.inject(
                component, operation, region=region, entity=partition, actions=ACTIONS
            )
        action = fault.action if fault else None
        if action in (Action.DOWN, Action.DROP_CONNECTION):  # before anything is applied
            self.counters.add(component, operation, "down")
            return cut_connection(http)
        if fault is not None and action is Action.DELAY:
            await asyncio.sleep(fault.seconds)
        body = await read_body(http)
        offsets = self.faults.in_force(Action.CLOCK_OFFSET)
        skew = sum(offset.seconds for offset in offsets if offset.covers(COMPONENT, region))
        request = replace(request, body=body or b"", skew=skew)
        if body is None:
            message = f"a request may have {BODY_BYTES_MAX} bytes at most"
            response = RequestRefused(413, message).to_response()
        else:
            response = self._respond(request, component, partition, fault)
        is_dropped = action is Action.DROP_ANSWER
        self.counters.add(
            component,
            operation,
            "dropped" if is_dropped else response.status,
            size=len(request.body) + len(response.body),
            request_units=response.charge,
        )
        if is_dropped:
            return cut_connection(http)
        return self._write_response(http, response, request.skew)

    def _respond(
        self, request: CosmosRequest, component: str, partition: str | None, fault: Fault | None
    ) -> CosmosResponse:
        if fault is not None and fault.action is Action.STATUS:
            return inject_status(fault)
        try:
            self.key.check(
                request.headers.get("authorization"),
                verb=request.method,
                resource_type=request.address.kind,
                link=request.address.link,
                date=request.headers.get("x-ms-date", ""),
            )
        except RequestRefused as refusal:
            return refusal.to_response()
        lag = self._find_lag(request, component, partition)
        moved_to = self._find_new_region(request, component, partition)
        return self.account.respond(replace(request, lag=lag, moved_to=moved_to))

    def _find_new_region(
        self, request: CosmosRequest, component: str, partition: str | None
    ) -> str | None:
        """Return the region to which the writes of a partition have moved; asking is a hit."""
        if request.address.kind != "docs" or not request.is_write:
            return None
        move = (Action.MOVE_WRITES,)
        fault = self.faults.inject(component, request.operation, entity=partition, actions=move)
        return None if fault is None else fault.region

    def _find_lag(
        self, request: CosmosRequest, component: str, partition: str | None
    ) -> float | None:
        """Return how late a read is, None if not at all; the account keeps versions as far back."""
        faults = self.faults.in_force(Action.STALE_READ)
        self.account.storage.keep_versions(max((fault.seconds for fault in faults), default=None))
        operation, region = request.operation, request.region
        if not faults or operation not in READING or request.is_strong:
            return None
        stale_read = (Action.STALE_READ,)
        fault = self.faults.inject(
            component, operation, region=region, entity=partition, actions=stale_read
        )
        return None if fault is None else fault.seconds

    def _write_response(
        self, http: web.BaseRequest, response: CosmosResponse, skew: float
    ) -> web.Response:
        headers = {
            "Content-Type": "application/json",
            "Content-Location": f"http://{http.host}{http.raw_path}",
            "x-ms-request-charge": str(response.charge),
            "x-ms-activity-id": http.headers.get("x-ms-activity-id") or str(uuid.uuid4()),
            "x-ms-gatewayversion": "version=2.14.0",
            "Date": format_date(int(self.clock() + skew)),
            **response.headers,
        }
        return web.Response(status=response.status, body=response.body or None, headers=headers)


async def read_body(http: web.BaseRequest) -> bytes | None:
    """The body, whose length a client need not give beforehand; None if it is too long."""
    if (http.content_length or 0) > BODY_BYTES_MAX:
        return None
    body = bytearray()
    while piece := await http.content.readany():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            return None
    return bytes(body)


@lru_cache(maxsize=4)
def format_date(seconds: int) -> str:
    """A second since 1970 as the Date header has it; a second has many requests."""
    return formatdate(seconds, usegmt=True)


def inject_status(fault: Fault) -> CosmosResponse:
    """The response of a STATUS fault; `seconds` of a 429 is the time to wait before a retry."""
    code = CODES.get(fault.status, "InjectedFault")
    body = write_json({"code": code, "message": "a fault was injected here"}).encode()
    headers = {} if fault.substatus is None else {"x-ms-substatus": str(fault.substatus)}
    if fault.status == THROTTLED:
        wait = fault.seconds or RETRY_AFTER_SECONDS
        headers["x-ms-retry-after-ms"] = str(round(wait * 1000))
    return CosmosResponse(fault.status, body, 0.0, headers)


def cut_connection(http: web.BaseRequest) -> web.StreamResponse:
    """Cut the connection; what is returned is never sent."""
    if http.transport is not None:
        http.transport.abort()
    return web.Response(status=503)


class Cosmos:
    """An account on http://127.0.0.1, from `start` until `stop`; it may be used in `with`.

    With `data_dir` the account is kept in DATA/cosmos.sqlite over restarts, without it in memory.
    `clock` gives seconds since 1970; it decides `_ts` and what has expired. An account of several
    regions has a port for each, which `region_ports` may choose, and `port` for all of it.
    """

    def __init__(
        self,
        config: CosmosConfig,
        *,
        port: int = 0,
        region_ports: Sequence[int] | None = None,
        faults: Faults | None = None,
        counters: Counters | None = None,
        data_dir: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.key = EMULATOR_KEY
        self.regions = config.regions
        self._config = config
        self._faults = faults or Faults()
        self._counters = counters or Counters()
        self._path = data_dir / "cosmos.sqlite" if data_dir else None
        self._clock = clock
        more_ports = region_ports or (0,) * len(config.regions)
        more_ports = more_ports if len(config.regions) > 1 else ()
        self._service = LoopbackService(COMPONENT, port=port, more_ports=more_ports)
        self._account: CosmosAccount | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port it listens on; known once started."""
        return self._service.ports[0]

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}/"

    @property
    def connection_string(self) -> str:
        return f"AccountEndpoint={self.endpoint};AccountKey={self.key};"

    def start(self) -> None:
        """Create what the config names, then listen; raises PortTaken.

        A setting the account does not offer raises RequestRefused.
        """
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        account = CosmosAccount(
            self._path,
            clock=self._clock,
            consistency=self._config.consistency,
            regions=self._config.regions,
            partitions_fail_over=self._config.partitions_fail_over,
        )
        gateway = Gateway(account, MasterKey(self.key), self._faults, self._counters, self._clock)
        try:
            account.create_missing(self._config)
            self._service.start(gateway.handle)
            account.regions.ports = dict(zip(self._service.ports[1:], self.regions, strict=False))
        except BaseException:
            account.storage.close()
            raise
        self._account = account

    def targets(self) -> list[Target]:
        """Return what faults can hit while it runs, containers made by clients included."""
        if self._account is None:
            return []
        containers = self._service.call(self._account.count_partitions)
        fail_over = self._config.partitions_fail_over
        return list_targets(containers, self.regions, partitions_fail_over=fail_over)

    @property
    def write_region(self) -> str:
        return self._running.regions.write

    def move_write_region(self, name: str) -> None:
        """Let another region take the writes, at once and for good; raises UnknownRegion."""
        account = self._running
        self._service.call(lambda: account.move_write_region(name))

    @property
    def region_endpoints(self) -> dict[str, str]:
        """The URLs of the regions, if there are several."""
        ports = zip(self.regions, self._service.ports[1:], strict=False)
        return {name: f"http://{HOST}:{port}/" for name, port in ports}

    @property
    def _running(self) -> CosmosAccount:
        if self._account is None:
            raise RuntimeError("the account is not running")
        return self._account

    def stop(self) -> None:
        """Stop listening and close the file; a second call does nothing."""
        self._service.stop()
        if self._account is not None:
            self._account.storage.close()
            self._account = None
