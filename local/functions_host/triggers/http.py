"""The HTTP trigger: routes, keys, and the way of a request through the worker."""

from aiohttp import web

from local.functions_host.function import Function
from local.functions_host.keys import DEVELOPMENT_KEY
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
        self._open = binding.text("authLevel", "FUNCTION").upper() == "ANONYMOUS"
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
        if not self._open and key_of(request) != DEVELOPMENT_KEY:
            return web.Response(status=401)
        function = self._function
        inputs = {function.trigger.name: await request_data(request)}
        outcome = await self._worker.invoke(function.id, function.name, inputs)
        report(function.name, outcome)
        match outcome:
            case Succeeded(value):
                return response_of(value)
            case _:
                return web.Response(status=500)


def key_of(request: web.Request) -> str | None:
    """The key a caller shows, in the header or in the query."""
    return request.headers.get("x-functions-key") or request.query.get("code")
