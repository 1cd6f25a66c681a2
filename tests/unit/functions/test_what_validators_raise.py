"""A team's validators and plans raise what they like: who asked by HTTP hears it by name, as 400.

Nobody gets an answer without a word, or none, and nothing is recorded or sent.
"""

import json
from decimal import Decimal
from typing import Any

import azure.functions as func
import pytest
from pydantic import BaseModel, field_validator

from functions.http import error_queue, ingest, sagas
from shared.domain import wire
from shared.domain.handler import Context, Handlers
from shared.domain.message import Message
from shared.domain.saga.plan import Command, Plan, SagaState, Stage, Step
from shared.domain.saga.record import SagaKinds
from shared.domain.standstill import StandstillKind
from tests import saga_stage
from tests.asking import ask, document
from tests.strange import RAISED, STRANGE, fail
from tests.unit.functions.test_ingest import post
from tests.unit.functions.test_sagas_http import Hub
from tests.world import Account, World

handlers = Handlers()
kinds = SagaKinds(handlers)


class Asked(BaseModel):
    """A body whose validator raises what it is told to."""

    wanted: str = ""
    price: str = "1"

    @field_validator("wanted")
    @classmethod
    def check(cls, wanted: str) -> str:
        """Fail where it is asked for."""
        if wanted in RAISED:
            fail(wanted)
        return wanted

    @field_validator("price")
    @classmethod
    def require_price(cls, price: str) -> str:
        """Require a number."""
        return str(Decimal(price))


@handlers.register("ask", state=Account, body=Asked)
def keep(account: Account, body: Asked, _: Context) -> Account:
    """Fail where the body asks for it in another way."""
    if body.wanted.startswith("run "):
        fail(body.wanted.removeprefix("run "))
    return account


@kinds.register("trip.ask", body=Asked)
def plan(body: Asked, _: Context) -> Plan:
    """Fail where the body asks for it, or have one step, which may fail."""
    if body.wanted.startswith("plan "):
        fail(body.wanted.removeprefix("plan "))
    wanted = body.wanted.removeprefix("step ")
    step = Step(name="one", do=Command(session="acc-7", type="ask", body={"wanted": wanted}))
    return Plan(parts=(Stage(steps=(step,)),))


@pytest.fixture
def world() -> World:
    return World(handlers=handlers)


async def start(world: World, body: str) -> func.HttpResponse:
    request = ask(body, route={"key": "o-1"}, query={"type": "trip.ask"})
    return await sagas.start_saga_over_http(world.east, request, Hub())


async def send_again(world: World, body: str) -> func.HttpResponse:
    stray = Message("m", "acc-7", "ask", body.encode())
    properties = wire.to_properties(stray)
    report = await world.east.rejecter.reject("acc-7", properties, stray.body, "no number")
    queued = (await world.east.errors.browse("acc-7", limit=9)).reports[-1]
    said = {"session": "acc-7", "report": report.id, "sequence": queued.queued.sequence}
    decision = json.dumps(said | {"who": "Ada", "why": "mended"})
    return await error_queue.repeat(world.east, ask(decision))


async def accept(world: World, body: str) -> func.HttpResponse:
    return await ingest.accept(world.east, post(body.encode(), type="ask"))


@STRANGE
@pytest.mark.parametrize("request_with", [accept, start, send_again])
async def test_when_a_validator_raises_it_the_answer_is_400_and_names_it(
    world: World, raised: str, request_with: Any
) -> None:
    response = await request_with(world, Asked.model_construct(wanted=raised).model_dump_json())

    problem = document(response)
    assert (response.status_code, problem["type"]) == (400, "InvalidBody")
    name = RAISED[raised][1].partition(":")[0]
    assert ("wanted: Value error" if name == "ValueError" else name) in problem["detail"] or (
        "UnicodeEncodeError" in problem["detail"]
    )
    assert [one.type for one in world.bus.messages("east", "in")] == []
    assert world.journal.newest("saga:o-1") is None


async def test_the_answer_names_the_validator_where_pydantic_knows_no_field(world: World) -> None:
    response = await accept(world, '{"price": "12,5x"}')

    assert response.status_code == 400
    detail = document(response)["detail"]
    assert "the validator require_price raised InvalidOperation: " in detail
    # A caller is no member of the team: files and lines are told where a person looks.
    assert ".py" not in detail


@STRANGE
async def test_when_a_plan_raises_it_the_answer_says_so(world: World, raised: str) -> None:
    response = await start(world, Asked(wanted=f"plan {raised}").model_dump_json())

    assert response.status_code == 409
    problem = document(response)
    assert problem["type"] == "SagaRefused"
    assert problem["detail"] == RAISED[raised][1]


@STRANGE
async def test_when_a_step_raises_it_the_saga_ends_and_both_are_listed(raised: str) -> None:
    stage = saga_stage.Stage(handlers)
    body = Asked(wanted=f"step run {raised}").model_dump_json()

    assert (await stage.book().start("o-1", "trip.ask", body.encode())).is_accepted
    walk = await stage.walk("o-1")

    # Its session is halted, and until a person has decided there, nobody knows whether it will act.
    assert await walk.run() is SagaState.COMPENSATION_FAILED
    assert stage.record("o-1").state is SagaState.COMPENSATION_FAILED
    listed = (await stage.worker().standstills.find(limit=9)).standstills
    assert {one.session: one.kind for one in listed} == {
        "acc-7": StandstillKind.HALT,
        "saga:o-1": StandstillKind.ALERT,
    }
    (cause,) = [one.cause for one in listed if one.kind is StandstillKind.HALT]
    assert cause == RAISED[raised][1]
