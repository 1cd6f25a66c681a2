"""A program asks an app by the addresses of its regions: one id, whoever answers."""

import socket
from typing import Any

import pytest

from lockstep import (
    Answered,
    Asker,
    ContentConflict,
    InvalidMessage,
    InvalidOptions,
    LockstepError,
    MessageFaulted,
    OutcomeUnknown,
    SessionMessage,
    TooOld,
    Unavailable,
)
from shared.domain.errors import NotAuthenticated
from shared.publishing import asking
from tests.unit.cli.fake_app import Asked, running_app

MESSAGE = SessionMessage("order-1", "account.add", '{"amount":5}', time="2026-01-01T00:00:00Z")
ANSWER = {"session": "a/b", "message": "order-1", "answer": {"n": 1}, "position": 3, "version": 3}
UNKNOWN = 503, {"type": "OutcomeUnknown", "status": 503, "detail": "no answer in 10 s"}
AWAY = 503, {"type": "Unavailable", "status": 503, "detail": "the journal is away"}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PAUSE_SECONDS", 0.01)


def closed() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


async def ask(*urls: str, seconds: float = 60.0, **shown: Any) -> Answered:
    async with Asker(urls, timeout_seconds=seconds, **shown) as asker:
        return await asker.ask("a/b", MESSAGE)


async def test_when_a_region_is_gone_or_says_nothing_the_next_is_asked_under_the_same_id() -> None:
    replies = iter([UNKNOWN, (202, {"see": "sessions/a"}), AWAY, (200, ANSWER)])
    with running_app(lambda _: next(replies)) as app:
        answered = await ask(closed(), app.url, key="secret")

    assert answered == Answered(3, 3, {"n": 1})
    assert [one.idempotency_key for one in app.asked] == ["order-1"] * 4
    assert {one.key for one in app.asked} == {"secret"}
    assert [one.body for one in app.asked] == [{"amount": 5}] * 4
    assert "session=a/b" in app.asked[0].path.replace("%2F", "/")
    assert "time=2026-01-01" in app.asked[0].path


@pytest.mark.parametrize(
    ("kind", "status"),
    [(MessageFaulted, 422), (ContentConflict, 409), (TooOld, 410), (NotAuthenticated, 401)],
)
async def test_what_an_app_refuses_is_raised_by_its_name(
    kind: type[LockstepError], status: int
) -> None:
    problem = {"type": kind.__name__, "status": status, "detail": "because"}
    with running_app(lambda _: (status, problem)) as app, pytest.raises(kind, match="because"):
        await ask(app.url, closed())

    assert len(app.asked) == 1


async def test_a_key_that_the_host_refuses_is_named() -> None:
    with running_app(lambda _: (401, "")) as app, pytest.raises(NotAuthenticated, match="the key"):
        await ask(app.url)


async def test_when_nobody_could_be_asked_nothing_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than all of it may take, so that nobody is asked once more.
    monkeypatch.setattr(asking, "PAUSE_SECONDS", 100.0)

    with pytest.raises(Unavailable, match="cannot be reached"):
        await ask(closed(), closed())


@pytest.mark.parametrize("silent", [True, False])
async def test_when_time_is_over_after_an_answer_was_lost_nobody_knows(silent: bool) -> None:
    def respond(_: Asked) -> tuple[int, Any]:
        return (200, None) if silent else UNKNOWN

    with running_app(respond) as app, pytest.raises(OutcomeUnknown):
        await ask(app.url, closed(), seconds=0.3)


async def test_a_token_may_be_fetched_for_each_request() -> None:
    fetched = []

    async def fetch() -> str:
        fetched.append(1)
        return "token"

    replies = iter([AWAY, (200, ANSWER)])
    with running_app(lambda _: next(replies)) as app:
        await ask(app.url, token=fetch)

    assert len(fetched) == 2


async def test_what_makes_no_sense_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(InvalidOptions, match="addresses"):
        Asker(["app.example"])
    with pytest.raises(InvalidOptions, match="async with"):
        await Asker(["http://app.example"]).ask("a", MESSAGE)
    replying = SessionMessage("m", "t", "{}", reply_to="answers")
    async with Asker(["http://app.example"]) as asker:
        with pytest.raises(InvalidMessage, match="reply_to"):
            await asker.ask("a", replying)
        with pytest.raises(InvalidMessage, match="session"):
            await asker.ask("", MESSAGE)
