"""The HTTP trigger: routes, keys, and the way of a request through the worker."""

from aiohttp import web

from local.functions_host.function import Function
from local.functions_host.keys import key_of
from local.functions_host.triggers.http_payload import request_data, response_of
from local.functions_host.triggers.invocation import report
from local.functions_host.triggers.listener import HostContext
from local.functions_host.triggers.route import routes
from local.functions_host.worker import Succeeded


class HttpListener:
    """Serves the routes of one function through the host's web server."""

    def __init__(self, function: Function, context: HostContext) -> None:
        binding = function.trigger
        binding.only("methods", "authLevel", "route")
        self._function = function
        self._worker = context.worker
        self._level = binding.word("authLevel", "FUNCTION", "ANONYMOUS", "ADMIN")
        self._keys = context.keys
        methods = tuple(str(method).upper() for method in binding.properties.get("methods", ()))
        try:
            found = routes(
                context.limits.route_prefix, binding.text("route", function.name), methods
            )
        except ValueError as error:
            raise binding.refused(str(error)) from error
        for route in found:
            context.web.add(route, self.answer)

    async def start(self) -> None:
        """The web server starts for all functions at once."""

    async def stop(self, drain_seconds: float) -> None:
        """The web server drains for all functions at once."""

    async def answer(self, request: web.Request) -> web.Response:
        """Invoke the function; a failure is status 500 without a body, details in the log."""
        function = self._function
        shown = key_of(request)
        if not self._is_open_to(shown):
            return web.Response(status=401)
        if function.is_disabled and not self._keys.open_admin(shown):
            return web.Response(status=404)
        inputs = {function.trigger.name: await request_data(request)}
        outcome = await self._worker.invoke(function.id, function.name, inputs)
        report(function.name, outcome)
        match outcome:
            case Succeeded(value):
                return response_of(value)
            case _:
                return web.Response(status=500)

    def _is_open_to(self, shown: str | None) -> bool:
        match self._level:
            case "ANONYMOUS":
                return True
            case "ADMIN":
                return self._keys.open_admin(shown)
            case _:
                return self._keys.open_function(shown, self._function.name)
