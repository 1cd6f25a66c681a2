"""A region misses hundreds of outputs of one busy session, and comes back."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from shared.domain.outbox import PendingOutbox
from shared.engine.dispatch.deliver import PAUSE_SECONDS_MAX
from shared.engine.dispatch.dispatch import CATCH_UP_MAX, OTHERS_MAX
from tests.crashes import sent
from tests.world import LAG_SECONDS, World, message

MANY = 2 * CATCH_UP_MAX + 10


async def bill(world: World, sequence: int) -> None:
    """One more bill in the east, a while after the last."""
    world.clock.seconds += LAG_SECONDS
    await world.east.consumer.consume(message(sequence, kind="account.bill"))


@pytest.fixture
def listed(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many unpaid outboxes each look returned."""
    counts: list[int] = []
    list_pending = world.journal.pending

    async def counted(*arguments: Any, **options: Any) -> Sequence[PendingOutbox]:
        found = await list_pending(*arguments, **options)
        counts.append(len(found))
        return found

    monkeypatch.setattr(world.journal, "pending", counted)
    return counts


async def test_the_cost_of_a_message_does_not_grow_with_what_the_region_lacks(
    world: World, listed: list[int]
) -> None:
    world.bus.unavailable = {"west"}
    for sequence in range(MANY):
        await bill(world, sequence)

    # Only a probe looks what the region misses, and then at no more than it could deliver.
    assert len(listed) <= MANY * LAG_SECONDS / PAUSE_SECONDS_MAX + 5
    assert max(listed) <= OTHERS_MAX + 1
    assert max(len(json.dumps(entry)) for entry in world.entries()) < 3_000
    assert len(world.outputs("east")) == MANY


async def test_new_outputs_do_not_overtake_the_missed_ones_when_it_is_back(world: World) -> None:
    world.bus.unavailable = {"west"}
    for sequence in range(MANY):
        await bill(world, sequence)
    world.bus.unavailable = set()

    for sequence in range(MANY, MANY + 30):
        await bill(world, sequence)
        if sequence == MANY + 10:
            await world.west.recovery.sweep()

    assert sent(world, "west") == sent(world, "east")
    assert len(sent(world, "east")) == MANY + 30
    assert await world.pending() == []


async def test_one_sweep_of_the_region_pays_all_of_it_in_order(world: World) -> None:
    world.bus.unavailable = {"west"}
    for sequence in range(MANY):
        await bill(world, sequence)
    world.bus.unavailable = set()
    world.clock.seconds += LAG_SECONDS

    await world.west.recovery.sweep()
    world.clock.seconds += PAUSE_SECONDS_MAX
    await bill(world, MANY)

    assert world.outputs("west") == world.outputs("east")
    assert len(world.outputs("west")) == MANY + 1


async def test_both_regions_missing_much_stops_the_session_until_they_have_it(
    world: World,
) -> None:
    for region in ("east", "west"):
        world.bus.unavailable = {region}
        world.clock.seconds += PAUSE_SECONDS_MAX
        for sequence in range(30) if region == "east" else range(30, 60):
            await bill(world, sequence)
    world.bus.unavailable = set()
    for worker in (world.east, world.west):
        world.clock.seconds += LAG_SECONDS
        await worker.recovery.sweep()
    world.clock.seconds += PAUSE_SECONDS_MAX

    await bill(world, 60)

    assert sent(world, "west") == sent(world, "east")
    assert len(sent(world, "east")) == 61
