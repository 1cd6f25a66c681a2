"""The control endpoint: counters, injected faults, hosts.

    GET  /health                  {"status": "ok"}
    GET  /counters                counts by component, and "queues": depths by namespace and entity
    GET  /queues/{namespace}/{queue}  session, id, state and failed deliveries of each message in a
                                  queue
    GET  /faults                  the faults in force
    POST /faults                  a fault as JSON; answers {"id": n}, or 400 with the reason
    DELETE /faults, /faults/{id}  lift all, or one; answers {"lifted": n}
    GET  /cosmos/write-region     {"region": name, "regions": all of them}
    POST /cosmos/write-region     {"region": name}: it takes the writes from now on; answers as GET
    GET  /hosts                   state, url, process id and log by region
    POST /hosts/{region}          {"action": "kill" | "kill-worker" | "stop" | "start"}; answers
                                  when it is done

Any program on this machine may use it; it has no authorization. What names another host, or comes
from a web page of another origin, gets 403.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import Any

from aiohttp import web

from local.cosmos.http.account import UnknownRegion
from local.cosmos.server import Cosmos
from local.counters import Counters
from local.faults import Fault, Faults, InvalidFault, Target, check_aim
from local.hosts import HostFailed, Hosts
from local.loopback import HOST, LoopbackService

type QueueDepths = dict[str, dict[str, dict[str, int]]]
type QueueContents = list[dict[str, str | int | None]]


class ControlRefusal(Exception):
    """A request that cannot be honoured: an HTTP status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(kw_only=True)
class Control:
    port: InitVar[int]
    faults: Faults
    counters: Counters
    hosts: Hosts
    cosmos: Cosmos
    depths: Callable[[], QueueDepths]
    contents: Callable[[str, str], QueueContents]
    targets: Callable[[], list[Target]]

    def __post_init__(self, port: int) -> None:
        self._service = LoopbackService("control", port=port)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._service.ports[0]}"

    def start(self) -> None:
        self._service.start(self._handle)

    def stop(self) -> None:
        self._service.stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            document = await self._answer(request)
        except ControlRefusal as refusal:
            return web.json_response({"error": refusal.reason}, status=refusal.status)
        return web.json_response(document)

    async def _answer(self, request: web.BaseRequest) -> Any:
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["health"]:
                return {"status": "ok"}
            case "GET", ["counters"] | ["queues", _, _, *_] as path:
                return await self._count_or_list(path)
            case _, ["faults", *rest]:
                return await self._answer_faults(request, rest)
            case "GET" | "POST", ["cosmos", "write-region"]:
                return await self._answer_write_region(request)
            case "GET", ["hosts"]:
                return self.hosts.listing()
            case "POST", ["hosts", region]:
                return await self._act_on_host(region, request)
            case _:
                raise ControlRefusal(404, f"{request.method} {request.path} is not offered")

    async def _count_or_list(self, path: list[str]) -> dict[str, Any]:
        if path == ["counters"]:
            queues = await asyncio.to_thread(self.depths)
            return {**self.counters.snapshot(), "queues": queues}
        namespace, queue = path[1], "/".join(path[2:])
        try:
            return {"messages": await asyncio.to_thread(self.contents, namespace, queue)}
        except KeyError as error:
            raise ControlRefusal(404, f"there is no queue {queue!r} in {namespace!r}") from error

    async def _answer_faults(self, request: web.BaseRequest, rest: list[str]) -> Any:
        match request.method, rest:
            case "GET", []:
                return self.faults.listing()
            case "POST", []:
                document = await read_json(request)
                return {"id": await asyncio.to_thread(self._arm, document)}
            case "DELETE", []:
                return {"lifted": self.faults.disarm()}
            case "DELETE", [number] if number.isdigit():
                return {"lifted": self.faults.disarm(int(number))}
            case _:
                raise ControlRefusal(404, f"{request.method} {request.path} is not offered")

    def _arm(self, document: dict[str, Any]) -> int:
        try:
            fault = Fault.parse(document)
            check_aim(fault, self.targets())
        except InvalidFault as error:
            raise ControlRefusal(400, str(error)) from error
        return self.faults.arm(fault)

    async def _answer_write_region(self, request: web.BaseRequest) -> dict[str, Any]:
        if request.method == "POST":
            region = only_field(await read_json(request), "region", "a move of the write region")
            try:
                await asyncio.to_thread(self.cosmos.move_write_region, region)
            except UnknownRegion as error:
                raise ControlRefusal(400, str(error)) from error
        return {"region": self.cosmos.write_region, "regions": list(self.cosmos.regions)}

    async def _act_on_host(self, region: str, request: web.BaseRequest) -> dict[str, Any]:
        action = only_field(await read_json(request), "action", "an action on a host")
        try:
            return await asyncio.to_thread(self.hosts.act, region, action)
        except KeyError as error:
            raise ControlRefusal(404, f"no host of region {region!r} is supervised") from error
        except ValueError as error:
            raise ControlRefusal(400, str(error)) from error
        except HostFailed as error:
            raise ControlRefusal(500, str(error)) from error


async def read_json(request: web.BaseRequest) -> dict[str, Any]:
    try:
        document = json.loads(await request.read() or b"{}")
    except ValueError as error:
        raise ControlRefusal(400, f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ControlRefusal(400, "the body must be a JSON object")
    return document


def only_field(document: dict[str, Any], name: str, what: str) -> str:
    """The text of the one field a document may have."""
    unknown = [key for key in document if key != name]
    if unknown:
        raise ControlRefusal(400, f"{what} has no field {unknown[0]!r}")
    return str(document.get(name))
