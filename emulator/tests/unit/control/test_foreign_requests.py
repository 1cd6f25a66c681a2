"""A web page in the developer's browser: it reaches neither the control endpoint nor a host."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPConnection

import pytest
from aiohttp import web

from local.functions_host.web import Route, WebServer
from local.loopback import HOST, LoopbackService, LoopThread


@contextmanager
def served_by_a_service() -> Iterator[tuple[int, list[str]]]:
    """A port of the control endpoint or Cosmos DB, and the methods of what reached its handler."""
    reached: list[str] = []

    async def handle(request: web.BaseRequest) -> web.Response:
        reached.append(request.method)
        return web.Response(text="done")

    service = LoopbackService("control")
    service.start(handle)
    try:
        yield service.ports[0], reached
    finally:
        service.stop()


@contextmanager
def served_by_a_host() -> Iterator[tuple[int, list[str]]]:
    """A port of a Functions host, and the methods of what reached its function."""
    reached: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        reached.append(request.method)
        return web.Response(text="done")

    async def start(server: WebServer) -> str:
        return await server.start(0.1)

    thread, server = LoopThread("host"), WebServer(0)
    server.add(Route((0,), "/faults", ("GET", "POST", "DELETE", "OPTIONS")), handle)
    try:
        url = thread.run(start(server))
        yield int(url.rpartition(":")[2]), reached
        thread.run(asyncio.wait_for(server.stop(), 5))
    finally:
        thread.end()


type Serve = Callable[[], AbstractContextManager[tuple[int, list[str]]]]

SERVERS: tuple[Serve, ...] = (served_by_a_service, served_by_a_host)


def ask(port: int, method: str, headers: dict[str, str]) -> int:
    connection = HTTPConnection(HOST, port, timeout=5)
    connection.putrequest(method, "/faults", skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


HERE = ("127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}")
FOREIGN_HOSTS = (
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1.evil.example:{port}",
    "localhost.evil.example:{port}",
    "localhost",
    "127.0.0.1",
    "127.0.0.1:1",
    "10.0.0.1:{port}",
    "user@127.0.0.1:{port}",
    "",
)
FOREIGN_ORIGINS = (
    "https://evil.example",
    "http://evil.example:{port}",
    "http://localhost.evil.example:{port}",
    "https://localhost:{port}",
    "http://localhost:1",
    "http://localhost",
    "null",
    "",
)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("serve", SERVERS)
def test_only_what_names_this_machine_and_comes_from_no_other_page_is_heard(
    serve: Serve, method: str
) -> None:
    with serve() as (port, reached):
        foreign = [{"Host": host.format(port=port)} for host in FOREIGN_HOSTS] + [
            {"Host": f"127.0.0.1:{port}", "Origin": origin.format(port=port)}
            for origin in FOREIGN_ORIGINS
        ]
        assert {(ask(port, method, one), str(one)) for one in foreign} == {
            (403, str(one)) for one in foreign
        }
        assert reached == []

        heard = [{"Host": host.format(port=port)} for host in HERE]
        heard += [one | {"Origin": f"http://localhost:{port}"} for one in heard]
        assert [ask(port, method, one) for one in heard] == [200] * len(heard)
        assert reached == [method] * len(heard)
