"""The recovery triggers never raise for what is out of reach: the feed would forget it."""

import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import azure.functions as func
import pytest

from functions.triggers.recover import build_recovery_blueprint, recover_documents, sweep_journal
from shared.domain.errors import Misconfigured
from shared.engine.build import Services, build
from shared.engine.publish.publish import Producer
from shared.testkit.injected_faults import CallFault
from tests.unit.functions.test_sagas_http import Hub
from tests.world import LAG_SECONDS, POLICY, REGIONS, World, message

type Trigger = Callable[..., Coroutine[None, None, None]]


async def pending_world() -> World:
    """A world in which the east missed an output."""
    world = World()
    with world.without("east"):
        await world.west.consumer.consume(message(0, kind="account.bill"))
    world.clock.seconds += LAG_SECONDS
    return world


async def test_the_feed_delivers_what_its_documents_say_is_pending() -> None:
    world = await pending_world()

    await recover_documents(world.east.recovery, world.journal.partitions["acc-7"].values())

    assert world.outputs("east") == world.outputs("west") != []


async def test_the_feed_survives_a_store_out_of_reach(caplog: pytest.LogCaptureFixture) -> None:
    world = await pending_world()
    world.journal.fault_plan.plan("pending", CallFault.REFUSED)

    with caplog.at_level(logging.WARNING):
        await recover_documents(world.east.recovery, world.journal.partitions["acc-7"].values())

    assert "left 1 sessions to the sweep" in caplog.text
    assert world.outputs("east") == []


@pytest.mark.parametrize("call", ["has_work", "sessions"])
async def test_the_sweep_survives_a_store_out_of_reach(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = await pending_world()
    world.journal.fault_plan.plan(call, CallFault.REFUSED)

    with caplog.at_level(logging.WARNING):
        await sweep_journal(world.east.recovery)
    await sweep_journal(world.east.recovery)

    assert "postponed" in caplog.text
    assert world.outputs("east") == world.outputs("west")


def triggers(services: Services) -> Mapping[str, Trigger]:
    """The functions as the host calls them, by name."""
    app = func.FunctionApp()
    app.register_functions(build_recovery_blueprint(services))
    registered: list[Any] = app.get_functions()
    functions = {one.get_function_name(): one.get_user_function() for one in registered}
    sweep = inspect.unwrap(functions["sweep"])
    if "client" in inspect.signature(sweep).parameters:
        # The binding makes the client of a task hub of what the host hands over.
        return functions | {"sweep": partial(sweep, client=Hub())}
    return functions


async def test_the_feed_of_the_ledgers_brings_copies_before_any_sweep() -> None:
    outside, inside = World(), World()
    with outside.without("west"):
        await outside.producer().send([message(0), message(1)])
    app = replace(inside.west, external_ledgers=outside.west)
    feed = list(outside.journal.partitions["acc-7"].values())

    await triggers(app)["recover_ledgers"](feed)

    assert outside.clock.seconds == LAG_SECONDS
    assert [one.body for one in outside.bus.messages("west", "in")] == [
        b'{"amount":1}',
        b'{"amount":2}',
    ]
    assert await outside.pending() == []


def test_without_a_container_for_ledgers_there_is_no_feed_of_it() -> None:
    assert "recover_ledgers" not in triggers(World().east)


def app_of(world: World, *regions: str) -> Services:
    """The east's app where its settings name these regions."""
    east, delivery = world.east.worker, replace(world.delivery(), regions=regions)
    producer = Producer(world.journal, delivery)
    return build(
        world.journal, delivery, world.clock, east.owner, east.handlers, producer, east.policy
    )


async def world_with_work() -> World:
    """A journal kept for two regions, with something to do for each trigger."""
    world = await pending_world()
    await world.producer().readiness.require_regions()
    for sequence in range(3):
        await world.east.consumer.consume(message(sequence, session="acc-1"))
    world.clock.seconds += POLICY.retention_seconds
    return world


def everything(world: World) -> object:
    """All that the triggers may change."""
    return deepcopy((world.journal.partitions, world.bus.queues))


@pytest.mark.parametrize("trigger", ["recover", "sweep", "compact"])
async def test_no_trigger_works_before_the_list_of_regions_is_agreed(trigger: str) -> None:
    world = await world_with_work()
    # The timers do not look at what they are handed.
    handed = list(world.journal.partitions["acc-7"].values())
    before = everything(world)

    for regions in (("east",), (*REGIONS, "north")):
        for _ in range(2):
            with pytest.raises(Misconfigured, match="the journal is kept for east, west"):
                await triggers(app_of(world, *regions))[trigger](handed)
    assert everything(world) == before

    await triggers(app_of(world, *REGIONS))[trigger](handed)
    assert everything(world) != before
