"""Every interleaving of two workers over the store: one effect, one set of outputs."""

from itertools import product

import pytest

from shared.engine.consume.outcomes import AlreadyDone, Processed
from tests.schedules import race
from tests.world import World, message

# The first calls of both are interleaved in every way; one that has ended lets the other go.
STEPS = 11


@pytest.mark.slow
async def test_every_schedule_gives_one_effect_and_the_same_outputs() -> None:
    bill = message(1, kind="account.bill")
    bodies = set()
    for schedule in product((0, 1), repeat=STEPS):
        world = World()
        await world.east.consumer.consume(message(0))

        outcomes = await race(world, schedule, [bill], [bill])

        assert {type(outcome) for outcome in outcomes} == {AlreadyDone, Processed}
        assert world.amounts() == [1, 2]
        assert len(set(world.outputs("east"))) == len(set(world.outputs("west"))) == 1
        bodies |= set(world.outputs("east")) | set(world.outputs("west"))

    assert len(bodies) == 1


@pytest.mark.slow
async def test_the_first_message_ever_begins_the_session_once() -> None:
    first = message(0, kind="account.bill")
    for schedule in product((0, 1), repeat=STEPS):
        world = World()

        await race(world, schedule, [first], [first])

        assert world.amounts() == [1]
        assert [entry["id"] for entry in world.entries()] == ["000000000000"]


@pytest.mark.slow
async def test_two_messages_of_one_session_are_applied_in_order_by_any_two_workers() -> None:
    bills = [message(n, kind="account.bill") for n in range(2)]
    for schedule in product((0, 1), repeat=STEPS):
        world = World()

        await race(world, schedule, bills, bills)

        assert world.amounts() == [1, 2]
        assert [entry["id"] for entry in world.entries()] == ["000000000000", "000000000001"]
        for region in ("east", "west"):
            assert len(set(world.outputs(region))) == 2
