"""The secondary region's copies come when the work is done: they write nothing and read little."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone
from shared.testkit.regions import consume_together
from tests.business import Outside, world_of
from tests.world import World, message

TIME = "2026-05-28T20:26:40Z"
KINDS = ["account.add", "account.bill", "account.pay"]
MANY = 400


async def done(*arrivals: Message) -> World:
    """The leading region has done the work, and nothing was counted yet."""
    world = world_of(Outside())
    for arriving in arrivals:
        await world.east.consumer.consume(arriving)
    world.journal.fault_plan.calls.clear()
    return world


async def cost_of_copies(world: World, copies: Sequence[Message]) -> dict[str, int]:
    """The store calls that one worker of the other region makes for them."""
    worker = world.worker("west")
    for copy in copies:
        assert await worker.consumer.consume(copy) == AlreadyDone()
    return dict(world.journal.fault_plan.calls)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_copy_costs_one_point_read(kind: str) -> None:
    world = await done(message(0, kind=kind))

    assert await cost_of_copies(world, [message(0, kind=kind)]) == {"processed": 1}


@pytest.mark.parametrize("kind", KINDS)
async def test_many_copies_cost_a_read_for_every_forty(kind: str) -> None:
    bills = [message(n, kind=kind) for n in range(MANY)]
    world = await done(*bills)

    assert await cost_of_copies(world, bills) == {"processed": 1 + MANY // 40}


async def test_copies_that_come_twice_cost_nothing_more() -> None:
    bills = [message(n) for n in range(40)]
    world = await done(*bills)

    assert await cost_of_copies(world, [*bills, *reversed(bills)]) == {"processed": 2}


async def test_copies_that_follow_closely_cost_at_most_a_read_each() -> None:
    world = await done()
    worker = world.worker("west")
    for n in range(40):
        await world.east.consumer.consume(message(n))
        world.journal.fault_plan.calls.clear()

        assert await worker.consumer.consume(message(n)) == AlreadyDone()

        assert sum(world.journal.fault_plan.calls.values()) <= 1


async def test_copies_of_interleaved_groups_cost_few_reads() -> None:
    flow = [message(n // 3, group=f"g{n % 3}") for n in range(MANY)]
    world = await done(*flow)

    calls = await cost_of_copies(world, flow)

    assert "append" not in calls
    assert sum(calls.values()) <= 0.1 * MANY


async def test_copies_of_batches_cost_few_reads() -> None:
    world = world_of(Outside())
    flow = [message(n) for n in range(MANY)]
    for start in range(0, MANY, 10):
        await consume_together(world.east, flow[start : start + 10])
    assert len(world.entries()) == MANY // 10
    world.journal.fault_plan.calls.clear()

    calls = await cost_of_copies(world, flow)

    assert "append" not in calls
    assert sum(calls.values()) <= 0.1 * MANY


@pytest.mark.parametrize("kind", KINDS)
async def test_a_copy_without_a_number_costs_one_point_read_and_no_write(kind: str) -> None:
    plain = [replace(message(n, kind=kind), number=None, time=TIME) for n in range(40)]
    world = await done(*plain)

    calls = await cost_of_copies(world, plain)

    assert calls.pop("marker") == 40
    # Whether it is claimed only the head says, and only a handler that calls the outside claims.
    assert calls == ({"head": 40} if kind == "account.pay" else {})


async def test_the_leading_region_does_not_look_before_it_writes() -> None:
    world = await done(message(0))

    for n in range(1, 11):
        await world.east.consumer.consume(message(n))

    assert dict(world.journal.fault_plan.calls) == {"append": 10}


async def test_a_handler_that_calls_the_outside_costs_two_writes() -> None:
    world = await done(message(0))

    for n in range(1, 11):
        await world.east.consumer.consume(message(n, kind="account.pay"))

    calls = world.journal.fault_plan.calls
    assert (calls["append"], calls["replace"], calls["stored_entry"]) == (10, 10, 10)
