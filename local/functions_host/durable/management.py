"""The management endpoints that check-status responses point at.

`/runtime/webhooks/durabletask/instances/{id}`: GET its status, DELETE to purge it; POST below it
`raiseEvent/{name}`, `terminate`, `suspend`, `resume`, `rewind` and `restart`. All take the
extension's key or the master key. Starting and listing instances and entities are not honoured
(404), nor are query parameters other than those below (400, by name).
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from local.functions_host.durable.client import EXTENSION, WEBHOOKS
from local.functions_host.keys import Keys, key_of
from local.functions_host.web import Route, WebServer

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
STATUS_NAMES = {"CONTINUED_AS_NEW": "ContinuedAsNew"}
UNDER_WAY = ("Running", "Pending", "Suspended", "ContinuedAsNew")

type Action = Callable[[web.Request, str], Awaitable[web.Response]]


class Management:
    """Answers for the instances of one task hub."""

    def __init__(self, backend_address: str, keys: Keys) -> None:
        self._address = backend_address
        self._keys = keys
        self._opened: Any = None

    def add_to(self, server: WebServer) -> None:
        """Add the routes."""
        server.add(Route((0, 0, 2), INSTANCE, ("GET",)), self._keyed(self.status))
        server.add(Route((0, 0, 2), INSTANCE, ("DELETE",)), self._keyed(self.purge))
        server.add(
            Route((0, 0, 3), f"{INSTANCE}/raiseEvent/{{name}}", ("POST",)),
            self._keyed(self.raise_event),
        )
        for verb in ("terminate", "suspend", "resume", "rewind", "restart"):
            server.add(
                Route((0, 0, 3), f"{INSTANCE}/{verb}", ("POST",)),
                self._keyed(getattr(self, verb)),
            )

    async def close(self) -> None:
        """Close the connection, if there was one."""
        if self._opened is not None:
            await self._opened.close()

    async def status(self, request: web.Request, instance_id: str) -> web.Response:
        """200 when it is over, 202 while it runs."""
        state = await self._client().get_orchestration_state(instance_id)
        document = described(state, request.query.get("showInput", "true").lower() == "true")
        if document["runtimeStatus"] in UNDER_WAY:
            return web.json_response(document, status=202, headers={"Location": str(request.url)})
        breaks = request.query.get("returnInternalServerErrorOnFailure", "").lower() == "true"
        is_failed = document["runtimeStatus"] == "Failed"
        return web.json_response(document, status=500 if breaks and is_failed else 200)

    async def purge(self, request: web.Request, instance_id: str) -> web.Response:  # noqa: ARG002
        """Forget an instance that is over."""
        result = await self._client().purge_orchestration(instance_id)
        count = result.deleted_instance_count
        return web.json_response({"instancesDeleted": count}, status=200 if count else 404)

    async def raise_event(self, request: web.Request, instance_id: str) -> web.Response:
        """Raise an event with the JSON body as its content."""
        try:
            data = json.loads(await request.text() or "null")
        except ValueError as error:
            return web.Response(status=400, text=f"the body must be JSON: {error}")
        name = request.match_info["name"]
        await self._client().raise_orchestration_event(instance_id, name, data=data)
        return web.Response(status=202)

    async def terminate(self, request: web.Request, instance_id: str) -> web.Response:
        """End an instance and its sub-orchestrations."""
        reason = request.query.get("reason", "")
        await self._client().terminate_orchestration(instance_id, output=reason)
        return web.Response(status=202)

    async def suspend(self, request: web.Request, instance_id: str) -> web.Response:  # noqa: ARG002
        """Let an instance rest."""
        await self._client().suspend_orchestration(instance_id)
        return web.Response(status=202)

    async def resume(self, request: web.Request, instance_id: str) -> web.Response:  # noqa: ARG002
        """Let an instance go on."""
        await self._client().resume_orchestration(instance_id)
        return web.Response(status=202)

    async def rewind(self, request: web.Request, instance_id: str) -> web.Response:
        """Let a failed instance try again from its failure."""
        reason = request.query.get("reason", "")
        await self._client().rewind_orchestration(instance_id, reason=reason)
        return web.Response(status=202)

    async def restart(self, request: web.Request, instance_id: str) -> web.Response:
        """Run an instance that is over once more with its input."""
        is_new = request.query.get("restartWithNewInstanceId", "true").lower() == "true"
        started = await self._client().restart_orchestration(
            instance_id, restart_with_new_instance_id=is_new
        )
        return web.json_response({"id": started}, status=202)

    def _keyed(self, action: Action) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Check key and query before the action."""

        async def answer(request: web.Request) -> web.Response:
            if not self._keys.open_extension(key_of(request), EXTENSION):
                return web.Response(status=401)
            unknown = sorted(request.query.keys() - HONOURED)
            if unknown:
                return web.Response(status=400, text=f"not honoured: {', '.join(unknown)}")
            return await self._answered(action, request)

        return answer

    async def _answered(self, action: Action, request: web.Request) -> web.Response:
        import grpc  # type: ignore[import-untyped]

        try:
            instance_id = request.match_info["id"]
            found = await self._client().get_orchestration_state(instance_id, fetch_payloads=False)
            return await action(request, instance_id) if found else web.Response(status=404)
        except grpc.RpcError as error:
            match error.code():
                case grpc.StatusCode.NOT_FOUND:
                    return web.Response(status=404)
                case grpc.StatusCode.FAILED_PRECONDITION:
                    return web.Response(status=410, text=error.details())
                case _:
                    return web.Response(status=503, text=error.details())

    def _client(self) -> Any:
        from durabletask.client import AsyncTaskHubGrpcClient

        if self._opened is None:
            self._opened = AsyncTaskHubGrpcClient(host_address=self._address)
        return self._opened


def described(state: Any, with_input: bool) -> dict[str, Any]:
    """The status document of an instance."""
    word = state.runtime_status.name
    return {
        "name": state.name,
        "instanceId": state.instance_id,
        "runtimeStatus": STATUS_NAMES.get(word, word.capitalize()),
        "input": parsed(state.serialized_input) if with_input else None,
        "customStatus": parsed(state.serialized_custom_status),
        "output": output_of(state),
        "createdTime": state.created_at.isoformat(),
        "lastUpdatedTime": state.last_updated_at.isoformat(),
    }


def output_of(state: Any) -> Any:
    """What an instance gave back, or the message with which it failed."""
    if state.failure_details is not None:
        return state.failure_details.message
    return parsed(state.serialized_output)


def parsed(text: str | None) -> Any:
    """A value from its JSON text; other text is the value itself."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
