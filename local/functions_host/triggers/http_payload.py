"""HTTP requests as the worker takes them, and its answers as HTTP responses.

The worker asks for bodies as bytes and for no copy of the request in the trigger metadata
(capabilities RawHttpBodyBytes, RpcHttpBodyOnly, RpcHttpTriggerMetadataRemoved).
"""

from typing import Any

from aiohttp import web

from local.functions_host.protos import RpcHttp, TypedData
from local.functions_host.triggers.route import parameters


async def request_data(request: web.Request) -> TypedData:
    """Read a request whole: names of headers in lower case, empty query values left out."""
    body = await request.read()
    return TypedData(
        http=RpcHttp(
            method=request.method,
            url=str(request.url),
            headers={name.lower(): value for name, value in request.headers.items()},
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
    """Pass status, headers, cookies and body through."""
    response = web.Response(status=int(answer.status_code), headers=dict(answer.headers))
    response.body = answer.body.value
    for cookie in answer.cookies or ():
        set_cookie(response, cookie)
    return response


def set_cookie(response: web.Response, cookie: Any) -> None:
    """Set one cookie with the attributes it has; expiry is passed on as `Max-Age` only."""
    same_site = {1: "Lax", 2: "Strict", 3: "None"}.get(int(cookie.same_site))
    max_age = None if cookie.max_age is None else int(cookie.max_age.value)
    response.set_cookie(
        cookie.name,
        cookie.value,
        domain=cookie.domain and cookie.domain.value,
        path=(cookie.path and cookie.path.value) or "/",
        max_age=max_age,
        secure=cookie.secure and cookie.secure.value,
        httponly=cookie.http_only and cookie.http_only.value,
        samesite=same_site,
    )
