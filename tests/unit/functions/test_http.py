"""The HTTP triggers: what a caller sends, and the status and problem it gets."""

import asyncio
import inspect
import json
import re
from typing import Any
from unittest.mock import AsyncMock
from urllib.parse import parse_qsl, unquote, urlsplit

import azure.functions as func
import pytest

from functions.app import build_app
from functions.handlers import orders
from functions.http.operate import (
    carry_out,
    list_sessions,
    list_standstills,
    report_health,
    show_session,
    show_status,
)
from functions.http.requests import SAGA, SESSION, path_to
from proof.simulation.world import virtual_time
from shared.domain.journal import Resolution
from shared.engine.build import Services
from shared.engine.operate.health import LOOK_SECONDS
from shared.testkit.injected_faults import CallFault
from tests.asking import ask, document
from tests.loop_clock import in_virtual_time
from tests.world import REGIONS, World, message, require


def named(path: str, query: str | None = None) -> func.HttpRequest:
    """A request for a session by what the host hands over of its path and its query."""
    params = {} if query is None else {"session": query}
    return ask(method="GET", route={"session": path}, query=params)


def resolution(**asked: object) -> func.HttpRequest:
    return ask(json.dumps(asked), route={"session": "acc-7"})


async def standstills(services: Services, **asked: str) -> dict[str, Any]:
    return document(await list_standstills(services, ask(query=asked)))


@in_virtual_time
async def test_health_tells_whether_the_journal_can_be_read() -> None:
    world = World()
    world.journal.fault_plan.plan("regions", CallFault.REFUSED)

    assert (await report_health(world.east, ask(method="GET"))).status_code == 503
    assert (await show_status(world.east, ask(method="GET"))).status_code == 503
    await asyncio.sleep(LOOK_SECONDS)
    assert (await report_health(world.east, ask(method="GET"))).status_code == 200


@in_virtual_time
async def test_when_the_journal_is_silent_health_says_so_in_two_seconds() -> None:
    async def be_silent() -> None:
        await asyncio.Event().wait()

    services = World().east
    services.journal.regions = be_silent  # type: ignore[method-assign]

    answer, told = await asyncio.gather(
        report_health(services, ask(method="GET")), show_status(services, ask(method="GET"))
    )

    assert (answer.status_code, told.status_code) == (503, 503)
    assert "GET /api/status says why" in document(answer)["detail"]
    assert "did not answer within 2 s" in document(told)["detail"]
    assert virtual_time.now() == 2.0


@in_virtual_time
async def test_when_many_ask_for_health_one_look_answers_all_of_them_for_two_seconds() -> None:
    services, looks = World().east, 0

    async def count() -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0.5)

    services.journal.regions = count  # type: ignore[method-assign]

    for seconds in (0.0, 1.0, 0.9):
        await asyncio.sleep(seconds)
        crowd = [report_health(services, ask(method="GET")) for _ in range(200)]
        answers = await asyncio.gather(*crowd, show_status(services, ask(method="GET")))
        assert {one.status_code for one in answers} == {200}
        assert looks == (1 if virtual_time.now() < LOOK_SECONDS else 2)


@in_virtual_time
async def test_when_who_asked_first_goes_away_the_others_get_their_answer() -> None:
    services = World().east

    async def be_slow() -> None:
        await asyncio.sleep(1.0)

    services.journal.regions = be_slow  # type: ignore[method-assign]
    first = asyncio.create_task(report_health(services, ask(method="GET")))
    await asyncio.sleep(0.5)
    first.cancel()

    assert (await report_health(services, ask(method="GET"))).status_code == 200
    assert virtual_time.now() == 1.0


async def test_who_has_no_key_learns_from_health_how_many_are_missing_and_no_name(
    world: World,
) -> None:
    world.east.missing_places.reasons = {"queue 'secret' of west": "no role"}

    told = document(await report_health(world.east, ask(method="GET")))

    assert told == {"region": "east", "journal": "readable", "missing": 1, "heardSecondsAgo": None}


@pytest.mark.parametrize("session", ["a/b", "a%2Fb", "a%2fb", "-", "..", "acc-7", "a b/c%25"])
async def test_any_session_is_reached_by_the_path_that_an_answer_names(
    world: World, session: str
) -> None:
    await world.east.consumer.consume(message(0, session=session))
    path = urlsplit(path_to(SESSION, session))
    # The host decodes each segment once, but leaves an encoded slash as it is.
    given = re.sub("%(?!2F)[0-9A-F]{2}", lambda code: unquote(code[0]), path.path.split("/")[1])
    query = dict(parse_qsl(path.query)).get("session")

    shown = document(await show_session(world.east, named(given, query)))

    assert (shown["session"], shown["state"]) == (session, {"amounts": [1]})


async def ask_every_route_with_a_name(
    given: str, name: str | None = None
) -> dict[str, dict[str, Any]]:
    """What each function says, by its name, that takes a session or a saga's key in its path."""
    answers = {}
    for function in build_app(World(handlers=orders.handlers).east).get_functions():
        route = str((function.get_trigger() or function).get_dict_repr().get("route", ""))
        what = next((name for name in (SESSION, SAGA) if f"{{{name}}}" in route), None)
        if what is None:
            continue
        request = ask(
            b"{}",
            headers={"Idempotency-Key": "k"},
            route={what: given, "event": "approved"},
            query={what: name} if name else {},
        )
        run = inspect.unwrap(function.get_user_function())
        needed = dict.fromkeys(inspect.signature(run).parameters, AsyncMock())
        answer = await run(**needed | {"request": request})
        # An answer of events says nothing of the session's name.
        is_json = answer.mimetype != "text/event-stream"
        answers[str(function.get_function_name())] = document(answer) if is_json else {}
    return answers


@pytest.mark.parametrize("given", ["a%2Fb", "a%2fb"])
async def test_no_route_takes_a_path_in_which_two_names_are_one(given: str) -> None:
    refused = await ask_every_route_with_a_name(given)

    assert refused.keys() == {
        *("ingest", "session", "changes", "state", "resolve"),
        *("start_saga", "show_saga", "tell_saga", "cancel_saga"),
    }
    assert {(said["status"], said["type"]) for said in refused.values()} == {
        (400, "InvalidMessage")
    }
    assert all("put '-' in its place" in said["detail"] for said in refused.values())


async def test_every_route_takes_the_name_from_the_query_instead() -> None:
    answers = await ask_every_route_with_a_name("-", name="a/b")

    details = {name: str(answer.get("detail", "")) for name, answer in answers.items()}
    assert not [name for name, d in details.items() if "query parameter" in d or "in the path" in d]
    assert answers["session"]["session"] == "a/b"
    assert answers["show_saga"]["key"] == "a/b"


async def test_a_session_is_named_once(world: World) -> None:
    for path, query in (("acc-7", "acc-8"), ("-", None)):
        assert (await show_session(world.east, named(path, query))).status_code == 400


async def test_a_fault_is_listed_with_its_reason_until_it_is_resolved(world: World) -> None:
    await world.east.consumer.consume(message(0, kind="account.burn"))
    await world.east.consumer.consume(message(1))

    (listed,) = (await standstills(world.east))["standstills"]
    assert (listed["session"], listed["parked"]) == ("acc-7", 1)
    assert listed["cause"] == "ArithmeticError: cannot burn 1"

    done = await carry_out(
        world.east, resolution(action="edit", who="Ada", why="a typo", body={"amount": -1})
    )
    resolved = document(done)["entry"]
    assert resolved["resolution"] == {"action": "edit", "who": "Ada", "why": "a typo", "at": 0}
    # Not only the answer says so, but the journal.
    stored = require(await world.journal.entry("acc-7", resolved["position"]))
    assert stored.resolution == Resolution("edit", "Ada", "a typo", at=0)
    listed = await standstills(world.east)
    assert listed == {"standstills": [], "after": None}
    assert world.amounts() == [-1, 2]


async def test_blocked_outputs_are_listed_and_sent_to_another_queue(world: World) -> None:
    world.bus.missing = {(region, "out") for region in REGIONS}
    await world.east.consumer.consume(message(0, kind="account.bill"))

    (listed,) = (await standstills(world.west, kind="blocked"))["standstills"]
    redirect = next(verb for verb in listed["verbs"] if verb["action"] == "redirect")
    assert (listed["queue"], listed["regions"]) == ("", list(REGIONS))
    assert redirect == {"action": "redirect", "at": 0, "queue": ""}
    asked = {**redirect, "to": "out-2", "who": "Ada", "why": "it moved"}
    sent = await carry_out(world.west, resolution(**asked))
    again = await carry_out(world.west, resolution(**asked))

    assert document(sent) == {"session": "acc-7", "blocked": [], "recorded": []}
    assert (again.status_code, document(again)["type"]) == (409, "NotBlocked")
    for region in REGIONS:
        assert len(world.bus.messages(region, "out-2")) == 1
    stored = require(world.journal.entry_at("acc-7", 0))
    assert stored.outbox.decided[""].who == "Ada"
    assert (await standstills(world.west))["standstills"] == []


async def test_the_list_is_followed_page_by_page(world: World) -> None:
    for number in range(3):
        await world.east.consumer.consume(message(0, session=f"acc-{number}", kind="account.burn"))
    found: list[str] = []
    asked: dict[str, str] = {"limit": "1", "kind": "halt,gap"}
    for _ in range(3):
        listed = await standstills(world.east, **asked)
        found += [one["session"] for one in listed["standstills"]]
        asked["after"] = listed["after"]

    assert sorted(found) == ["acc-0", "acc-1", "acc-2"]
    last = await standstills(world.east, **asked)
    assert last == {"standstills": [], "after": None}


@pytest.mark.parametrize(
    "asked",
    [
        {"limit": "0"},
        {"limit": "101"},
        {"limit": "ten"},
        {"limit": "\u0661"},
        {"after": "yesterday"},
        {"after": "bmFuIGs="},
        {"after": "\ud800"},
        {"kind": "odd"},
        {"page": "2"},
    ],
)
async def test_a_list_that_cannot_be_meant_is_refused(world: World, asked: dict[str, str]) -> None:
    refused = await list_standstills(world.east, ask(query=asked))

    assert (refused.status_code, document(refused)["type"]) == (400, "InvalidMessage")


async def test_a_session_shows_its_state_its_fault_and_what_stands_still_or_is_not_found(
    world: World,
) -> None:
    await world.east.consumer.consume(message(0))
    await world.east.consumer.consume(message(1, kind="account.burn"))
    await world.east.consumer.consume(message(2))

    shown = document(await show_session(world.west, named("acc-7")))

    assert shown["state"] == {"amounts": [1]}
    assert shown["head"]["status"] == "parked"
    assert shown["fault"]["reason"] == "ArithmeticError: cannot burn 2"
    (standstill,) = shown["standstills"]
    assert (standstill["kind"], standstill["position"], standstill["parked"]) == ("halt", 1, 1)
    assert standstill["verbs"][0] == {"action": "retry", "at": 1}
    assert (await show_session(world.west, named("acc-8"))).status_code == 404


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"action": "skip", "who": "Ada", "why": "x"}, 409),
        ({"action": "burn", "who": "Ada", "why": "x"}, 400),
        ({"action": "skip", "who": "", "why": "x"}, 400),
        ({"action": "skip", "who": "Ada", "why": "x", "body": {}}, 400),
        ({"action": "edit", "who": "Ada", "why": "x"}, 400),
        ({"action": "skip", "who": "Ada", "why": "x", "when": "now"}, 400),
        ({"action": "skip", "who": "Ada", "why": "x", "at": "0"}, 400),
        ({"action": "skip", "who": "Ada", "why": "x", "at": -1}, 400),
        ({"action": "skip", "who": "Ada", "why": "x", "at": 10**13}, 400),
        ({"action": "skip", "who": "Ada\nEve", "why": "x"}, 400),
        ({"action": "skip", "who": "Ada", "why": "x" * 1_001}, 400),
        ({"action": "edit", "who": "Ada", "why": "x", "type": "nobody's"}, 409),
        ({"action": "retry", "who": "Ada", "why": "x", "type": "account.add"}, 400),
        ({"action": "skip-number", "who": "Ada", "why": "x", "group": "bank", "number": 0}, 409),
        ({"action": "skip-number", "who": "Ada", "why": "x", "group": "bank"}, 400),
        ({"action": "skip-number", "who": "Ada", "why": "x", "group": "", "number": 1}, 400),
        ({"action": "skip-number", "who": "Ada", "why": "x", "group": "b", "number": 2**31}, 400),
        ({"action": "close", "who": "Ada", "why": "x", "at": 0}, 409),
        ({"action": "close", "who": "Ada", "why": "x"}, 400),
        ({"action": "deliver", "who": "Ada", "why": "x"}, 200),
    ],
)
async def test_a_resolution_that_makes_no_sense_is_refused(
    world: World, asked: dict[str, object], status: int
) -> None:
    assert (await carry_out(world.east, resolution(**asked))).status_code == status


async def test_sessions_are_listed_page_by_page(world: World) -> None:
    for session in ("b", "a/1", "a/2", "a/3"):
        await world.east.consumer.consume(message(0, session=session))

    async def page(**params: str) -> dict[str, Any]:
        return document(await list_sessions(world.east, ask(query=params)))

    first = await page(prefix="a/", limit="2")
    last = await page(prefix="a/", limit="2", after=first["after"])

    assert [one["session"] for one in first["sessions"]] == ["a/1", "a/2"]
    assert ([one["session"] for one in last["sessions"]], last["after"]) == (["a/3"], None)
    assert first["sessions"][0] == {
        "session": "a/1",
        "position": 0,
        "status": "completed",
        "time": "1970-01-01T00:00:00+00:00",
        "region": "east",
    }
    assert (await page(limit="0"))["type"] == "InvalidMessage"
