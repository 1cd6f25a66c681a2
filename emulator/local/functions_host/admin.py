"""The admin endpoints: the host's state, its functions, and running one of them by name.

All but the ping take the master key: without a key they answer 401, to a lesser key 403.
"""

import asyncio
import json
import os
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from aiohttp import web

from local.functions_host.config.functions import AppFunction
from local.functions_host.config.keys import Keys, key_of
from local.functions_host.triggers.listener import Invocable, Listener
from local.functions_host.web import Route, WebHandler, WebServer
from local.functions_host.worker.process import WorkerProcess

VERSION = "4.1037.0"  # of the real host whose behaviour is followed


class Admin:
    def __init__(
        self,
        region: str,
        listeners: Mapping[AppFunction, Listener],
        keys: Keys,
        worker: WorkerProcess,
        drain_seconds_max: float,
    ) -> None:
        self._worker = worker
        self._drain_seconds_max = drain_seconds_max
        self._drain: asyncio.Future[Any] | None = None
        self._region = region
        self._keys = keys
        self._listeners = {function.name: (function, item) for function, item in listeners.items()}
        self._since = time.monotonic()
        self._runs: set[asyncio.Task[None]] = set()

    def add_routes(self, server: WebServer) -> None:
        one = "/admin/functions/{name}"
        server.add(Route((0,), "/admin/host/ping", ("GET", "POST")), self.ping)
        server.add(Route((0,), "/admin/host/status", ("GET",)), self._keyed(self.get_status))
        server.add(Route((0,), "/admin/host/drain", ("POST",)), self._keyed(self.drain))
        drain_status = Route((0,), "/admin/host/drain/status", ("GET",))
        server.add(drain_status, self._keyed(self.get_drain_status))
        server.add(Route((0,), "/admin/functions", ("GET",)), self._keyed(self.list_functions))
        server.add(Route((0, 0, 2), one, ("GET",)), self._keyed(self.get_function))
        server.add(Route((0, 0, 2), one, ("POST",)), self._keyed(self.run))

    async def ping(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's form
        return web.Response()

    async def get_status(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's form
        """State, uptime in milliseconds, and the processes of the host and of its worker."""
        document = {
            "id": f"local-{self._region}",
            "state": "Running",
            "version": VERSION,
            "processUptime": int((time.monotonic() - self._since) * 1000),
            "extra": {"pid": os.getpid(), "worker": self._worker.pid, "region": self._region},
        }
        return web.json_response(document)

    async def drain(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's form
        """Let the listeners take nothing new; 202 at once, and the status says when all is done."""
        if self._drain is None:
            self._drain = asyncio.gather(*self._stop_listeners(self._drain_seconds_max))
        return web.Response(status=202)

    async def get_drain_status(self, request: web.Request) -> web.Response:  # noqa: ARG002 - as above
        state = "Disabled"
        if self._drain is not None:
            state = "Completed" if self._drain.done() else "InProgress"
        running = self._worker.count_running()
        return web.json_response({"state": state, "outstandingInvocations": running})

    async def list_functions(self, request: web.Request) -> web.Response:  # noqa: ARG002 - as above
        return web.json_response([describe_function(one) for one, _ in self._listeners.values()])

    async def get_function(self, request: web.Request) -> web.Response:
        return web.json_response(describe_function(self._find(request)[0]))

    async def run(self, request: web.Request) -> web.Response:
        """Start one run of a function; 202 says that it started, the log how it ended."""
        function, listener = self._find(request)
        if not isinstance(listener, Invocable):
            return web.Response(status=400, text=f"{function.trigger.type} is not run by hand")
        try:
            text = read_input(await request.text())
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        run = asyncio.create_task(listener.run_now(text))
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)
        return web.Response(status=202)

    @property
    def is_draining(self) -> bool:
        """The listeners have been told to take nothing new."""
        return self._drain is not None

    async def drain_listeners(self, seconds: float) -> None:
        """Stop the listeners, with so much time for what runs; a drain under way has its own."""
        await (self._drain or asyncio.gather(*self._stop_listeners(seconds)))

    def _stop_listeners(self, seconds: float) -> list[Coroutine[Any, Any, None]]:
        return [listener.stop(seconds) for _, listener in self._listeners.values()]

    async def stop(self, drain_seconds: float) -> None:
        """Let started runs end within the limit, then cut them off."""
        if not self._runs:
            return
        _, late = await asyncio.wait(self._runs, timeout=drain_seconds)
        for run in late:
            run.cancel()

    def _find(self, request: web.Request) -> tuple[AppFunction, Listener]:
        name = request.match_info["name"]
        if name not in self._listeners:
            raise web.HTTPNotFound(text=f"no function {name}")
        return self._listeners[name]

    def _keyed(self, action: WebHandler) -> WebHandler:
        async def answer(request: web.Request) -> web.StreamResponse:
            shown = key_of(request)
            if self._keys.open_admin(shown):
                return await action(request)
            return web.Response(status=403 if self._keys.is_known(shown) else 401)

        return answer


def describe_function(function: AppFunction) -> dict[str, Any]:
    bindings = [dict(binding.properties) for binding in (function.trigger, *function.others)]
    return {
        "name": function.name,
        "language": "python",
        "isDisabled": function.is_disabled,
        "config": {"bindings": bindings},
    }


def read_input(body: str) -> str:
    """Read `{"input": "..."}`; an empty body is empty input, anything else ValueError."""
    if not body:
        return ""
    document = json.loads(body)
    if not isinstance(document, dict) or not isinstance(document.get("input", ""), str):
        raise ValueError('the body must be {"input": "<text>"}')
    return str(document.get("input", ""))
