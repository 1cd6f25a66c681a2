"""The program of the page about the outside that calls over HTTP, on real sockets."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from urllib3.exceptions import NewConnectionError
from werkzeug import Request, Response

from shared.domain.handler import Context, Handlers, Kind
from shared.domain.steps import AskOutside, NotDone, OnUnknown, ask
from shared.engine.consume.outcomes import Faulted, Processed
from tests.business import OrderedClock
from tests.docs.pages import page
from tests.payments import HELD_SECONDS_MAX, PaymentServer, Point, payment_server
from tests.provider import BUY, Buy, Purchase, bought
from tests.world import World

DOCUMENT = {"item": "book", "cents": 700}
BEFORE, AFTER = ("", "charge", "before"), ("", "charge", "after")
CLIENTS = ("aiohttp", "requests")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PaymentServer]:
    with payment_server(tmp_path / "log.jsonl") as server:
        yield server


@pytest.fixture(params=CLIENTS)
def program(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the page defines, with the client of the team's choice."""
    names = page("docs/outside.md").run()
    if request.param == "requests":

        def send_by_requests(
            method: str, url: str, headers: Mapping[str, str], document: Any = None
        ) -> tuple[int, Mapping[str, str], str]:
            options: Any = {"headers": headers, "json": document, "allow_redirects": False}
            try:
                answer = requests.request(method, url, timeout=20, **options)
            except requests.ConnectionError as error:
                if isinstance(getattr(error.args[0], "reason", None), NewConnectionError):
                    raise names["NoConnection"](str(error)) from error
                raise
            return answer.status_code, answer.headers, answer.text

        names["send"] = lambda *request: asyncio.to_thread(send_by_requests, *request)
    return names


def say(raw: bytes) -> Callable[[Request], Response]:
    """Write this in place of an answer, and break the connection."""

    def break_off(request: Request) -> Response:
        connection: socket.socket = request.environ["werkzeug.socket"]
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_RDWR)
        return Response()

    return break_off


def answer(status: int, **headers: str) -> Callable[[Request], Response]:
    return lambda _: Response("<p>no JSON</p>", status, headers)


# No answer, half of one, no HTTP and no JSON.
BREAKS = (
    b"",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
    b"\x16\x03\x01 what is this?\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
)


async def test_what_was_done_is_the_result(program: dict[str, Any], server: PaymentServer) -> None:
    url = f"{server.url}/asked/charge"
    done = await program["post"](url, DOCUMENT, key="k/1 ?&")

    (line,) = server.lines()
    assert (line["key"], line["body"], done) == ("k/1 ?&", DOCUMENT, {"receipt": line["receipt"]})
    assert (await program["find"](url, key="k/1 ?&"))["receipt"] == line["receipt"]
    with pytest.raises(NotDone, match="knows no key k2"):
        await program["find"](url, key="k2")


async def test_an_answer_without_a_document_has_no_result(
    program: dict[str, Any], server: PaymentServer
) -> None:
    server.injected = {AFTER: lambda _: Response(status=204)}
    assert await program["post"](f"{server.url}/blind/charge", DOCUMENT, key="k") is None


async def test_what_was_refused_did_nothing(program: dict[str, Any], server: PaymentServer) -> None:
    for status in (400, 401, 402, 403, 404, 413, 422, 425, 429):
        server.injected = {BEFORE: answer(status, **{"Retry-After": "0"})}
        with pytest.raises(NotDone, match=f"answered {status}"):
            await program["post"](f"{server.url}/blind/charge", DOCUMENT, key="k")
    assert server.lines() == []


async def test_of_other_answers_nobody_knows(
    program: dict[str, Any], server: PaymentServer
) -> None:
    for status in (302, 303, 408, 409, 500, 502, 503, 504):
        server.injected = {AFTER: answer(status, Location=f"{server.url}/blind/other")}
        with pytest.raises(RuntimeError, match=f"answered {status}"):
            await program["post"](f"{server.url}/blind/charge", DOCUMENT, key="k")
    # A client that follows redirects would have come to the other one.
    assert [one["step"] for one in server.lines()] == ["charge"] * 8


async def test_when_the_connection_breaks_or_the_answer_is_none_nobody_knows(
    program: dict[str, Any], server: PaymentServer
) -> None:
    for raw in BREAKS:
        server.injected = {AFTER: say(raw)}
        with pytest.raises(Exception) as raised:  # noqa: PT011 - it is the client's own
            await program["post"](f"{server.url}/blind/charge", DOCUMENT, key="k")
        assert not isinstance(raised.value, NotDone), raw
    # A client that repeats requests by itself would have had it done more often.
    assert len(server.lines()) == len(BREAKS)


async def test_when_nobody_takes_the_connection_nothing_was_done_and_nothing_is_found(
    program: dict[str, Any],
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/blind/charge"
        with pytest.raises(NotDone):
            await program["post"](url, DOCUMENT, key="k")
        # A look-up that says so would have the step done again.
        with pytest.raises(program["NoConnection"]):
            await program["find"](url, key="k")


async def test_after_too_many_requests_it_waits_as_long_as_it_is_told(
    program: dict[str, Any], server: PaymentServer
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    program["asyncio"] = SimpleNamespace(sleep=sleep)
    for said in ("7", "900", "Fri, 27 Nov 2026 10:00:00 GMT"):
        server.injected = {BEFORE: answer(429, **{"Retry-After": said})}
        with pytest.raises(NotDone, match="answered 429"):
            await program["post"](f"{server.url}/blind/charge", DOCUMENT, key="k")
    assert slept == [7, 20, 1]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["keyed", "asked", "blind"])
@pytest.mark.parametrize(
    ("point", "seconds"),
    [(BEFORE, None), (AFTER, None), (AFTER, 2.0)],
    ids=["cut before", "cut after", "slow"],
)
async def test_when_an_answer_is_lost_the_step_is_done_once_or_a_person_is_asked(
    program: dict[str, Any], server: PaymentServer, way: str, point: Point, seconds: float | None
) -> None:
    url = f"{server.url}/{way}/charge"
    policies: dict[str, OnUnknown | AskOutside] = {
        "keyed": OnUnknown.REPEAT,
        "asked": ask(partial(program["find"], url)),
    }
    handlers = Handlers()

    @handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL)
    async def buy(_: Purchase, __: Buy, context: Context) -> Purchase:
        policy = policies.get(way, OnUnknown.HALT)
        call = partial(program["post"], url, DOCUMENT)
        paid = await context.step("charge", call, on_unknown=policy, seconds=seconds, attempts=9)
        return Purchase(receipts=[paid["receipt"]])

    def lose(request: Request) -> Response:
        server.injected.clear()
        if seconds is not None:
            server.is_over.wait(HELD_SECONDS_MAX)
        return say(b"")(request)

    server.injected = {point: lose}
    world = World(OrderedClock(), handlers=handlers)
    outcome = await world.east.consumer.consume(BUY)
    server.let_go()

    done = [one for one in server.lines() if one["event"] == "charge"]
    if way == "blind":
        assert isinstance(outcome, Faulted)
        assert world.entries()[-1]["unknown"] == ["charge"]
        assert len(done) == (point is AFTER)
        return
    assert isinstance(outcome, Processed)
    (step,) = world.entries()[-1]["steps"]
    assert [(one["key"], json.dumps(one["body"])) for one in done] == [
        (step["key"], json.dumps(DOCUMENT))
    ]
    assert bought(world) == [done[0]["receipt"]]
