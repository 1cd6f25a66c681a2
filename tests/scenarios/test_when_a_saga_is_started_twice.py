"""Both regions start a saga, by request or by message: it begins once, with one content."""

import asyncio

import pytest

from functions.handlers import orders
from shared.domain.errors import InvalidBody
from shared.domain.journal import Status
from shared.domain.message import Message, Number
from shared.domain.saga.plan import SagaState
from shared.engine.sagas.sagas import SagaResponse
from tests.saga_stage import REGIONS, Stage, order, stocked

PLACED = order(("p", 60))
OTHER = order(("p", 61))


@pytest.fixture
async def stage() -> Stage:
    return await stocked(Stage(orders.handlers), ["p"], 100)


async def test_from_both_regions_at_once_it_starts_once(stage: Stage) -> None:
    told = await asyncio.gather(*(stage.start("o-1", PLACED, region) for region in REGIONS))

    assert told == [SagaResponse(is_accepted=True), SagaResponse(is_accepted=True)]
    assert stage.entries()["saga:o-1"] == 1
    walks = [await stage.walk("o-1", region) for region in REGIONS]
    ends = await asyncio.gather(*(walk.run() for walk in walks))
    assert ends == [SagaState.COMPLETED, SagaState.COMPLETED]
    assert stage.state("stock:p")["shipped"] == 60


async def test_other_content_under_its_key_is_refused_even_after_its_end(stage: Stage) -> None:
    await stage.start("o-1", PLACED, "east")
    for _ in range(2):
        told = await stage.start("o-1", OTHER, "west")
        assert told == SagaResponse(is_accepted=False, reason="it was started with other content")
        if stage.record("o-1").state is SagaState.RUNNING:
            await (await stage.walk("o-1")).run()

    assert stage.record("o-1").state is SagaState.COMPLETED
    assert stage.state("stock:p")["shipped"] == 60


async def test_the_same_content_long_after_changes_nothing(stage: Stage) -> None:
    await stage.run("o-1", PLACED)
    before = stage.record("o-1")
    await stage.clock.sleep(30 * 24 * 3600)

    assert await stage.start("o-1", PLACED) == SagaResponse(is_accepted=True)
    assert stage.record("o-1") == before


async def test_a_numbered_message_starts_it_and_a_request_finds_it_started(stage: Stage) -> None:
    at = "2026-05-28T20:26:40+00:00"
    message = Message(
        "m-1", "saga:o-1", "order.place", PLACED.encode(), Number("shop", 0, 0), time=at
    )

    for region in REGIONS:
        await stage.worker(region).consumer.consume(message)
    told = await stage.start("o-1", PLACED)

    assert told == SagaResponse(is_accepted=True)
    assert stage.record("o-1").at == at
    assert await (await stage.walk("o-1")).run() is SagaState.COMPLETED


async def test_what_cannot_be_planned_starts_nothing_and_can_be_corrected(stage: Stage) -> None:
    with pytest.raises(InvalidBody, match="lines"):
        await stage.start("o-1", order())

    assert "saga:o-1" not in stage.entries()
    assert await stage.run("o-1", PLACED) is SagaState.COMPLETED


async def test_it_is_not_started_in_a_session_that_is_no_sagas(stage: Stage) -> None:
    await stage.tell("o-1", "order.place", PLACED)

    head = stage.journal.newest("o-1")
    assert head is not None
    assert (head.status, head.halt) == (Status.FAULTED, None)
    assert head.reason == "type 'order.place' is for saga:*, not for session 'o-1'"
