"""The rescue triggers never raise for what is out of reach: the feed would forget it."""

import logging

import pytest

from functions.rescue import rescue_documents, sweep_journal
from shared.adapters.injected_faults import CallFault
from tests.world import LAG_SECONDS, World, message


async def owing_world() -> World:
    """A world in which the east missed an output."""
    world = World()
    world.bus.dark.add("east")
    await world.west.consumer.consume(message(0, kind="account.bill"))
    world.bus.dark.clear()
    world.clock.seconds += LAG_SECONDS
    return world


async def test_the_feed_pays_what_its_documents_owe() -> None:
    world = await owing_world()

    await rescue_documents(world.east.rescuer, world.journal.partitions["acc-7"].values())

    assert world.outputs("east") == world.outputs("west") != []


async def test_the_feed_survives_a_store_out_of_reach(caplog: pytest.LogCaptureFixture) -> None:
    world = await owing_world()
    world.journal.fault_plan.plan("owing_of", CallFault.REFUSED)

    with caplog.at_level(logging.WARNING):
        await rescue_documents(world.east.rescuer, world.journal.partitions["acc-7"].values())

    assert "left 1 sessions to the sweep" in caplog.text
    assert world.outputs("east") == []


async def test_the_sweep_survives_a_store_out_of_reach(caplog: pytest.LogCaptureFixture) -> None:
    world = await owing_world()
    world.journal.fault_plan.plan("sessions.owing", CallFault.REFUSED)

    with caplog.at_level(logging.WARNING):
        await sweep_journal(world.east.rescuer)
    await sweep_journal(world.east.rescuer)

    assert "postponed" in caplog.text
    assert world.outputs("east") == world.outputs("west")
