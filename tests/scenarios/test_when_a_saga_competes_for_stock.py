"""Orders want more of a product than there is: some are confirmed, the others leave no trace."""

import asyncio
from collections import Counter

import pytest

from functions.handlers import orders
from shared.domain.saga.plan import SagaState
from tests.saga_stage import Stage, order, stocked
from tests.sizes import IS_PROOF

ORDERS = 1_000 if IS_PROOF else 200
EACH = 3


async def test_of_two_orders_of_60_for_100_one_is_confirmed_and_40_are_left() -> None:
    for first, second in (("east", "west"), ("west", "east")):
        stage = await stocked(Stage(orders.handlers), ["p"], 100)
        ends = await asyncio.gather(
            stage.run("o-1", order(("p", 60)), first), stage.run("o-2", order(("p", 60)), second)
        )

        assert sorted(ends) == [SagaState.COMPENSATED, SagaState.COMPLETED]
        assert stage.state("stock:p") == {
            "received": 100,
            "left": 40,
            "shipped": 60,
            "reserved": {},
        }
        (denied,) = [k for k in ("o-1", "o-2") if stage.record(k).state is SagaState.COMPENSATED]
        assert stage.record(denied).reason == "reserve.p: 40 left, 60 wanted"
        assert stage.state(f"order:{denied}")["status"] == "cancelled"
        assert stage.state("account:ada") == {"balance": 990, "paid": 10}


async def test_every_interleaving_of_two_reservations_keeps_the_stock() -> None:
    for turns in range(2**5):
        stage = await stocked(Stage(orders.handlers), ["p"], 100)
        for key in ("o-1", "o-2"):
            await stage.start(key, order(("p", 60)))
        going = [(await stage.walk(key)).steps() for key in ("o-1", "o-2")]
        for turn in range(5):
            await anext(going[turns >> turn & 1], None)
        for one in going:
            async for _ in one:
                pass

        ends = Counter(stage.record(key).state for key in ("o-1", "o-2"))
        assert ends == {SagaState.COMPLETED: 1, SagaState.COMPENSATED: 1}
        assert stage.state("stock:p") == {
            "received": 100,
            "left": 40,
            "shipped": 60,
            "reserved": {},
        }


@pytest.mark.slow
async def test_many_orders_on_one_product_lose_and_invent_nothing() -> None:
    stage = await stocked(Stage(orders.handlers), ["p"], ORDERS, money=10 * ORDERS)
    for n in range(ORDERS):
        await stage.start(f"o-{n}", order(("p", EACH), amount=10))
    walks = [await stage.walk(f"o-{n}", ("east", "west")[n % 2]) for n in range(ORDERS)]

    # Side by side: each makes a step in turn, so that all reservations are open at once.
    going = [walk.steps() for walk in walks]
    while going:
        going = [one for one in going if await anext(one, None) is not None]

    ends = Counter(walk.told[-1] for walk in walks)
    assert ends == {
        SagaState.COMPLETED: ORDERS // EACH,
        SagaState.COMPENSATED: ORDERS - ORDERS // EACH,
    }
    left = ORDERS - ORDERS // EACH * EACH
    shipped = ORDERS - left
    expected = {"received": ORDERS, "left": left, "shipped": shipped, "reserved": {}}
    assert stage.state("stock:p") == expected
    assert stage.state("account:ada")["paid"] == 10 * ends[SagaState.COMPLETED]
    assert set(Counter(stage.taken()).values()) == {1}
