"""`errors` and `send-again`, against the app's own functions over an error queue in memory."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import azure.functions as func
import pytest

from functions.http.error_queue import list_errors, repeat
from shared.domain.wire import to_properties
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_app import Asked, FakeApp, running_app
from tests.world import World, message

AGAIN = ("send-again", "acc-7", "--who", "Ada", "--why", "mended")


@pytest.fixture
def app(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApp]:
    def respond(asked: Asked) -> tuple[int, Any]:
        params = dict(parse_qsl(urlsplit(asked.path).query))
        body = b"" if asked.body is None else json.dumps(asked.body).encode()
        request = func.HttpRequest(
            asked.method, f"http://app{asked.path}", params=params, body=body
        )
        function = repeat if asked.method == "POST" else list_errors
        response = asyncio.run(function(world.east, request))
        return response.status_code, json.loads(response.get_body())

    with running_app(respond) as app:
        monkeypatch.setenv("LOCKSTEP_URL", app.url)
        yield app


async def reject(world: World, session: str, n: int = 0) -> None:
    stray = message(n, session=session)
    await world.east.rejecter.reject(session, to_properties(stray), stray.body, f"reason {n}")


def sent(world: World) -> list[bytes]:
    return [one.body for one in world.bus.messages("east", "in")]


async def test_reports_of_several_sessions_are_told_with_what_can_be_done(
    world: World, app: FakeApp, run: Run
) -> None:
    assert run("errors")[:2] == (0, "The error queue of east is empty.\n")
    for name in ("acc-7", "acc-8"):
        await reject(world, name)
    await world.east.consumer.consume(message(0, session="acc-9", kind="account.burn"))

    rows = {line.split()[0]: line for line in run("errors")[1].splitlines()}
    _, first, more = run("errors", "--limit", "1")
    listed = json.loads(run("errors", "acc-8", "--json")[1])["errors"]

    assert rows.keys() - {"session"} == {"acc-7", "acc-8", "acc-9"}
    assert ["send-again" in rows[f"acc-{n}"] for n in (7, 8, 9)] == [True, True, False]
    assert (len(first.splitlines()), "there may be more: --skip 1" in more) == (2, True)
    assert [one["session"] for one in listed] == ["acc-8"]


async def test_a_delivery_is_sent_once_and_another_decision_about_it_is_refused(
    world: World, app: FakeApp, run: Run
) -> None:
    await reject(world, "acc-7")

    status, out, error = run(*AGAIN)
    assert (status, sent(world), "nothing was decided" in error) == (2, [], True)
    assert "reason 0" in out
    for _ in range(2):
        assert run(*AGAIN, "--body", '{"amount": 5}', "--yes")[0] == 0
    assert [json.loads(body) for body in sent(world)] == [{"amount": 5}]
    status, _, error = run(*AGAIN, "--yes")

    assert (status, len(sent(world))) == (1, 1)
    assert "NotRepeatable: " in error
    assert "(docs/reference.md#NotRepeatable)" in error
    assert "sent again by Ada" in run("errors")[1]


async def test_of_several_reports_one_has_to_be_named(world: World, app: FakeApp, run: Run) -> None:
    for n in range(2):
        await reject(world, "acc-7", n)
    listed = json.loads(run("errors", "acc-7", "--json")[1])["errors"]

    status, _, error = run(*AGAIN, "--yes")
    assert (status, "2 reports can be sent again: say which by --report" in error) == (2, True)
    assert run(*AGAIN, "--report", listed[1]["report"], "--yes")[0] == 0

    assert sent(world) == [message(1, session="acc-7").body]
    status, _, error = run(*AGAIN, "--report", "none", "--yes")
    assert (status, "can be sent again" in error) == (2, True)
