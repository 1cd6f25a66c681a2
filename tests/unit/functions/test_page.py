"""The operations page without a browser: what is shown, and that a form decides once."""

import asyncio
import json
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import azure.functions as func
import pytest

from functions.http.descriptions import describe_standstill
from functions.page.decisions import answer_decisions_form, answer_form, show_decisions
from functions.page.error_queue import answer_error_form, answer_reports_form, show_errors
from functions.page.page import show_faults, show_sessions, show_timeline
from functions.page.regions import ENTRIES_MAX, measure_activity, show_regions
from functions.page.view import adapt_pages, compare_states, group_by_cause
from shared.domain.journal import RecentEntry
from shared.domain.spending import CURRENT
from shared.domain.standstill import Standstill, StandstillKind
from shared.domain.wire import to_properties
from shared.engine.operate.watch import PAUSE_SECONDS_MAX
from tests.asking import ask
from tests.loop_clock import LoopClock, in_world
from tests.world import World, burn, message, require


def asked(page: str = "", **params: str) -> func.HttpRequest:
    return ask(method="GET", path=f"/operate{page}", query=params)


def form(fields: list[tuple[str, str]], **headers: str) -> func.HttpRequest:
    return ask(urlencode(fields), path="/operate/decision", headers=headers)


@in_world(lambda: World(LoopClock()))
async def test_a_page_that_follows_its_session_is_shown_with_each_change_and_needs_no_script(
    world: World,
) -> None:
    await world.east.consumer.consume(message(0, session="a&b"))
    shown = await read(world, show_timeline, "/session", session="a&b")
    (path,) = re.findall('href="([^"]*)">Follow this session', shown)
    assert unescape(path) == "/api/operate/session?session=a%26b&follow=now"
    begun = await show_timeline(world.west, asked("/session", session="a&b", follow="now"))
    assert begun.headers["Refresh"] == "1; url=/api/operate/session?session=a%26b&follow=0"

    request = asked("/session", session="a&b", follow="0")
    following = asyncio.ensure_future(show_timeline(world.west, request))
    await world.clock.sleep(5)
    await world.east.consumer.consume(message(1, session="a&b"))
    response = await following

    assert world.clock.now() <= 5 + PAUSE_SECONDS_MAX
    assert "Position 1: " in response.get_body().decode()
    again = "1; url=/api/operate/session?session=a%26b&follow=1"
    assert response.headers["Refresh"] == again
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    # Nothing happens: it is shown as it is, and goes on.
    quiet = await show_timeline(world.west, asked("/session", session="a&b", follow="1"))
    assert quiet.headers["Refresh"] == again
    plain = await show_timeline(world.west, asked("/session", session="a&b"))
    assert "Refresh" not in plain.headers
    assert "<script" not in shown


async def answer(world: World, view: Any, request: func.HttpRequest) -> tuple[int, str]:
    """Status and text of a page."""
    response = await view(world.east, request)
    return response.status_code, response.get_body().decode()


async def send(world: World, fields: list[tuple[str, str]], **headers: str) -> tuple[int, str]:
    return await answer(world, answer_form, form(fields, **headers))


async def read(world: World, view: Any = show_faults, page: str = "", **params: str) -> str:
    return (await answer(world, view, asked(page, **params)))[1]


async def halt(world: World, *sessions: str) -> None:
    for session in sessions:
        await world.east.consumer.consume(message(0, session=session, kind="account.burn"))
        await world.east.consumer.consume(message(1, session=session))


def choices(page: str) -> list[str]:
    return [unescape(value) for value in re.findall(r'name="what" value="([^"]*)"', page)]


def fields(page: str, action: str, **more: str) -> list[tuple[str, str]]:
    said = {"action": action, "who": "Ada", "why": "checked", **more}
    return [*(("what", one) for one in choices(page)), *said.items()]


async def test_what_stands_still_is_grouped_by_cause_and_paged(world: World) -> None:
    await halt(world, "acc-1", "acc-2")

    page = await read(world)
    first = await read(world, limit="1")

    assert page.count('<section aria-labelledby="group-') == 1
    assert "There are more" not in page
    assert '<a href="/api/operate" aria-current="page">' in page
    assert "<code>docs/runbook.md#halt</code>" in page
    assert len(choices(page)) == 2
    assert len(choices(first)) == 1
    assert "Next page" in first
    assert "Next page" not in page


async def test_every_view_of_a_fault_shows_where_its_handler_raised(world: World) -> None:
    await halt(world, "acc-1")
    frame = f"tests/world.py:{burn.__code__.co_firstlineno + 4} in burn"

    views = [
        await read(world),
        await read(world, show_timeline, "/session", session="acc-1"),
        await read(world, show_errors, show="fault"),
    ]

    assert [f"<li><code>{frame}</code></li>" in view for view in views] == [True] * 3


async def test_help_is_a_link_where_the_documentation_is_served(world: World) -> None:
    await halt(world, "acc-1")
    adapt_pages("https://docs.example/lockstep/", has_sagas=True)
    try:
        page = await read(world)
        wrong = await read(world, kind="nonsense")
    finally:
        adapt_pages("", has_sagas=True)

    assert '<a href="https://docs.example/lockstep/runbook.html#halt">' in page
    assert '<a href="https://docs.example/lockstep/reference.html#InvalidMessage">' in wrong


def test_causes_that_differ_in_names_and_numbers_alone_are_one() -> None:
    causes = {"s-1": "account s-1 is closed", "s-2": "account s-2 is closed", "s-3": "no stock"}
    listed = [
        describe_standstill(Standstill(StandstillKind.HALT, session, 1.0, cause, position=0))
        for session, cause in causes.items()
    ]

    groups = group_by_cause(listed)

    assert [one["cause"] for one in groups] == ["account … is closed", "no stock"]
    assert [one["cause"] for group in groups for one in group["members"]] == [*causes.values()]


async def test_a_preview_changes_nothing_and_a_group_is_then_decided_with_who_and_why(
    world: World,
) -> None:
    await halt(world, "acc-1", "acc-2")
    page = await read(world)

    status, preview = await send(world, fields(page, "skip"))
    assert (status, len(choices(await read(world)))) == (200, 2)
    status, done = await carry_out(world, preview)

    assert (status, "2 of 2 came to an end" in done) == (303, True)
    assert choices(await read(world)) == []
    entries = [await world.journal.entry("acc-1", n) for n in range(4)]
    decided = [one.resolution for one in entries if one and one.resolution]
    assert [(one.action, one.who, one.why) for one in decided] == [("skip", "Ada", "checked")]


async def carry_out(world: World, preview: str) -> tuple[int, str]:
    """The status of a preview that is carried out, and the page that a browser is led to."""
    hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', preview)
    response = await answer_form(world.east, form([(name, unescape(one)) for name, one in hidden]))
    query = dict(parse_qsl(urlsplit(response.headers["Location"]).query))
    return response.status_code, await read(world, show_decisions, "/decisions", **query)


async def test_when_a_form_is_sent_twice_the_second_has_no_effect(world: World) -> None:
    await halt(world, "acc-1")
    page = await read(world)
    preview = (await send(world, fields(page, "skip")))[1]
    # Another person has the same page open.
    other = (await send(world, fields(page, "skip", who="Bob")))[1]

    first = await carry_out(world, preview)
    head = await world.journal.head("acc-1")
    second = await carry_out(world, preview)
    late = await carry_out(world, other)

    assert "1 of 1 came to an end" in first[1]
    assert second == first
    assert "over: NotHalted" in late[1]
    assert await world.journal.head("acc-1") == head
    assert (await read(world, show_decisions, "/decisions")).count("Ada: checked") == 1


async def test_a_whole_cause_is_decided_on_every_page_and_may_be_cancelled(world: World) -> None:
    await halt(world, *(f"acc-{n}" for n in range(60)))
    page = await read(world, limit="2")
    (every,) = {unescape(one) for one in re.findall(r'name="all" value="([^"]*)"', page)}
    assert "There are more than one page shows." in page
    assert '<th scope="row">halt</th><td>60</td>' in page

    preview = (await send(world, [*fields(page, "skip"), ("all", every)]))[1]
    assert "Preview: skip 60" in preview
    status, begun = await carry_out(world, preview)
    assert (status, "running" in begun) == (303, True)
    (decision,) = re.findall('name="id" value="([^"]*)"><button', begun)

    async def change(**said: str) -> str:
        request = ask(urlencode({"id": decision, **said}), path="/operate/decisions")
        assert (await answer_decisions_form(world.east, request)).status_code == 303
        return await read(world, show_decisions, "/decisions", id=decision)

    ended = await change(who="Bob", why="not now")
    assert "It was cancelled by Bob: not now" in ended
    assert await change() == ended
    left = await read(world)
    assert 0 < len(choices(left)) < 60
    filtered = await read(world, kind="halt", cause=json.loads(every)["cause"])
    assert choices(filtered) == choices(left)
    assert choices(await read(world, cause="another")) == []


async def test_what_is_no_json_stays_in_its_form_and_an_edit_leads_to_its_session(
    world: World,
) -> None:
    await halt(world, "acc-1")
    page = await read(world)

    status, kept = await send(world, fields(page, "edit", body='{"amount": <5', type="account.add"))

    assert status == 400
    assert "Nothing was done: body: " in kept
    assert ">{&#34;amount&#34;: &lt;5</textarea>" in kept
    assert re.findall('name="(type|who|why)" value="([^"]*)"', kept) == [
        ("type", "account.add"),
        ("who", "Ada"),
        ("why", "checked"),
    ]
    mended = [*fields(kept, "edit", body='{"amount":5}', type="account.add"), ("confirmed", "yes")]
    response = await answer_form(world.east, form(mended))
    assert (response.status_code, response.headers["Location"]) == (
        303,
        "/api/operate/session?session=acc-1",
    )
    assert world.amounts("acc-1") == [5, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [("action", "skip")],
        [("what", "{}"), ("action", "skip")],
        [("what", '{"session":"a","verbs":[]}'), ("action", "skip")],
        [("what", '{"session":"a","verbs":[{"action":"skip","at":0}]}'), ("action", "skip")],
        [("what", "{}"), ("action", "skip"), ("action", "edit")],
        [("what", "{}"), ("odd", "1")],
    ],
)
async def test_a_wrong_form_is_refused_by_name(world: World, wrong: list[tuple[str, str]]) -> None:
    status, page = await send(world, wrong)

    assert status == 400
    assert "<code>docs/reference.md#Invalid" in page


async def test_a_timeline_shows_changes_and_text_of_strangers_as_text(world: World) -> None:
    for number in range(25):
        await world.east.consumer.consume(message(number, session="<b>x</b>"))

    world.journal.fault_plan.made.clear()
    page = await read(world, show_timeline, "/session", session="<b>x</b>")
    # With a store 130 ms away a read of each entry would be seconds.
    assert world.journal.fault_plan.made == ["head", "signs", "oldest_entries"]
    earlier = await read(world, show_timeline, "/session", session="<b>x</b>", before="5")

    assert "<b>x</b>" not in page
    assert re.findall(r"Position (\d+):", page) == [str(n) for n in range(24, 4, -1)]
    assert re.findall(r"Position (\d+):", earlier) == ["4", "3", "2", "1", "0"]
    assert page.count("Changes of the state") == 20
    assert earlier.count("Changes of the state") == 5


async def test_links_carry_a_key_only_where_the_address_had_it(world: World) -> None:
    assert "code=k1" in await read(world, code="k1")
    assert "code=" not in await read(world)


def test_states_are_compared_field_by_field() -> None:
    before = {"a": {"b": 1, "c": 2}, "d": [1], "e": 0}
    after = {"a": {"b": 1, "c": 3}, "d": [1, 2], "f": None}

    assert compare_states(before, after) == [
        ("a.c", "2", "3"),
        ("d", "[1]", "[1, 2]"),
        ("e", "0", ""),
        ("f", "", "null"),
    ]


async def test_sessions_are_searched_by_prefix_and_halts_are_named(world: World) -> None:
    await halt(world, "acc-1")
    await world.east.consumer.consume(message(0, session="other"))

    text = await read(world, show_sessions, prefix="acc")

    assert ">acc-1</a>" in text
    assert "position 0</a>" in text
    assert ">other</a>" not in text


async def test_a_region_that_stops_is_seen_beside_the_one_that_takes_over(world: World) -> None:
    await world.east.consumer.consume(message(0, session="a"))
    world.clock.seconds += 30
    await world.west.consumer.consume(message(0, session="b"))

    text = await read(world, show_regions)

    east = "east: 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0; "
    west = "west: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1"
    assert f"by 5 seconds, the newest last. {east}{west}" in text
    assert "30 s ago" in text


def test_with_more_entries_than_are_read_the_rate_is_of_the_time_they_reach_back() -> None:
    recent = [RecentEntry("east", n / 50, 2) for n in range(ENTRIES_MAX)]

    assert measure_activity(recent, "east").rate == pytest.approx(2 * ENTRIES_MAX / 9.98)
    assert measure_activity(recent, "west").rate == 0
    assert measure_activity(recent, "west").counts == (*[None] * 10, 0, 0)


async def test_the_page_is_loaded_again_only_if_asked_to(world: World) -> None:
    requests = [asked(), asked(every="5"), asked(every="0.01")]

    answers = [await show_regions(world.east, one) for one in requests]

    assert [one.headers.get("Refresh") for one in answers] == [None, "5", None]
    assert [one.status_code for one in answers] == [200, 200, 400]


async def test_a_page_prints_what_it_cost_and_no_other_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = world.journal.head

    async def charge(session: str, *, newest: bool = True) -> Any:
        spending = require(CURRENT.get())
        spending.request_units += 2.5
        return await head(session, newest=newest)

    await halt(world, "acc-1", "acc-2")
    monkeypatch.setattr(world.journal, "head", charge)

    for _ in range(2):
        text = await read(world, show_sessions)
        assert "This page cost 5.0 request units" in text


async def test_a_rejected_delivery_is_previewed_and_then_sent_once(world: World) -> None:
    stray = message(0, session="acc-7")
    await world.east.rejecter.reject("acc-7", to_properties(stray), stray.body, "no time")

    text = await read(world, show_errors)
    assert "<code>docs/runbook.md#something-is-in-the-error-queue</code>" in text
    hidden = re.findall(r'name="(session|report|sequence)" value="([^"]*)"', text)
    said = [(name, value) for name, value in hidden if value] + [("who", "Ada"), ("why", "mended")]
    assert world.bus.messages("east", "in") == []

    async def press(*more: tuple[str, str]) -> tuple[int, str]:
        return await answer(world, answer_error_form, form([*said, *more]))

    assert "Nothing was done yet" in (await press())[1]
    assert world.bus.messages("east", "in") == []
    for _ in range(2):
        assert "The message is safe" in (await press(("confirmed", "yes")))[1]
    assert len(world.bus.messages("east", "in")) == 1
    assert (await press(("confirmed", "yes"), ("type", "account.burn")))[0] == 409
    left = await read(world, show_errors)
    assert "There is no open report here." in left
    ended = await read(world, show_errors, show="ended")
    assert "Sent again or dismissed: 1" in ended
    assert "Ada has sent it again: mended" in ended


async def test_the_open_reports_of_a_page_are_sent_again_together_and_one_that_cannot_be_stays(
    world: World,
) -> None:
    for session, kind in (("acc-7", "account.add"), ("acc-8", "account.add"), ("acc-9", "no.such")):
        stray = message(0, session=session, kind=kind)
        await world.east.rejecter.reject(session, to_properties(stray), stray.body, "no time")
    text = await read(world, show_errors)
    named = [("what", unescape(one)) for one in re.findall(r'name="what" value="([^"]*)"', text)]
    person = [("who", "Ada"), ("why", "mended")]

    async def press(*more: tuple[str, str]) -> tuple[int, str]:
        return await answer(world, answer_reports_form, form([*named, *person, *more]))

    for _ in range(2):
        status, told = await press(("action", "again"))
        assert (status, "Sent again: 2 of 3" in told, "UnknownType" in told) == (200, True, True)
    assert {one.session for one in world.bus.messages("east", "in")} == {"acc-7", "acc-8"}
    assert len(world.bus.messages("east", "in")) == 2
    assert "Dismissed: 1 of 3" in (await press(("action", "dismiss")))[1]
    assert "There is no open report here." in await read(world, show_errors)
    assert (await press(("action", "burn")))[0] == (await press())[0] == 400
