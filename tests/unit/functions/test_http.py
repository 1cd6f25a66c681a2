"""The HTTP triggers: what a caller sends, and the status and problem it gets."""

import json
from typing import Any

import azure.functions as func
import pytest

from functions.ingest import accept
from functions.operate import list_faults, report_health, resolve_fault, show_session
from shared.adapters.memory import Mishap
from tests.world import World, message


@pytest.fixture
def world() -> World:
    return World()


def post(
    body: bytes = b'{"amount":5}', *, key: str | None = "order-1", kind: str = "account.add"
) -> func.HttpRequest:
    return func.HttpRequest(
        "POST",
        "http://127.0.0.1/api/sessions/acc-7/messages",
        headers={"Idempotency-Key": key} if key else {},
        params={"type": kind},
        route_params={"session": "acc-7"},
        body=body,
    )


def document(response: func.HttpResponse) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(response.get_body())
    return parsed


async def test_an_accepted_message_is_in_both_queues(world: World) -> None:
    response = await accept(world.services(), post())

    assert response.status_code == 202
    assert document(response) == {"id": "order-1", "sequence": 0, "see": "sessions/acc-7"}
    (east,), (west,) = world.bus.messages("east", "in"), world.bus.messages("west", "in")
    assert east == west
    assert east.body == b'{"amount":5}'


async def test_a_repeated_request_keeps_its_number_and_has_one_effect(world: World) -> None:
    for _ in range(2):
        assert document(await accept(world.services(), post()))["sequence"] == 0
    for sent in world.bus.messages("east", "in"):
        await world.east.consumer.consume(sent)

    assert world.amounts() == [5]


async def test_the_same_key_with_other_content_is_a_conflict(world: World) -> None:
    await accept(world.services(), post())

    response = await accept(world.services(), post(b'{"amount":6}'))

    assert response.status_code == 409
    assert document(response)["type"] == "ContentConflict"
    assert len(world.bus.messages("east", "in")) == 1


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (post(key=None), "InvalidMessage"),
        (post(key="x" * 129), "InvalidMessage"),
        (post(b""), "InvalidMessage"),
        (post(b"not json"), "InvalidBody"),
        (post(b'{"amount":"much"}'), "InvalidBody"),
        (post(kind="account.melt"), "UnknownType"),
        (post(kind=""), "InvalidMessage"),
    ],
)
async def test_a_bad_request_is_named_and_nothing_is_sent(
    world: World, request_: func.HttpRequest, problem: str
) -> None:
    response = await accept(world.services(), request_)

    assert response.status_code == 400
    assert response.mimetype == "application/problem+json"
    assert document(response)["type"] == problem
    assert world.bus.messages("east", "in") == []


async def test_a_store_out_of_reach_asks_the_caller_to_come_back(world: World) -> None:
    world.journal.mishaps.plan("ledger", Mishap.REFUSED)

    response = await accept(world.services(), post())

    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"


async def test_health_tells_whether_the_journal_can_be_read(world: World) -> None:
    world.journal.mishaps.plan("head", Mishap.REFUSED)

    assert (await report_health(world.services())).status_code == 503
    assert (await report_health(world.services())).status_code == 200


async def test_a_session_shows_its_head_and_an_unknown_one_is_not_found(world: World) -> None:
    await world.east.consumer.consume(message(0))

    shown = await show_session(world.services(), "acc-7")
    unknown = await show_session(world.services(), "acc-8")

    assert document(shown)["head"]["state"] == {"amounts": [1]}
    assert unknown.status_code == 404


def resolution(**asked: object) -> func.HttpRequest:
    return func.HttpRequest(
        "POST",
        "http://127.0.0.1/api/sessions/acc-7/resolution",
        route_params={"session": "acc-7"},
        body=json.dumps(asked).encode(),
    )


async def test_a_fault_is_listed_with_its_reason_until_it_is_resolved(world: World) -> None:
    await world.east.consumer.consume(message(0, kind="account.burn"))
    await world.east.consumer.consume(message(1))

    (listed,) = document(await list_faults(world.services()))["faults"]
    assert (listed["session"], listed["parked"]) == ("acc-7", 1)
    assert listed["fault"]["reason"] == "ArithmeticError: cannot burn 1"

    done = await resolve_fault(
        world.services(), resolution(action="edit", who="Ada", why="a typo", body={"amount": -1})
    )
    assert document(done)["entry"]["resolution"] == {
        "action": "edit",
        "who": "Ada",
        "why": "a typo",
    }
    assert document(await list_faults(world.services()))["faults"] == []
    assert world.amounts() == [-1, 2]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"action": "skip", "who": "Ada", "why": "x"}, 409),
        ({"action": "burn", "who": "Ada", "why": "x"}, 400),
        ({"action": "skip", "who": "", "why": "x"}, 400),
        ({"action": "skip", "who": "Ada", "why": "x", "body": {}}, 400),
        ({"action": "edit", "who": "Ada", "why": "x"}, 400),
        ({"action": "skip", "who": "Ada", "why": "x", "when": "now"}, 400),
    ],
)
async def test_a_resolution_that_makes_no_sense_is_refused(
    world: World, asked: dict[str, object], status: int
) -> None:
    assert (await resolve_fault(world.services(), resolution(**asked))).status_code == status
