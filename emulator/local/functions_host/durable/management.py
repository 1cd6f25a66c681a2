"""The management endpoints that check-status responses point at.

`/runtime/webhooks/durabletask/instances/{id}`: GET its status, DELETE to purge it; POST below it
`raiseEvent/{name}`, `terminate`, `suspend`, `resume`, `rewind` and `restart`. All take the
extension's key or the master key. Starting and listing instances and entities are not honoured
(404), nor are query parameters other than those below (400, by name).
"""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import web

from local.functions_host.config.keys import Keys, key_of
from local.functions_host.web import Route, WebHandler, WebServer

WEBHOOKS = "/runtime/webhooks/durabletask"
EXTENSION = "durabletask_extension"  # whose key opens the endpoints
INSTANCE = f"{WEBHOOKS}/instances/{{id}}"
HONOURED = {
    "code",
    "taskHub",
    "connection",
    "reason",
    "showInput",
    "returnInternalServerErrorOnFailure",
    "restartWithNewInstanceId",
}
RUNNING = ("Running", "Pending", "Suspended", "ContinuedAsNew")

# What durabletask's client is asked to do, for an instance and with a reason.
type InstanceOperation = Callable[[Any, str, str], Awaitable[None]]
OPERATIONS: dict[str, InstanceOperation] = {
    "terminate": lambda client, one, reason: client.terminate_orchestration(one, output=reason),
    "suspend": lambda client, one, _: client.suspend_orchestration(one),
    "resume": lambda client, one, _: client.resume_orchestration(one),
    "rewind": lambda client, one, reason: client.rewind_orchestration(one, reason=reason),
}

type InstanceAction = Callable[[web.Request, str], Awaitable[web.Response]]


class InstanceManagement:
    def __init__(self, backend_address: str, keys: Keys) -> None:
        self._address = backend_address
        self._keys = keys
        self._client_or_none: Any = None

    def add_routes(self, server: WebServer) -> None:
        event = f"{INSTANCE}/raiseEvent/{{name}}"
        server.add(Route((0, 0, 2), INSTANCE, ("GET",)), self._checked(self.get_status))
        server.add(Route((0, 0, 2), INSTANCE, ("DELETE",)), self._checked(self.purge))
        server.add(Route((0, 0, 3), event, ("POST",)), self._checked(self.raise_event))
        for name, operation in OPERATIONS.items():
            route = Route((0, 0, 3), f"{INSTANCE}/{name}", ("POST",))
            server.add(route, self._checked(partial(self._operate, operation)))
        restart = Route((0, 0, 3), f"{INSTANCE}/restart", ("POST",))
        server.add(restart, self._checked(self.restart))

    async def close(self) -> None:
        if self._client_or_none is not None:
            await self._client_or_none.close()

    async def get_status(self, request: web.Request, instance_id: str) -> web.Response:
        """Answer the status: 202 while the instance runs, then 200; 500 for a failure if asked."""
        state = await self._client().get_orchestration_state(instance_id)
        shows_input = request.query.get("showInput", "true").lower() == "true"
        document = status_document(state, shows_input)
        if document["runtimeStatus"] in RUNNING:
            return web.json_response(document, status=202, headers={"Location": str(request.url)})
        breaks = request.query.get("returnInternalServerErrorOnFailure", "").lower() == "true"
        is_failed = document["runtimeStatus"] == "Failed"
        return web.json_response(document, status=500 if breaks and is_failed else 200)

    async def purge(self, request: web.Request, instance_id: str) -> web.Response:  # noqa: ARG002
        result = await self._client().purge_orchestration(instance_id)
        count = result.deleted_instance_count
        return web.json_response({"instancesDeleted": count}, status=200 if count else 404)

    async def raise_event(self, request: web.Request, instance_id: str) -> web.Response:
        try:
            data = json.loads(await request.text() or "null")
        except ValueError as error:
            return web.Response(status=400, text=f"the body must be JSON: {error}")
        name = request.match_info["name"]
        await self._client().raise_orchestration_event(instance_id, name, data=data)
        return web.Response(status=202)

    async def _operate(
        self, operation: InstanceOperation, request: web.Request, instance_id: str
    ) -> web.Response:
        await operation(self._client(), instance_id, request.query.get("reason", ""))
        return web.Response(status=202)

    async def restart(self, request: web.Request, instance_id: str) -> web.Response:
        """Run an instance that is over once more with its input."""
        is_new = request.query.get("restartWithNewInstanceId", "true").lower() == "true"
        restart = self._client().restart_orchestration
        started = await restart(instance_id, restart_with_new_instance_id=is_new)
        return web.json_response({"id": started}, status=202)

    def _checked(self, action: InstanceAction) -> WebHandler:
        """Check key, query and instance before the action; turn gRPC's errors into HTTP's."""

        async def answer(request: web.Request) -> web.Response:
            import grpc  # type: ignore[import-untyped]

            if not self._keys.open_extension(key_of(request), EXTENSION):
                return web.Response(status=401)
            unknown = sorted(request.query.keys() - HONOURED)
            if unknown:
                return web.Response(status=400, text=f"not honoured: {', '.join(unknown)}")
            instance_id = request.match_info["id"]
            client = self._client()
            try:
                if not await client.get_orchestration_state(instance_id, fetch_payloads=False):
                    return web.Response(status=404)
                return await action(request, instance_id)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    return web.Response(status=404)
                is_gone = error.code() is grpc.StatusCode.FAILED_PRECONDITION
                return web.Response(status=410 if is_gone else 503, text=error.details())

        return answer

    def _client(self) -> Any:
        from durabletask.client import AsyncTaskHubGrpcClient

        if self._client_or_none is None:
            self._client_or_none = AsyncTaskHubGrpcClient(host_address=self._address)
        return self._client_or_none


def status_document(state: Any, with_input: bool) -> dict[str, Any]:
    """The status of an instance; the output of a failed one is the message it failed with."""
    status = state.runtime_status.name  # such as CONTINUED_AS_NEW, which is ContinuedAsNew here
    failure = state.failure_details
    return {
        "name": state.name,
        "instanceId": state.instance_id,
        "runtimeStatus": status.title().replace("_", ""),
        "input": parse_json(state.serialized_input) if with_input else None,
        "customStatus": parse_json(state.serialized_custom_status),
        "output": failure.message if failure is not None else parse_json(state.serialized_output),
        "createdTime": state.created_at.isoformat(),
        "lastUpdatedTime": state.last_updated_at.isoformat(),
    }


def parse_json(text: str | None) -> Any:
    """A value from its JSON text; other text is the value itself."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
