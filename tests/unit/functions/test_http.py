"""The HTTP triggers: what a caller sends, and the status and problem it gets."""

import json
from typing import Any

import azure.functions as func
import pytest

from functions.operate import list_faults, report_health, resolve_fault, show_session
from shared.adapters.injected_faults import CallFault
from shared.domain.journal import Resolution
from tests.world import World, message


@pytest.fixture
def world() -> World:
    return World()


def document(response: func.HttpResponse) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(response.get_body())
    return parsed


async def test_health_tells_whether_the_journal_can_be_read(world: World) -> None:
    world.journal.fault_plan.plan("head", CallFault.REFUSED)

    assert (await report_health(world.east)).status_code == 503
    assert (await report_health(world.east)).status_code == 200


async def test_a_session_shows_its_head_and_an_unknown_one_is_not_found(world: World) -> None:
    await world.east.consumer.consume(message(0))

    shown = await show_session(world.east, "acc-7")
    unknown = await show_session(world.east, "acc-8")

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

    (listed,) = document(await list_faults(world.east))["faults"]
    assert (listed["session"], listed["parked"]) == ("acc-7", 1)
    assert listed["fault"]["reason"] == "ArithmeticError: cannot burn 1"

    done = await resolve_fault(
        world.east, resolution(action="edit", who="Ada", why="a typo", body={"amount": -1})
    )
    resolved = document(done)["entry"]
    assert resolved["resolution"] == {"action": "edit", "who": "Ada", "why": "a typo"}
    # Not only the answer says so, but the journal.
    stored = await world.journal.entry("acc-7", resolved["position"])
    assert stored is not None
    assert stored.resolution == Resolution("edit", "Ada", "a typo")
    assert document(await list_faults(world.east))["faults"] == []
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
    assert (await resolve_fault(world.east, resolution(**asked))).status_code == status
