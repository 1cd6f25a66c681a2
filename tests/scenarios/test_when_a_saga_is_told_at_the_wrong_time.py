"""Events and requests come early, late, twice or in contradiction; documents stay small."""

import asyncio

import pytest

from functions.handlers import orders
from shared.domain.errors import UnknownType
from shared.domain.saga.plan import SagaState
from shared.engine.sagas.sagas import SagaResponse
from tests.saga_stage import REGIONS, Stage, order, stocked

WAITING = order(("p", 60), approval=3600)


@pytest.fixture
async def stage() -> Stage:
    return await stocked(Stage(orders.handlers), ["p"], 100)


def is_untouched(stage: Stage) -> bool:
    """Whether nothing was sold."""
    return stage.state("stock:p") == {"received": 100, "left": 100, "shipped": 0, "reserved": {}}


async def test_two_first_requests_for_a_product_make_one_stock(stage: Stage) -> None:
    told = [f'{{"quantity":{n}}}' for n in (100, 50)]
    await asyncio.gather(*(stage.tell("stock:new", "stock.receive", body) for body in told))
    await stage.tell("stock:new", "stock.receive", told[0])

    assert stage.state("stock:new")["received"] == 150


async def test_two_first_orders_for_a_product_nobody_has_are_both_denied(stage: Stage) -> None:
    ends = await asyncio.gather(
        *(stage.run(f"o-{n}", order(("none", 1)), REGIONS[n]) for n in range(2))
    )

    assert ends == [SagaState.COMPENSATED, SagaState.COMPENSATED]
    assert stage.state("stock:none")["left"] == 0


@pytest.mark.parametrize(
    ("event", "end"), [("approved", SagaState.COMPLETED), ("rejected", SagaState.COMPENSATED)]
)
async def test_an_event_before_its_saga_is_kept(stage: Stage, event: str, end: SagaState) -> None:
    assert await stage.book("west").add_event("o-1", event) == SagaResponse(is_accepted=True)
    assert stage.record("o-1").state is SagaState.AWAITED

    assert await stage.run("o-1", WAITING) is end


async def test_approved_after_cancelled_is_refused(stage: Stage) -> None:
    await stage.start("o-1", WAITING)
    assert await stage.book().cancel("o-1") == SagaResponse(is_accepted=True)
    late = await stage.book("west").add_event("o-1", "approved")

    assert late == SagaResponse(is_accepted=False, reason="approval was decided: cancelled")
    assert await (await stage.walk("o-1")).run() is SagaState.COMPENSATED
    assert stage.state("order:o-1")["status"] == "cancelled"
    later = await stage.book().add_event("o-1", "approved")
    assert not later.is_accepted
    assert is_untouched(stage)


async def test_cancelled_after_approved_turns_back_before_anything_is_paid(stage: Stage) -> None:
    await stage.start("o-1", WAITING)
    await stage.book().add_event("o-1", "approved")

    assert await stage.book("west").cancel("o-1") == SagaResponse(is_accepted=True)

    assert await (await stage.walk("o-1")).run() is SagaState.COMPENSATED
    assert stage.record("o-1").reason == "charge: voided by its sender: cancelled"
    assert stage.state("account:ada") == {"balance": 1000, "paid": 0}
    assert is_untouched(stage)


async def test_cancelled_beyond_the_final_stage_is_refused(stage: Stage) -> None:
    await stage.start("o-1", order(("p", 60)))
    walk = await stage.walk("o-1")
    going = walk.steps()
    while not stage.state("account:ada")["paid"]:
        await anext(going)

    told = await stage.book("west").cancel("o-1")

    assert told == SagaResponse(is_accepted=False, reason="step 'charge' is done: no way back")
    assert await walk.run() is SagaState.COMPLETED


@pytest.mark.parametrize("event", ["rejected", "approved"])
async def test_any_event_after_completed_is_refused(stage: Stage, event: str) -> None:
    await stage.book().add_event("o-1", "approved")
    await stage.run("o-1", WAITING)
    before = stage.state("order:o-1"), stage.state("stock:p")

    told = await stage.book().add_event("o-1", "rejected")
    cancelled = await stage.book().cancel("o-1")

    assert told == SagaResponse(is_accepted=False, reason="the saga is completed")
    assert cancelled == SagaResponse(is_accepted=False, reason="the saga is completed")
    assert (stage.state("order:o-1"), stage.state("stock:p")) == before


async def test_the_first_of_two_contradicting_events_decides(stage: Stage) -> None:
    await stage.start("o-1", WAITING)
    assert await stage.book("east").add_event("o-1", "rejected") == SagaResponse(is_accepted=True)
    late = await stage.book("west").add_event("o-1", "approved")

    assert late == SagaResponse(is_accepted=False, reason="approval was decided: rejected")
    assert await (await stage.walk("o-1")).run() is SagaState.COMPENSATED


async def test_an_event_that_no_wait_knows_is_refused(stage: Stage) -> None:
    await stage.start("o-1", WAITING)

    told = await stage.book().add_event("o-1", "vanished")

    assert told == SagaResponse(is_accepted=False, reason="the saga does not wait for 'vanished'")


async def test_a_saga_that_never_started_cannot_be_cancelled(stage: Stage) -> None:
    await stage.book().add_event("o-1", "approved")

    assert await stage.book().cancel("o-1") == SagaResponse(
        is_accepted=False, reason="it has not started"
    )
    assert await stage.book().cancel("o-2") == SagaResponse(
        is_accepted=False, reason="it has not started"
    )


async def test_documents_do_not_grow_with_what_is_over(stage: Stage) -> None:
    for n in range(8):
        await stage.run(f"o-{n}", order(("p", 2)))
        await stage.tell("stock:p", "stock.receive", '{"quantity":2}', name=str(n))
        for event in range(40):
            await stage.book().add_event("noise", f"event-{event}")

    assert stage.state("stock:p")["reserved"] == {}
    assert len(stage.record("noise").events) == 20
    head = stage.journal.newest("stock:p")
    assert head is not None
    assert len(str(head)) < 1500


@pytest.mark.parametrize("kind", ["order.lose", "order.submit", "saga.end"])
async def test_a_start_of_no_sagas_kind_is_refused_by_name(stage: Stage, kind: str) -> None:
    with pytest.raises(UnknownType, match=kind):
        await stage.book().start("o-1", kind, b"{}")

    assert "saga:o-1" not in stage.entries()
