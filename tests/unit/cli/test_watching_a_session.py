"""`lockstep watch` goes on from where the last answer ended, in whichever region answers."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cli import watch
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_app import Asked, running_app
from tests.unit.cli.test_talking_to_an_app import closed_port

UNAVAILABLE = (503, {"type": "Unavailable", "status": 503, "detail": "no journal"})


def change(position: int, **more: Any) -> str:
    """An event as an app writes it."""
    data = {
        "position": position,
        "time": "2026-01-01T00:00:00+00:00",
        "status": "completed",
        "messages": [{"id": f"m-{position}", "type": "account.add"}],
        "outputs": [],
        **more,
    }
    return f"id: {position}\ndata: {json.dumps(data)}\n\n"


def answer(*events: str) -> tuple[int, bytes]:
    return 200, ("retry: 1000\n\n" + "".join(events)).encode()


def after_in(asked: Asked) -> str | None:
    """The position that was asked after, None for the beginning."""
    query = parse_qs(urlsplit(asked.path).query)
    assert query["session"] == ["N1/a"]
    return query["after"][0] if "after" in query else None


@pytest.fixture
def until(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let Ctrl-C come in the n-th pause, none of which takes time."""

    def set_end(pauses: int) -> None:
        left = iter(range(pauses))

        def pause(_: float) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        monkeypatch.setattr(watch, "sleep", pause)

    return set_end


def test_each_answer_is_asked_for_behind_the_one_before_until_ctrl_c(
    run: Run, until: Callable[[int], None]
) -> None:
    answers = iter([answer(change(0), change(1, outputs=["o-1"])), answer(), answer(change(2))])
    until(2)

    with running_app(lambda _: next(answers)) as app:
        status, out, _ = run("--url", app.url, "watch", "N1/a")

    assert status == 130
    assert out.splitlines() == [
        "0 2026-01-01T00:00:00 completed  account.add m-0",
        "1 2026-01-01T00:00:00 completed  account.add m-1  outputs: o-1",
        "2 2026-01-01T00:00:00 completed  account.add m-2",
    ]
    assert [after_in(one) for one in app.asked] == [None, "1", "1"]


def test_when_a_region_is_lost_the_next_one_goes_on_without_a_gap(
    run: Run, until: Callable[[int], None]
) -> None:
    east = iter([answer(change(4)), UNAVAILABLE, answer(change(6))])
    west = iter([answer(change(5)), UNAVAILABLE])
    until(2)

    with running_app(lambda _: next(east)) as first, running_app(lambda _: next(west)) as second:
        url = f"{first.url},{second.url}"
        status, out, told = run("--url", url, "watch", "N1/a", "--after", "3", "--json")

    assert (status, [json.loads(line)["position"] for line in out.splitlines()]) == (130, [4, 5, 6])
    assert [after_in(one) for one in first.asked] == ["3", "4", "5"]
    assert [after_in(one) for one in second.asked] == ["4", "5"]
    assert told.count("going on with the next region") == 2


def test_when_all_regions_are_lost_for_a_while_it_goes_on(
    run: Run, until: Callable[[int], None]
) -> None:
    answers = iter([answer(change(0)), UNAVAILABLE, UNAVAILABLE, answer(change(1))])
    until(3)

    with running_app(lambda _: next(answers)) as app:
        status, out, _ = run("--url", app.url, "watch", "N1/a")

    assert (status, len(out.splitlines())) == (130, 2)


def test_where_nobody_has_answered_yet_it_says_so_and_ends(run: Run) -> None:
    status, _, told = run("--url", f"{closed_port()},{closed_port()}", "watch", "N1/a")

    assert (status, told.count("cannot be reached")) == (3, 2)


def test_what_is_gone_is_told_and_what_strangers_wrote_moves_no_cursor(
    run: Run, until: Callable[[int], None]
) -> None:
    removed = 'id: 6\nevent: removed\ndata: {"oldest": 7}\n\n'
    rewound = 'id: 2\nevent: rewound\ndata: {"newest": 2}\n\n'
    failed = change(7, status="faulted", reason="no\x1b[2J", kept="staged", action="retry")
    answers = iter([answer(removed, failed), answer(rewound), answer()])
    until(2)

    with running_app(lambda _: next(answers)) as app:
        _, out, _ = run("--url", app.url, "watch", "N1/a", "--after", "3")

    removal, fault, rewinding = out.splitlines()
    assert removal == "what came before position 7 was removed"
    assert fault.endswith("account.add m-7  decided: retry  no\\x1b[2J  outputs are staged")
    assert rewinding == "the journal was restored, and ends at position 2"
    assert [after_in(one) for one in app.asked] == ["3", "7", "2"]


def test_all_sessions_are_followed_and_nothing_is_shown_twice(
    run: Run, until: Callable[[int], None]
) -> None:
    def one(session: str, position: int) -> dict[str, Any]:
        data = {"session": session, "position": position, "status": "completed"}
        return data | {"time": "2026-01-01T00:00:00+00:00", "messages": [], "outputs": []}

    def look(until: int, *changes: dict[str, Any], more: bool = False) -> tuple[int, Any]:
        found = {"changes": changes, "until": until, "more": more, "request_units": 2.5}
        return 200, found

    west = iter(
        [
            look(100),
            UNAVAILABLE,
            look(103, one("a", 0), one("b\x1b", 7)),
            # Of one second there are more than are told at once.
            look(103, one("a", 0), more=True),
            look(103, one("a", 0), more=True),
            look(109, one("a", 0), one("a", 1)),
        ]
    )
    until(3)

    with running_app(lambda _: next(west)) as app:
        status, out, told = run("--url", app.url, "tail")

    assert status == 130
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["a", "0"],
        ["b\\x1b", "7"],
        ["a", "1"],
    ]
    places = [parse_qs(urlsplit(one.path).query).get("since") for one in app.asked]
    assert places == [None, ["95"], ["95"], ["98"], ["103"], ["104"]]
    assert "not all entries are shown" in told
    assert "12.5 request units" in told
