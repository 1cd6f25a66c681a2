"""The host's one HTTP server: function routes and the admin endpoints."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import unquote

from aiohttp import web

from local.functions_host.config.settings import Unsupported
from local.loopback import is_foreign, refuse_foreign

type WebHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BODY_LIMIT_BYTES = 210 * 1024 * 1024  # the platform's limit for a request


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """A path in aiohttp's notation; routes of lower rank are matched first."""

    rank: tuple[int, ...]
    path: str
    methods: tuple[str, ...]


class WebServer:
    """Serves clients of this machine only. Routes are added before the start."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._routes: dict[Route, WebHandler] = {}
        self._runner: web.AppRunner | None = None

    def add(self, route: Route, handler: WebHandler) -> None:
        """Add one route; the same path and method twice is Unsupported."""
        for other in self._routes:
            if other.path == route.path and set(other.methods) & set(route.methods):
                raise Unsupported(f"two functions share the route {route.path}")
        self._routes[route] = handler

    async def start(self, drain_seconds: float) -> str:
        """Begin to serve; return the URL. A port that is taken raises OSError."""
        app = web.Application(
            client_max_size=BODY_LIMIT_BYTES, middlewares=[only_from_here, like_the_real_host]
        )
        for route in sorted(self._routes):
            for method in route.methods:
                app.router.add_route(method, route.path, self._routes[route])
        # A body is handed over as it came: the real host inflates nothing.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=drain_seconds, auto_decompress=False
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Take no new request, wait for those in hand up to the drain limit, then close."""
        if self._runner is not None:
            await self._runner.cleanup()


@web.middleware
async def only_from_here(request: web.Request, handler: WebHandler) -> web.StreamResponse:
    """Answer 403 to what a page of elsewhere sends by a browser on this machine."""
    return refuse_foreign() if is_foreign(request) else await handler(request)


@web.middleware
async def like_the_real_host(request: web.Request, handler: WebHandler) -> web.StreamResponse:
    """Answer 404 where a function's path is right and the method is not, and to a path upward.

    The real host resolves `..` before it looks for a function, and mostly finds none then.
    """
    if {".", ".."} & {
        unquote(segment) for segment in request.raw_path.partition("?")[0].split("/")
    }:
        return web.Response(status=404)
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed:
        if request.path.startswith("/admin/"):
            raise
        return web.Response(status=404)
