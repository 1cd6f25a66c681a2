"""The command line against an app that answers, refuses, is silent or is not there."""

import io
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_app import Asked, running_app

# So many seconds an app has for an answer where one is silent and another one answers, which takes
# a busy machine a second.
TRIED = "3"
HALT = {
    "kind": "halt",
    "session": "N1/a",
    "since": "2026-01-01T00:00:00+00:00",
    "cause": "flight: Field required",
    "verbs": [{"action": name, "at": 4} for name in ("retry", "edit", "skip")],
    "resolution": "sessions/-/resolution?session=N1%2Fa",
    "position": 4,
    "parked": 3,
}
SESSION: dict[str, Any] = {
    "session": "N1/a",
    "head": None,
    "state": {},
    "fault": None,
    "standstills": [HALT],
}
CAUSE = {
    "kind": "halt",
    "cause": "flight: Field required",
    "example": "flight: Field required",
    "count": 1,
    "oldest": "2026-01-01T00:00:00+00:00",
    "actions": ["retry", "skip"],
}
CAUSES = {"causes": [CAUSE], "more": False}
RESOLVED = {"session": "N1/a", "entry": {"position": 5, "status": "completed"}}


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def stand_still(asked: Asked) -> tuple[int, Any]:
    """An app in which one session is halted."""
    if asked.method == "POST":
        return 200, RESOLVED
    if "causes" in asked.path:
        return 200, CAUSES
    return 200, SESSION if "sessions/" in asked.path else {"standstills": [HALT], "after": None}


def test_health_names_what_is_missing_and_what_is_silent_but_not_what_comes_seldom(
    run: Run,
) -> None:
    heard = {
        "recover": {"secondsAgo": 900.0, "within": 120.0, "silent": False},
        "begin_sagas": {"secondsAgo": None, "within": 120.0, "silent": True},
        "compact": {"secondsAgo": None, "within": 1500.0, "silent": True},
    }
    status: dict[str, Any] = {"region": "east", "journal": "readable", "missing": {}}
    status["heartbeats"] = heard

    with running_app(
        lambda asked: (200, status) if asked.path == "/api/status" else (404, "")
    ) as app:
        silent = run("--url", app.url, "health")
        status |= {"missing": {"queue 'x' of west": "no role"}, "heartbeats": None}
        missing = run("--url", app.url, "health")

    assert silent[0] == 0
    assert "readable  nothing was heard of begin_sagas\n" in silent[1]
    assert missing[0] == 1
    assert "readable  queue 'x' of west: no role\n" in missing[1]


def test_a_fault_is_shown_with_the_place_where_its_handler_raised(run: Run) -> None:
    raised_at = ["handlers/flights.py:12 in land", "handlers/runways.py:7 in Runway.take"]
    halt = {**HALT, "raised_at": raised_at}
    fault = {"reason": HALT["cause"], "raised_at": raised_at}
    shown = {**SESSION, "fault": fault, "standstills": [halt]}

    def respond(asked: Asked) -> tuple[int, Any]:
        if "causes" in asked.path:
            return 200, CAUSES
        return 200, shown if "sessions/" in asked.path else {"standstills": [halt], "after": None}

    with running_app(respond) as app:
        listed = run("--url", app.url, "faults")[1]
        one = run("--url", app.url, "show", "N1/a")[1]

    assert f"flight: Field required, raised at {raised_at[-1]}" in listed
    assert [line for line in one.splitlines() if line.startswith("raised at")] == [
        f"raised at    {line}" for line in raised_at
    ]


def test_without_an_address_nothing_is_asked(run: Run) -> None:
    status, out, error = run("faults")

    assert (status, out, "set LOCKSTEP_URL" in error) == (2, "", True)


@pytest.mark.parametrize("command", ["faults", "sessions", "sagas", "sweep"])
def test_when_no_app_is_there_it_is_said_with_the_address(command: str, run: Run) -> None:
    url = closed_port()

    status, _, error = run("--url", url, command)

    assert (status, f"{url} cannot be reached" in error) == (3, True)


@pytest.mark.parametrize("is_dead", [True, False])
def test_when_the_first_region_gives_no_answer_the_next_is_asked(is_dead: bool, run: Run) -> None:
    with running_app(lambda _: (200, None)) as silent, running_app(stand_still) as west:
        east = closed_port() if is_dead else silent.url
        words = ("--url", f"{east},{west.url}", "--timeout", TRIED, "faults", "--json")
        status, out, error = run(*words)

    listed = {"causes": [CAUSE], "standstills": [HALT], "more": False}
    assert (status, json.loads(out)) == (0, listed)
    why = "cannot be reached" if is_dead else f"gave no answer within {TRIED} s"
    assert f"{east} {why}" in error


def test_when_an_app_is_silent_about_a_decision_no_other_region_is_asked_to_decide(
    run: Run,
) -> None:
    def hear_and_say_nothing(asked: Asked) -> tuple[int, Any]:
        return (200, None) if asked.method == "POST" else stand_still(asked)

    with running_app(hear_and_say_nothing) as east, running_app(stand_still) as west:
        urls = f"{east.url},{west.url}"
        status, out, error = run(
            "--url", urls, "--timeout", TRIED, "retry", "N1/a", "--why", "w", "--yes"
        )

    assert status == 3
    assert "unknown" in out
    assert "lockstep faults says what still stands" in error
    assert west.asked == []


def test_a_decision_is_about_what_was_shown_and_says_who_and_why(run: Run) -> None:
    with running_app(stand_still) as app:
        words = ("--url", app.url, "--key", "k", "edit", "N1/a", "--body", '{"a":1}')
        status, out, _ = run(*words, "--who", "Ada", "--why", "typo", "--yes", "--json")

    assert status == 0
    assert json.loads(out)["outcomes"][0]["outcome"] == "entry 5, completed"
    assert [(one.method, one.path) for one in app.asked] == [
        ("GET", "/api/sessions/-?session=N1%2Fa"),
        ("POST", "/api/sessions/-/resolution?session=N1%2Fa"),
    ]
    assert {one.key for one in app.asked} == {"k"}
    assert app.asked[1].body == {
        "action": "edit",
        "at": 4,
        "body": {"a": 1},
        "who": "Ada",
        "why": "typo",
    }


def test_there_is_nothing_to_erase_of_a_session_that_is_not_there(run: Run) -> None:
    problem = {
        "type": "UnknownSession",
        "status": 404,
        "detail": "there is nothing of session 'nobody'",
    }

    with running_app(lambda _: (404, problem)) as app:
        status, out, _ = run("--url", app.url, "erase", "nobody", "--why", "w", "--yes")

    assert status == 1
    assert "there is nothing of session 'nobody'" in out


class Typed(io.StringIO):
    """A terminal at which somebody types this."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "ends", "asked"), [("y\n", 0, 2), ("n\n", 2, 1), (None, 2, 1)])
def test_a_decision_is_shown_and_carried_out_where_somebody_says_yes(
    typed: str | None, ends: int, asked: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where there is no terminal nobody can be asked.
    monkeypatch.setattr("sys.stdin", io.StringIO() if typed is None else Typed(typed))

    with running_app(stand_still) as app:
        status, out, error = run("--url", app.url, "retry", "N1/a", "--why", "w")

    assert (status, len(app.asked)) == (ends, asked)
    assert '"action": "retry", "at": 4' in out
    assert "flight: Field required" in out
    assert ("Carry out 1?" in out) is (typed is not None)
    assert ("nothing was decided" in error) is (ends == 2)


@pytest.mark.parametrize(
    ("of_b", "ends", "outcomes", "told"),
    [
        (
            (409, {"type": "NotHalted", "status": 409, "detail": "it goes on"}),
            1,
            ["entry 5, completed", "NotHalted: it goes on", "entry 5, completed"],
            "abc",
        ),
        ((200, None), 3, ["entry 5, completed", "unknown: ", "not begun"], "ab"),
    ],
    ids=["refused", "silent"],
)
def test_of_several_decisions_a_refusal_keeps_no_other_back_and_silence_does(
    of_b: tuple[int, Any], ends: int, outcomes: list[str], told: str, run: Run
) -> None:
    halts = [HALT | {"session": name} for name in "abc"]

    def answer(asked: Asked) -> tuple[int, Any]:
        if asked.method == "GET":
            own = [one for one in halts if asked.path.endswith(str(one["session"]))]
            return 200, SESSION | {"standstills": own}
        return of_b if asked.path.endswith("=b") else (200, RESOLVED)

    with running_app(answer) as app:
        words = ("--timeout", TRIED, "retry", *"abc", "--why", "w", "--yes", "--json")
        status, out, _ = run("--url", app.url, *words)

    found = [one["outcome"] for one in json.loads(out)["outcomes"]]
    assert (status, len(found)) == (ends, 3)
    assert [one.startswith(begin) for one, begin in zip(found, outcomes, strict=True)] == [True] * 3
    assert "".join(one.path[-1] for one in app.asked if one.method == "POST") == told


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["retry", "--why", "w"], "say which"),
        (["retry", "a", "--all", "--why", "w"], "say which"),
        (["retry", "a", "b", "--at", "3", "--why", "w"], "it goes with one session"),
        (["edit", "a", "--why", "w"], "needs --body or --type"),
        (["edit", "a", "--body", "{", "--why", "w"], "the body is not JSON"),
        (["edit", "a", "--body", "@/no/file", "--why", "w"], "the body cannot be read"),
        (["--timeout", "nan", "faults"], "no time to wait"),
        (["--timeout", "inf", "faults"], "no time to wait"),
        (["--url", "nowhere", "faults"], "'nowhere'"),
        (["--url", "ftp://x", "faults"], "'ftp://x'"),
        (["--url", "https:///x", "faults"], "'https:///x'"),
        (["--url", "https://x?code=1", "faults"], "'https://x?code=1'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(
    words: list[str], complaint: str, run: Run
) -> None:
    status, _, error = run("--url", closed_port(), *words)

    assert (status, complaint in error) == (2, True), error


@pytest.mark.parametrize(
    ("command", "listed_as"), [("faults", "standstills"), ("sessions", "sessions")]
)
def test_every_page_is_followed_and_the_limit_is_kept(
    command: str, listed_as: str, run: Run
) -> None:
    def page(asked: Asked) -> tuple[int, Any]:
        if "causes" in asked.path:
            return 200, {"causes": [CAUSE | {"count": 600}], "more": False}
        number = int(asked.path.partition("after=")[2] or 0)
        listed = [HALT | {"session": f"s{number}-{n}"} for n in range(100)]
        after = str(number + 1) if number < 5 else None
        return 200, {listed_as: listed, "after": after, "request_units": 1.25}

    with running_app(page) as app:
        _, out, _ = run("--url", app.url, command, "--json", "--limit", "250")
        limits = [one.path for one in app.asked if "limit=" in one.path]
        told = run("--url", app.url, command, "--limit", "250")[2] if command == "faults" else ""

    found = json.loads(out)
    names = [one["session"] for one in found[listed_as]]
    assert names[:100] == [f"s0-{n}" for n in range(100)]
    assert found.get("request_units", 3.75) == 3.75
    assert ["limit=100" in path for path in limits] == [True, True, False]
    assert "limit=50" in limits[2]
    # Nothing is cut without a word.
    assert ("there are more: 300 are shown" in told) is (command == "faults")
    assert found.get("more", True) is True


BULK: dict[str, Any] = {
    "id": "d1",
    "state": "running",
    "action": "retry",
    "who": "Ada",
    "why": "w",
    "kind": "halt",
    "about": 3,
    "begun": "2026-01-01T00:00:00+00:00",
    "outcomes": {"done": 0, "recorded": 0, "failed": 0, "over": 0, "refused": 0},
    "shown": [],
}


def answer_bulk(*counts: int, **last: Any) -> Callable[[Asked], tuple[int, Any]]:
    """An app whose bulk decision gets so far with each piece, and ends so."""
    left = list(counts)

    def answer(asked: Asked) -> tuple[int, Any]:
        if asked.method == "GET":
            other = CAUSE | {"cause": "KeyError: … of …", "example": "KeyError: 7 of 9", "count": 2}
            alert = CAUSE | {"kind": "alert", "actions": ["close"]}
            return 200, {"causes": [CAUSE, other, alert], "more": False}
        outcomes = BULK["outcomes"] | {"done": left.pop(0)}
        return 200, BULK | {"outcomes": outcomes} | ({} if left else {"state": "done"} | last)

    return answer


def test_a_cause_is_decided_piece_by_piece_under_one_id(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("cli.decide.time", SimpleNamespace(sleep=pauses.append, time_ns=lambda: 7))
    with running_app(answer_bulk(1, 1, 3)) as app:
        words = ("retry", "--cause", "KeyError: 7", "--who", "Ada", "--why", "w", "--yes", "--json")
        status, out, _ = run("--url", app.url, *words)

    assert (status, json.loads(out)["decisions"][0]["outcomes"]["done"]) == (0, 3)
    bodies = [one.body for one in app.asked if one.method == "POST"]
    assert bodies == [bodies[0]] * 3
    assert bodies[0] == {
        "action": "retry",
        "who": "Ada",
        "why": "w",
        "kind": "halt",
        "id": "7",
        "causes": ["KeyError: … of …"],
    }
    # It waits where nothing has changed.
    assert len(pauses) == 1


@pytest.mark.parametrize(
    ("words", "ends", "said"),
    [
        (("retry", "--all", "--dry-run"), 0, "KeyError: … of …"),
        (("retry", "--all"), 2, "nothing was decided"),
        (("retry", "--cause", "nothing like it", "--yes"), 2, "is ended by retry"),
        (("retry", "--all", "--at", "3", "--yes"), 2, "it goes with one session"),
    ],
)
def test_nothing_is_decided_where_somebody_only_looks_or_says_no(
    words: tuple[str, ...], ends: int, said: str, run: Run
) -> None:
    with running_app(answer_bulk(3)) as app:
        status, out, error = run("--url", app.url, *words, "--why", "w")

    assert (status, said in out + error) == (ends, True)
    assert [one.method for one in app.asked] == ["GET"] * (1 if "--at" not in words else 0)


def test_what_failed_again_and_a_decision_that_was_cancelled_are_no_success(run: Run) -> None:
    told = [{"session": "N1", "outcome": "failed", "text": "recorded at position 5"}]
    failed = {"outcomes": BULK["outcomes"] | {"failed": 1}, "shown": told}
    for last in (failed, {"state": "cancelled"}):
        with running_app(answer_bulk(2, **last)) as app:
            words = ("--url", app.url, "retry", "--all", "--why", "w", "--yes")
            status, out, _ = run(*words)
        assert status == 1
        assert ("recorded at position 5" in out) is (last is failed)


def test_what_waits_for_a_region_alone_is_told_and_is_no_failure(run: Run) -> None:
    told = [{"session": "N1", "outcome": "recorded", "text": "a sweep does it in east"}]
    waits = {"outcomes": BULK["outcomes"] | {"recorded": 1}, "shown": told}
    with running_app(answer_bulk(1, 2, **waits)) as app:
        status, out, _ = run("--url", app.url, "retry", "--all", "--why", "w", "--yes")

    assert (status, "a sweep does it in east" in out) == (0, True)


def test_when_the_app_falls_silent_the_decision_goes_on_and_is_named(run: Run) -> None:
    answer = answer_bulk(1, 2)

    def fall_silent(asked: Asked) -> tuple[int, Any]:
        is_second = asked.method == "POST" and len(app.asked) > 2
        return (200, None) if is_second else answer(asked)

    with running_app(fall_silent) as app:
        words = ("--url", app.url, "--timeout", TRIED, "retry", "--all", "--why", "w", "--yes")
        status, _, error = run(*words)

    assert status == 3
    assert "lockstep decisions d1 shows it" in error
    assert "lockstep cancel d1" in error


def test_a_file_is_sent_in_order_of_each_session_and_again_after_a_503(
    tmp_path: Path, run: Run
) -> None:
    lines = [json.dumps({"session": f"s{n % 3}", "type": "t", "body": {"n": n}}) for n in range(12)]
    (tmp_path / "file").write_text("\n".join([*lines, ""]))
    refused: Counter[str | None] = Counter()

    def refuse_the_first_try_of_some(asked: Asked) -> tuple[int, Any]:
        refused[asked.idempotency_key] += 1
        if asked.body["n"] % 4 == 0 and refused[asked.idempotency_key] == 1:
            return 503, {"type": "Unavailable", "status": 503, "detail": "busy"}
        return 202, {"id": asked.idempotency_key, "session": "s", "sequence": 0}

    with running_app(refuse_the_first_try_of_some) as app:
        words = ("publish", str(tmp_path / "file"), "--json")
        status, out, _ = run("--url", app.url, *words)

    assert (status, json.loads(out)) == (0, {"sent": 12, "of": 12, "failed": []})
    accepted = [a for n, a in enumerate(app.asked) if a not in app.asked[:n]]
    for session in range(3):
        own = [a.body["n"] for a in accepted if f"session=s{session}&" in a.path]
        assert own == [n for n in range(12) if n % 3 == session]
    assert len({one.idempotency_key for one in app.asked}) == 12
    assert sum(refused.values()) == 15


def test_a_file_with_a_line_that_is_no_message_is_not_sent_at_all(tmp_path: Path, run: Run) -> None:
    good = '{"session": "s", "type": "t", "body": {}}'
    bad = ["{", "[]", '{"type": "t", "body": 1}', '{"session": "s", "type": "t"}']
    bad.append('{"session": "s", "type": "t", "body": 1, "colour": 2}')
    (tmp_path / "file").write_text("\n".join([good, *bad, good]))

    with running_app(lambda _: (202, {})) as app:
        status, _, error = run("--url", app.url, "publish", str(tmp_path / "file"))

    assert status == 2
    assert app.asked == []
    assert [f"line {n}: " in error for n in range(1, 8)] == [False, *[True] * 5, False]
    assert "line 6: 'colour' is no field of a message" in error


def test_what_follows_a_refused_message_in_its_session_is_not_sent(
    tmp_path: Path, run: Run
) -> None:
    lines = [json.dumps({"session": f"s{n % 2}", "type": "t", "body": n}) for n in range(8)]
    (tmp_path / "file").write_text("\n".join(lines))

    def refuse_two(asked: Asked) -> tuple[int, Any]:
        if asked.body == 2:
            return 400, {"type": "InvalidBody", "status": 400, "detail": "two"}
        return 202, {}

    with running_app(refuse_two) as app:
        words = ("publish", str(tmp_path / "file"), "--json")
        status, out, error = run("--url", app.url, *words)

    assert status == 1
    assert json.loads(out)["sent"] == 5
    assert "line 3: InvalidBody: two" in error
    assert sorted(one.body for one in app.asked) == [0, 1, 2, 3, 5, 7]


def test_a_message_that_may_have_been_taken_is_named_so_that_it_can_be_sent_again(run: Run) -> None:
    with running_app(lambda _: (202, None)) as app:
        words = ("--timeout", "0.3", "send", "s", "t", "{}", "--id", "mine")
        status, _, error = run("--url", app.url, *words)

    assert (status, "the same again with --id mine is safe" in error) == (3, True)
    assert [one.idempotency_key for one in app.asked] == ["mine"]


def test_what_is_asked_prints_the_answer_and_ends_by_what_came_of_it(run: Run) -> None:
    answered = {"session": "s", "message": "m", "answer": {"n": 1}, "position": 3, "version": 3}
    fault = {"type": "MessageFaulted", "status": 422, "detail": "ValueError: too much"}
    replies = iter([(200, answered), (200, answered), (422, fault), (202, {"see": "sessions/s"})])
    with running_app(lambda _: next(replies)) as app:
        ask = ("--url", app.url, "ask", "s", "t", "{}", "--id", "mine")
        ends = [run(*ask), run(*ask, "--json"), run(*ask), run(*ask, "--wait", "3")]

    assert [status for status, _, _ in ends] == [0, 0, 1, 3]
    assert [json.loads(out) for _, out, _ in ends[:2]] == [{"n": 1}, answered]
    assert "MessageFaulted: ValueError: too much" in ends[2][2]
    assert "the same again with --id mine is safe, and tells what came of it" in ends[3][2]
    assert [one.prefer for one in app.asked] == ["wait=10"] * 3 + ["wait=3"]


def test_what_strangers_wrote_does_not_reach_the_terminal_as_a_command(run: Run) -> None:
    evil = "\x1b[2J\x1b]0;title\x07\u202egnp"
    one = HALT | {"cause": evil, "session": evil}

    def answer(asked: Asked) -> tuple[int, Any]:
        if "sessions/" in asked.path:
            return 400, {"type": "InvalidMessage", "status": 400, "detail": evil}
        causes = [CAUSE | {"cause": evil, "example": evil}]
        return 200, {"causes": causes, "more": True, "standstills": [one], "after": None}

    with running_app(answer) as app:
        _, out, _ = run("--url", app.url, "faults")
        _, _, error = run("--url", app.url, "show", "s")
        _, as_json, _ = run("--url", app.url, "faults", "--json")

    assert as_json.isascii()
    assert json.loads(as_json)["standstills"] == [one]
    for text in (out, error):
        assert r"\x1b[2J\x1b]0;title\x07\u202egnp" in text
        assert all(char.isprintable() or char == "\n" for char in text)


def test_when_an_answer_drips_and_never_ends_it_is_silence(run: Run) -> None:
    over = threading.Event()

    def drip(server: socket.socket) -> None:
        with server.accept()[0] as connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not over.wait(0.05):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=drip, args=(server,))
        dripping.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        status, _, error = run("--url", url, "--timeout", "0.5", "faults")
        over.set()
        dripping.join()

    assert (status, "did not come to the end of its answer" in error) == (3, True)


def test_a_shell_can_complete_the_commands(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_LOCKSTEP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "lockstep fa")
    monkeypatch.setenv("COMP_CWORD", "1")

    assert run()[1].split() == ["faults"]


def waiting_saga(*onward: str, decision: str | None = None) -> dict[str, Any]:
    waits = [{"name": "approval", "decision": decision, "onward": [*onward], "back": ["no"]}]
    return {"key": "o/1", "kind": "k", "state": "running", "reason": None, "waits": waits}


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("tell", "o/1", "a b"), "/api/sagas/-/events/a%20b?key=o%2F1"),
        (("approve", "o/1"), "/api/sagas/-/events/granted?key=o%2F1"),
        (("cancel", "o/1"), "/api/sagas/-/cancel?key=o%2F1"),
    ],
)
def test_a_saga_is_changed_in_the_name_of_who_says_why(
    words: tuple[str, ...], path: str, run: Run
) -> None:
    with running_app(lambda _: (200, waiting_saga("granted"))) as app:
        said = ("--why", "she called", "--who", "Ada")
        unasked = run("--url", app.url, "saga", *words, *said)
        status, out, _ = run("--url", app.url, "saga", *words, *said, "--yes")

    assert (unasked[0], "say --yes" in unasked[2]) == (2, True)
    assert (status, "taken" in out) == (0, True)
    posted = [asked for asked in app.asked if asked.method == "POST"]
    assert [(one.path, one.body) for one in posted] == [(path, {"who": "Ada", "why": "she called"})]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (waiting_saga("a", "b"), "goes on with any of a, b"),
        (waiting_saga("a", decision="a"), "waits for nothing"),
    ],
)
def test_a_saga_that_waits_for_no_single_event_is_not_approved(
    found: dict[str, Any], why: str, run: Run
) -> None:
    with running_app(lambda _: (200, found)) as app:
        status, _, error = run("--url", app.url, "saga", "approve", "o/1", "--why", "w", "--yes")

    assert (status, why in error) == (2, True)
    assert [asked.method for asked in app.asked] == ["GET"]


def test_a_saga_is_started_with_its_kind_and_body(run: Run) -> None:
    with running_app(lambda _: (202, {"key": "o/1", "state": "running"})) as app:
        status, out, _ = run("--url", app.url, "saga", "start", "order.place", "o/1", '{"n": 1}')

    assert (status, "running" in out) == (0, True)
    assert [(one.path, one.body) for one in app.asked] == [
        ("/api/sagas/-?key=o%2F1&type=order.place", {"n": 1})
    ]


def test_a_saga_is_shown_with_its_times_and_when_it_is_due(run: Run) -> None:
    (waits,) = waiting_saga("granted", decision="granted")["waits"]
    act = {"outcome": "done", "position": 0, "at": "2026-11-24T10:00:05+00:00"}
    step = {"name": "pay", "session": "sessions/a", "outcome": "done", "done": act, "undone": None}
    shown = waiting_saga() | {
        "started": "2026-11-24T10:00:00+00:00",
        "due": "2999-01-01T00:00:00+00:00",
        "ended": None,
        "steps": [step],
        "waits": [waits | {"at": "2026-11-24T10:00:09+00:00"}],
    }
    with running_app(lambda _: (200, shown)) as app:
        status, out, _ = run("--url", app.url, "sagas", "o/1")

    lines = {line.split()[0]: line for line in out.splitlines() if line.split()}
    assert status == 0
    assert "ago, 2026-11-24 10:00:00 UTC" in lines["started"]
    assert re.search(r"in \d+ days, 2999-01-01 00:00:00 UTC", lines["due"])
    assert "ago, 2026-11-24 10:00:05 UTC" in lines["pay"]
    assert "ago, 2026-11-24 10:00:09 UTC" in lines["approval"]


@pytest.mark.parametrize(
    ("words", "said"), [((), "No sagas yet."), (("--state", "running"), "There is no such saga.")]
)
def test_sagas_are_listed_page_by_page_with_what_they_cost(
    words: tuple[str, ...], said: str, run: Run
) -> None:
    changed = "2026-11-24T10:00:00+00:00"
    running = {"kind": "k", "state": "running", "started": None, "changed": changed}
    late = {"waits": "approval", "overdue": True}
    listed = [{"key": "o-0", **running}, {"key": "o-1", **running, **late}]

    def respond(asked: Asked) -> tuple[int, Any]:
        is_second = "after=o-0" in asked.path
        page = {"sagas": listed[is_second:][:1], "after": None if is_second else "o-0"}
        return 200, page | {"request_units": 3.0}

    with running_app(respond) as app:
        status, out, error = run("--url", app.url, "sagas", *words)
    empty: dict[str, Any] = {"sagas": [], "after": None, "request_units": 0.0}
    with running_app(lambda _: (200, empty)) as app:
        nothing = run("--url", app.url, "sagas", *words)

    first, second = out.splitlines()[1:]
    assert (status, first.split()[:3]) == (0, ["o-0", "k", "running"])
    assert second.split()[:5] == ["o-1", "k", "running,", "overdue", "approval"]
    assert "ago, 2026-11-24 10:00:00 UTC" in second
    assert "6.0 request units" in error
    assert said in nothing[1]
