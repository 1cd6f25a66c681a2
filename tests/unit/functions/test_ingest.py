"""HTTP ingest: what a caller sends, what it gets, and what is in the queues afterwards."""

from dataclasses import replace

import azure.functions as func
import pytest

from functions.http.ingest import accept
from functions.http.requests import read_wait
from functions.http.responses import respond_problem
from shared.domain.errors import Throttled
from shared.domain.message import BODY_BYTES_MAX
from shared.testkit.injected_faults import CallFault
from tests.asking import ask, document
from tests.world import QUEUES, World


def post(
    body: bytes = b'{"amount":5}',
    *,
    key: str | None = "order-1",
    session: str = "acc-7",
    headers: dict[str, str] | None = None,
    **params: str,
) -> func.HttpRequest:
    named = {"Idempotency-Key": key} if key else {}
    asked = {"type": "account.add"} | params
    return ask(body, headers=named | (headers or {}), route={"session": session}, query=asked)


async def test_an_accepted_message_is_in_both_queues_and_says_where_to_look(world: World) -> None:
    response = await accept(world.worker("east"), post())

    assert response.status_code == 202
    assert document(response) == {
        "id": "order-1",
        "session": "acc-7",
        "sequence": 0,
        "see": "sessions/acc-7",
    }
    assert response.headers["Location"] == "/api/sessions/acc-7"
    (east,), (west,) = world.bus.messages("east", "in"), world.bus.messages("west", "in")
    assert east == west
    assert (east.body, east.type) == (b'{"amount":5}', "account.add")


async def test_the_same_key_with_other_content_is_a_conflict(world: World) -> None:
    await accept(world.worker("east"), post())

    response = await accept(world.worker("east"), post(b'{"amount":6}'))

    assert response.status_code == 409
    assert document(response)["type"] == "ContentConflict"
    assert [m.body for m in world.bus.messages("east", "in")] == [b'{"amount":5}']


@pytest.mark.parametrize("session", ["a/b\\c?d#e", "Zoë 日本", "s" * 128, "a_b"])
async def test_any_session_id_has_an_address(world: World, session: str) -> None:
    response = await accept(world.worker("east"), post(session=session))

    assert response.status_code == 202
    assert response.headers["Location"].isascii()
    assert "/" not in response.headers["Location"].removeprefix("/api/sessions/")
    (sent,) = world.bus.messages("east", "in")
    assert sent.session == session


@pytest.mark.parametrize("how", ["query", "header"])
async def test_the_senders_time_travels_with_the_message(world: World, how: str) -> None:
    time = "2013-01-01T05:17:00+00:00"
    request = post(time=time) if how == "query" else post(headers={"ce-time": time})

    await accept(world.worker("east"), request)

    (sent,) = world.bus.messages("east", "in")
    assert sent.time == time


@pytest.mark.parametrize("wait", [{}, {"Prefer": "wait=5"}], ids=["sent", "asked"])
async def test_what_is_over_the_limit_of_the_queues_is_too_large(wait: dict[str, str]) -> None:
    world = World(queues=replace(QUEUES, body_bytes_max=500))
    body = b'{"amount":1}'.ljust(500)

    refused = await accept(world.worker("east"), post(body + b" ", headers=wait))
    taken = await accept(world.worker("east"), post(body, headers=wait))

    assert refused.status_code == 413
    assert document(refused)["detail"] == "the body has 501 bytes, over 500"
    assert taken.status_code in (200, 202)


@pytest.mark.parametrize(
    ("request_", "status", "problem_type", "named"),
    [
        (post(key=None), 400, "InvalidMessage", "Idempotency-Key"),
        (post(key="x" * 129), 400, "InvalidMessage", "message id"),
        (post(session=""), 400, "InvalidMessage", "session"),
        (post(session="s" * 129), 400, "InvalidMessage", "session"),
        (post(b""), 400, "InvalidMessage", "no body"),
        (post(b"\xff"), 400, "InvalidMessage", "UTF-8"),
        (post(b"not json"), 400, "InvalidBody", "JSON"),
        (post(b'{"amount":"much"}'), 400, "InvalidBody", "amount: "),
        (post(b"[1]"), 400, "InvalidBody", "body: "),
        (post(type="account.melt"), 400, "UnknownType", "account.melt"),
        (post(type=""), 400, "InvalidMessage", "the type is empty"),
        (post(tpye="account.add"), 400, "InvalidMessage", "tpye"),
        (post(time="yesterday"), 400, "InvalidMessage", "ISO 8601"),
        (post(time="2013-01-01", headers={"ce-time": "2013"}), 400, "InvalidMessage", "twice"),
        (post(b'"' + b"x" * BODY_BYTES_MAX + b'"'), 413, "TooLarge", str(BODY_BYTES_MAX)),
    ],
)
async def test_a_bad_request_is_named_and_nothing_is_numbered_or_sent(
    world: World, request_: func.HttpRequest, status: int, problem_type: str, named: str
) -> None:
    response = await accept(world.worker("east"), request_)

    told = document(response)
    assert (response.status_code, told["status"], told["type"]) == (status, status, problem_type)
    assert named in told["detail"]
    assert response.mimetype == "application/problem+json"
    assert "Retry-After" not in response.headers
    assert world.bus.messages("east", "in") == []
    assert world.journal.fault_plan.calls == {}


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        (None, None),
        ("", None),
        ("wait=10", 10),
        ("Wait = 10", 10),
        ('wait="10"', 10),
        ("wait=60", 14),
        ("respond-async, wait=10; x=1", 10),
        ('foo="a, wait=3"; bar, WAIT=2', 2),
        ("return=minimal;wait=3", None),
        ("wait=2, wait=3", 2),
        # What makes no sense, or cannot be kept to, is ignored: RFC 7240 asks for that.
        ("wait", None),
        ("wait=", None),
        ("wait=0", None),
        ("wait=-1", None),
        ("wait=1.5", None),
        ("wait=soon, wait=3", None),
        ("wait=\u0663", None),
        ("wait=1234567890", None),
        ("waiting=3", None),
        ('"wait=3', None),
    ],
)
def test_the_time_to_wait_is_read_as_rfc_7240_says(prefer: str | None, seconds: int | None) -> None:
    assert read_wait(prefer, 14) == seconds


async def test_a_store_out_of_reach_asks_the_caller_to_come_back(world: World) -> None:
    world.journal.fault_plan.plan("ledger", CallFault.REFUSED)

    response = await accept(world.worker("east"), post())

    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    assert (await accept(world.worker("east"), post())).status_code == 202


async def test_both_regions_out_of_reach_keep_the_number_for_the_next_try(world: World) -> None:
    with world.without("east", "west"):
        response = await accept(world.worker("east"), post())
        assert (response.status_code, document(response)["type"]) == (503, "OutcomeUnknown")
        assert response.headers["Retry-After"] == "1"

    assert document(await accept(world.worker("east"), post(key="order-2")))["sequence"] == 1
    assert document(await accept(world.worker("east"), post()))["sequence"] == 0

    assert [m.id for m in world.bus.messages("east", "in")] == ["order-1", "order-2"]


@pytest.mark.parametrize(("wanted", "told"), [(None, "1"), (0.02, "1"), (1.2, "2"), (30.0, "30")])
def test_a_throttled_store_says_when_to_come_back_in_whole_seconds(
    wanted: float | None, told: str
) -> None:
    response = respond_problem(Throttled("too many requests", wanted))

    assert response.status_code == 429
    assert response.headers["Retry-After"] == told
