"""The HTTP trigger: routes, keys, and the way of a request through the worker.

Honoured in a route template: literals, which match in any case, `{name}`, `{name?}` at the end,
`{*rest}`, and the constraints below.

The worker asks for bodies as bytes and for no copy of the request in the trigger metadata
(capabilities RawHttpBodyBytes, RpcHttpBodyOnly, RpcHttpTriggerMetadataRemoved).
"""

import re
from collections.abc import Mapping

from aiohttp import web

from local.functions_host.config.functions import AppFunction
from local.functions_host.config.keys import key_of
from local.functions_host.protos import RpcHttp, TypedData
from local.functions_host.triggers.listener import HostContext, Listener
from local.functions_host.web import Route
from local.functions_host.worker.invocations import InvocationSucceeded, log_result

CONSTRAINTS = {
    "int": r"-?\d+",
    "long": r"-?\d+",
    "alpha": r"[A-Za-z]+",
    "bool": r"[Tt]rue|[Ff]alse",
    "guid": r"[0-9A-Fa-f]{8}(?:-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}",
}
PARAMETER = re.compile(
    r"\{(?P<rest>\*)?(?P<name>[A-Za-z_]\w*)(?::(?P<constraint>\w+))?(?P<optional>\?)?\}"
)
ALL_METHODS = ("*",)
LITERAL = "literal__"  # begins the names of what aiohttp takes for parameters and is none
REST = "rest__"  # begins the names of those that take the rest of a path, slashes included
SAME_SITE = {1: "Lax", 2: "Strict", 3: "None"}


class HttpListener(Listener):
    """Serves the routes of one function; the web server starts and stops for all functions."""

    def __init__(self, function: AppFunction, context: HostContext) -> None:
        binding = function.trigger
        binding.only("methods", "authLevel", "route")
        self._function = function
        self._worker = context.worker
        self._level = binding.word("authLevel", "FUNCTION", "ANONYMOUS", "ADMIN")
        self._keys = context.keys
        methods = tuple(str(method).upper() for method in binding.properties.get("methods", ()))
        template = binding.text("route", function.name)
        try:
            found = routes(context.limits.route_prefix, template, methods)
        except ValueError as error:
            raise binding.unsupported(str(error)) from error
        for route in found:
            context.web.add(route, self.answer)

    async def answer(self, request: web.Request) -> web.Response:
        """Invoke the function; a failure is status 500 without a body, details in the log."""
        function = self._function
        shown = key_of(request)
        is_open = (
            self._level == "ANONYMOUS"
            or (self._level == "ADMIN" and self._keys.open_admin(shown))
            or (self._level == "FUNCTION" and self._keys.open_function(shown, function.name))
        )
        if not is_open:
            return web.Response(status=401)
        if function.is_disabled and not self._keys.open_admin(shown):
            return web.Response(status=404)
        inputs = {function.trigger.name: await read_request(request)}
        result = await self._worker.invoke(function.id, function.name, inputs)
        log_result(function.name, result)
        if isinstance(result, InvocationSucceeded):
            return response_of(result.value)
        return web.Response(status=500)


def routes(prefix: str, template: str, methods: tuple[str, ...]) -> list[Route]:
    """Translate a route template for aiohttp; an optional last parameter gives two routes.

    A notation that is not honoured raises ValueError.
    """
    segments = [segment for segment in f"{prefix}/{template}".split("/") if segment]
    if any("?}" in segment for segment in segments[:-1]):
        raise ValueError("an optional parameter is honoured at the end only")
    translated = [translate_segment(segment, place) for place, segment in enumerate(segments)]
    variants = [translated]
    if segments and segments[-1].endswith("?}"):
        variants.append(translated[:-1])
    return [
        Route(
            tuple(rank for rank, _ in variant),
            "/" + "/".join(path for _, path in variant),
            methods or ALL_METHODS,
        )
        for variant in variants
    ]


def translate_segment(segment: str, place: int) -> tuple[int, str]:
    """Return one segment's rank (literal, constrained, free, rest) and its aiohttp notation."""
    if "{" not in segment and "}" not in segment:
        return 0, f"{{{LITERAL}{place}:(?i:{re.escape(segment.lower())})}}"
    match = PARAMETER.fullmatch(segment)
    if match is None:
        raise ValueError(f"the route segment {segment} is not honoured")
    if match["rest"]:
        return 3, f"{{{REST}{match['name']}:.*}}"
    if match["constraint"] is None:
        return 2, f"{{{match['name']}}}"
    if match["constraint"] not in CONSTRAINTS:
        raise ValueError(f"the route constraint {match['constraint']} is not honoured")
    return 1, f"{{{match['name']}:{CONSTRAINTS[match['constraint']]}}}"


def parameters(found: Mapping[str, str]) -> dict[str, str]:
    """The parameters of the template among those aiohttp found, decoded as the real host does.

    A slash within a segment stays encoded, so that `a%2Fb` and `a%252Fb` are the same text.
    """
    own = {name: value for name, value in found.items() if not name.startswith(LITERAL)}
    return {
        name.removeprefix(REST): value if name.startswith(REST) else value.replace("/", "%2F")
        for name, value in own.items()
    }


async def read_request(request: web.Request) -> TypedData:
    """Read a request whole: names of headers in lower case, empty query values left out.

    A header that is given several times becomes one, with commas between.
    """
    body = await request.read()
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        known = headers.get(name.lower())
        headers[name.lower()] = value if known is None else f"{known},{value}"
    return TypedData(
        http=RpcHttp(
            method=request.method,
            url=str(request.url),
            headers=headers,
            params=parameters(request.match_info),
            query={name: value for name, value in request.query.items() if value},
            body=TypedData(bytes=body) if body else TypedData(),
        )
    )


def response_of(value: TypedData | None) -> web.Response:
    """Build the response from what a function returned: a response, a text, or nothing."""
    match value:
        case TypedData(kind="http", value=RpcHttp() as answer):
            return http_response(answer)
        case TypedData(kind="string", value=text):
            return web.Response(text=text)
        case _:
            return web.Response(status=200)


def http_response(answer: RpcHttp) -> web.Response:
    """Pass status, headers, cookies and body through; a cookie's expiry as `Max-Age` only."""
    response = web.Response(status=int(answer.status_code), headers=dict(answer.headers))
    response.body = answer.body.value
    for cookie in answer.cookies or ():
        response.set_cookie(
            cookie.name,
            cookie.value,
            domain=cookie.domain and cookie.domain.value,
            path=(cookie.path and cookie.path.value) or "/",
            max_age=None if cookie.max_age is None else int(cookie.max_age.value),
            secure=cookie.secure and cookie.secure.value,
            httponly=cookie.http_only and cookie.http_only.value,
            samesite=SAME_SITE.get(int(cookie.same_site)),
        )
    return response
