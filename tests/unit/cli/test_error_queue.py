"""`errors`, `send-again` and `dismiss`, against the app's own functions over queues in memory."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import azure.functions as func
import pytest

from functions.http.error_queue import dismiss, list_errors, repeat
from shared.domain.wire import PREFIX, to_properties
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_app import Asked, FakeApp, running_app
from tests.world import DELAY_SECONDS, REGIONS, World, message

ROUTES = {"errors": list_errors, "errors/again": repeat, "errors/dismissal": dismiss}
AGAIN = ("send-again", "acc-7", "--who", "Ada", "--why", "mended")


@pytest.fixture
def apps(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, FakeApp]]:
    """Both regions' apps, of which `lost` ones do not answer."""

    def respond(asked: Asked, region: str) -> tuple[int, Any]:
        if region in world.bus.unavailable:
            return 503, {"type": "Unavailable", "detail": f"{region} is away"}
        params = dict(parse_qsl(urlsplit(asked.path).query))
        body = b"" if asked.body is None else json.dumps(asked.body).encode()
        request = func.HttpRequest(
            asked.method, f"http://app{asked.path}", params=params, body=body
        )
        path = urlsplit(asked.path).path
        function = ROUTES[path.removeprefix("/api/")]
        response = asyncio.run(function(getattr(world, region), request))
        return response.status_code, json.loads(response.get_body())

    with ExitStack() as running:
        apps = {
            region: running.enter_context(running_app(partial(respond, region=region)))
            for region in REGIONS
        }
        monkeypatch.setenv("LOCKSTEP_URL", ",".join(app.url for app in apps.values()))
        yield apps


async def reject(world: World, session: str, n: int = 0, *regions: str) -> None:
    """A stray that these regions rejected, or east; the reports of all are there to be seen."""
    stray = message(n, session=session)
    for region in regions or ("east",):
        rejecter = getattr(world, region).rejecter
        await rejecter.reject(session, to_properties(stray), stray.body, f"reason {n}")
    world.clock.seconds += DELAY_SECONDS


def sent(world: World) -> list[bytes]:
    return [one.body for one in world.bus.messages("east", "in")]


async def test_reports_of_several_sessions_are_told_with_what_can_be_done(
    world: World, apps: dict[str, FakeApp], run: Run
) -> None:
    assert run("errors")[:2] == (
        0,
        "There is nothing that is shown by --show open.\n",
    )
    for name in ("acc-7", "acc-8"):
        await reject(world, name)
    await world.east.consumer.consume(message(0, session="acc-9", kind="account.burn"))
    world.clock.seconds += DELAY_SECONDS

    _, everything, counted = run("errors", "--show", "all")
    rows = {line.split()[0]: line for line in everything.splitlines()}
    _, is_open, _ = run("errors")
    _, first, more = run("errors", "--limit", "1")
    listed = json.loads(run("errors", "acc-8", "--json")[1])["errors"]

    assert rows.keys() - {"session"} == {"acc-7", "acc-8", "acc-9"}
    # A copy of a fault needs nobody here: it is counted.
    assert [line.split()[0] for line in is_open.splitlines()] == ["session", "acc-7", "acc-8"]
    assert "in east: 2 open, 1 fault, 0 ended, 3 all" in counted
    assert [line.split()[0] for line in run("errors", "--show", "fault")[1].splitlines()] == [
        "session",
        "acc-9",
    ]
    assert run("errors", "--show", "none")[0] == 1
    assert ["send-again" in rows[f"acc-{n}"] for n in (7, 8, 9)] == [True, True, False]
    assert (len(first.splitlines()), "not all was seen" in more) == (2, True)
    assert [one["session"] for one in listed] == ["acc-8"]


async def test_a_delivery_is_sent_once_and_another_decision_about_it_is_refused(
    world: World, apps: dict[str, FakeApp], run: Run
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
    assert "sent again by Ada" in run("errors", "--show", "ended")[1]
    assert "acc-7" not in run("errors")[1]


async def test_of_several_reports_one_has_to_be_named(
    world: World, apps: dict[str, FakeApp], run: Run
) -> None:
    for n in range(2):
        await reject(world, "acc-7", n)
    listed = json.loads(run("errors", "acc-7", "--json")[1])["errors"]

    status, _, error = run(*AGAIN, "--yes")
    assert (status, "2 reports can be decided so: say which by --report" in error) == (2, True)
    assert run(*AGAIN, "--report", listed[1]["report"], "--yes")[0] == 0

    assert sent(world) == [message(1, session="acc-7").body]
    status, _, error = run(*AGAIN, "--report", "none", "--yes")
    assert (status, "can be decided so" in error) == (2, True)


async def test_when_both_regions_rejected_it_is_one_report_and_sent_once(
    world: World, apps: dict[str, FakeApp], run: Run
) -> None:
    await reject(world, "acc-7", 0, *REGIONS)

    (listed,) = json.loads(run("errors", "--show", "all", "--json")[1])["errors"]
    assert run(*AGAIN, "--report", listed["report"], "--yes")[0] == 0
    assert run(*AGAIN, "--yes")[0] == 0

    assert listed["regions"] == ["east", "west"]
    assert sent(world) == [message(0, session="acc-7").body]
    (after,) = json.loads(run("errors", "--show", "all", "--json")[1])["errors"]
    assert (after["open"], after["sent_again"]["done"]) == (False, True)


async def test_when_one_region_alone_has_the_report_it_is_listed_and_sent_by_that_one(
    world: World, apps: dict[str, FakeApp], run: Run
) -> None:
    with world.without("east"):
        await reject(world, "acc-7", 0, "west")
        while_away = run("errors", "--show", "all", "--json")
        assert json.loads(while_away[1])["complete"] is False
        # What is open is told by the region that answers, of all regions.
        (of_all,) = json.loads(run("errors", "--json")[1])["errors"]
    assert "east is away" in while_away[2]
    assert of_all["session"] == "acc-7"

    (listed,) = json.loads(run("errors", "--show", "all", "--json")[1])["errors"]
    assert run(*AGAIN, "--yes")[0] == 0

    assert listed["regions"] == ["west"]
    assert sent(world) == [message(0, session="acc-7").body]


async def test_when_its_time_is_wrong_another_is_given_and_the_rest_is_carried_over(
    world: World, apps: dict[str, FakeApp], run: Run
) -> None:
    stray = to_properties(message(0, session="acc-7")) | {
        PREFIX + "time": "noon",
        PREFIX + "replyto": "answers",
    }
    await world.east.rejecter.reject("acc-7", stray, message(0).body, "no time")
    world.clock.seconds += DELAY_SECONDS

    status, _, error = run(*AGAIN, "--yes")
    assert (status, "say time" in error, sent(world)) == (1, True, [])
    assert run(*AGAIN, "--time", "2026-11-27T12:00:00Z", "--yes")[0] == 0

    (again,) = world.bus.messages("east", "in")
    assert (again.time, again.reply_to) == ("2026-11-27T12:00:00Z", "answers")


async def test_when_nothing_is_to_be_done_a_report_is_dismissed_with_who_and_why(
    world: World, apps: dict[str, FakeApp], run: Run
) -> None:
    for n in range(2):
        await reject(world, "acc-7", n)
    dismiss_it = ("dismiss", "acc-7", "--who", "Ada", "--why", "a test of theirs")
    listed = json.loads(run("errors", "acc-7", "--json")[1])["errors"]
    named = ("--report", listed[0]["report"], "--yes")

    assert run(*dismiss_it, "--yes")[0] == 2
    assert run(*dismiss_it, "--report", listed[0]["report"])[0] == 2
    for _ in range(2):
        assert run(*dismiss_it, *named)[0] == 0
    status, _, error = run(*AGAIN, *named)

    assert (status, "Ada has dismissed it before: a test of theirs" in error) == (1, True)
    assert sent(world) == []
    shown = json.loads(run("errors", "acc-7", "--json")[1])["errors"]
    assert [(one["report"], one["open"]) for one in shown] == [
        (listed[1]["report"], True),
        (listed[0]["report"], False),
    ]
    assert "dismissed by Ada" in run("errors", "acc-7")[1]


async def test_all_open_reports_with_a_reason_are_decided_and_a_refusal_keeps_none_from_it(
    world: World, apps: dict[str, FakeApp], run: Run
) -> None:
    await reject(world, "acc-0")
    await reject(world, "acc-1", 1)
    odd = message(0, session="acc-2", kind="no.such")
    await world.east.rejecter.reject("acc-2", to_properties(odd), odd.body, "reason 0")
    world.clock.seconds += DELAY_SECONDS
    decided = ("--who", "Ada", "--why", "they are new")
    again = ("send-again", "--reason", "reason 0", *decided)

    assert [run(*again)[0], run(*again, "acc-0", "--yes")[0]] == [2, 2]
    status, _, error = run(*again, "--yes")

    assert (status, "session 'acc-2': UnknownType" in error) == (1, True)
    assert sent(world) == [message(0, session="acc-0").body]
    assert run("dismiss", "--reason", "reason", *decided, "--yes")[0] == 0
    assert json.loads(run("errors", "--json")[1])["errors"] == []
    assert run(*again, "--yes")[0] == 2
