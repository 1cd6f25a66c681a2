"""The rescue triggers never raise for what is out of reach: the feed would forget it."""

import logging

import pytest

from functions.rescue import recover_documents, sweep_journal
from shared.adapters.injected_faults import CallFault
from tests.world import LAG_SECONDS, World, message


async def owing_world() -> World:
    """A world in which the east missed an output."""
    world = World()
    world.bus.unavailable.add("east")
    await world.west.consumer.consume(message(0, kind="account.bill"))
    world.bus.unavailable.clear()
    world.clock.seconds += LAG_SECONDS
    return world


async def test_the_feed_pays_what_its_documents_owe() -> None:
    world = await owing_world()

    await recover_documents(world.east.recovery, world.journal.partitions["acc-7"].values())

    assert world.outputs("east") == world.outputs("west") != []


async def test_the_feed_survives_a_store_out_of_reach(caplog: pytest.LogCaptureFixture) -> None:
    world = await owing_world()
    world.journal.fault_plan.plan("pending", CallFault.REFUSED)

    with caplog.at_level(logging.WARNING):
        await recover_documents(world.east.recovery, world.journal.partitions["acc-7"].values())

    assert "left 1 sessions to the sweep" in caplog.text
    assert world.outputs("east") == []


@pytest.mark.parametrize("call", ["has_work", "sessions.delivery"])
async def test_the_sweep_survives_a_store_out_of_reach(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = await owing_world()
    world.journal.fault_plan.plan(call, CallFault.REFUSED)

    with caplog.at_level(logging.WARNING):
        await sweep_journal(world.east.recovery)
    await sweep_journal(world.east.recovery)

    assert "postponed" in caplog.text
    assert world.outputs("east") == world.outputs("west")
