"""`lockstep find`: what an id names, and the way of a message as a tree."""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_app import Asked, running_app

NAMED = {"id": "m'\"*", "type": "order.open", "group": "shop", "sequence": 4}


def entry(session: str, position: int, **more: Any) -> dict[str, Any]:
    base = {"session": session, "position": position, "status": "completed", "region": "east"}
    return base | {"messages": [NAMED]} | more


def found(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    nothing = {"id": NAMED["id"], "sessions": [], "sagas": [], "more": [], "unknown": {}}
    told = {"units": 200, "is_cut": False, "request_units": 2.4}
    return nothing | told | {"entries": list(entries)} | more


WAY = {
    "session": "order:1",
    "position": 4,
    "left": ["session stock:2 could not be asked: no answer"],
    "units": 200,
    "request_units": 7.0,
    "hops": [
        {"depth": 0} | entry("order:1", 4),
        {
            "depth": 1,
            "before": 0,
            "output": {"id": "a", "type": "stock.take"},
            **entry("stock:1", 9, status="faulted", reason="OSError: closed", trace="4bf9"),
            "messages": [NAMED | {"saga": "trip/1"}],
        },
        {
            "depth": 2,
            "before": 1,
            "output": {"id": "c", "type": "back"},
            "session": "order:1",
            "position": 4,
        },
        {
            "depth": 1,
            "before": 0,
            "session": "x\x1b[2J",
            "output": {"id": "b", "type": "told", "said": "pending for west"},
        },
    ],
}


def answer(asked: Asked) -> tuple[int, Any]:
    parts = urlsplit(asked.path)
    assert all(len(values) == 1 for values in parse_qs(parts.query).values())
    if parts.path == "/api/follow":
        assert parse_qs(parts.query)["position"] == ["4"]
        return 200, WAY
    return 200, found(entry("order:1", 4, reason="why"), sessions=["m'\"*1"], more=["sessions"])


def test_entries_and_names_are_told_with_what_it_cost(run: Run) -> None:
    with running_app(answer) as app:
        status, out, err = run("--url", app.url, "find", NAMED["id"], "--units", "50")

    assert status == 0
    assert "order:1" in out
    assert "why" in out
    assert "m'\"*1" in out
    assert err.splitlines() == [
        "lockstep: there are more sessions: lockstep sessions",
        "lockstep: 2.4 request units",
    ]
    query = parse_qs(urlsplit(app.asked[0].path).query)
    assert query == {"id": [NAMED["id"]], "limit": ["20"], "units": ["50"]}


def test_the_way_is_a_tree_that_moves_no_cursor_and_tells_no_entry_twice(run: Run) -> None:
    with running_app(answer) as app:
        status, out, err = run("--url", app.url, "find", NAMED["id"], "--follow")

    assert status == 0
    assert out.splitlines() == [
        "order:1 position 4: completed, order.open  <- this message",
        "`- stock.take to stock:1 position 9: faulted, saga trip/1, trace 4bf9, OSError: closed",
        "   `- back to order:1 position 4: as above",
        "`- told to x\\x1b[2J: pending for west",
    ]
    assert "not told: session stock:2 could not be asked: no answer" in err
    assert "9.4 request units" in err


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        (found(), "not processed yet, removed with time, or rejected"),
        (found(is_cut=True), "the search did not come to its end"),
        (found(unknown={"entries": "silent"}), "the search did not come to its end"),
        (found(entry("a", 1), entry("b", 1)), "say --session (a, b)"),
    ],
)
def test_what_cannot_be_followed_is_said(run: Run, told: Any, complaint: str) -> None:
    with running_app(lambda _: (200, told)) as app:
        status, out, err = run("--url", app.url, "find", "m", "--follow")

    assert (status, out) == (1, "")
    assert complaint in err


def test_a_search_that_was_cut_says_so_and_how_it_goes_on(run: Run) -> None:
    told = found(is_cut=True, unknown={"sagas": "silent"}, more=["entries"])
    with running_app(lambda _: (200, told)) as app:
        _, out, err = run("--url", app.url, "find", "m")
        _, text, _ = run("--url", app.url, "find", "m", "--json")

    assert "the search did not come to its end" in out
    assert "it stopped at 200 request units: --units 2000, or name the session" in err
    assert "the sagas could not be asked: silent" in err
    assert "there are more entries: --limit, or name the session" in err
    assert json.loads(text) == told
