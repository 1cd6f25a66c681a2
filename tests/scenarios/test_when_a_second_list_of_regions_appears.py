"""An app or a producer names other regions than those that the journal is kept for."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from functions.triggers.receive import receive_message
from shared.domain.errors import Misconfigured
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.build import build
from shared.engine.publish.publish import Producer
from shared.engine.publish.readiness import LOOK_AGAIN_SECONDS, LOOK_SECONDS_MAX, Readiness
from shared.testkit.injected_faults import CALL_ERRORS, CallFault
from tests.deliveries import delivery_of
from tests.world import REGIONS, World, message

OPTIONS = ProducerOptions("bank")
DRAFT = Draft("m-0", "account.add", b'{"amount":1}')
THREE = (*REGIONS, "north")
BOTH_NAMED = "LOCKSTEP_REGIONS names east, but the journal is kept for east, west"


def producer_of(world: World, regions: Sequence[str], replaced: Sequence[str] = ()) -> Producer:
    """A process that is configured with these regions."""
    delivery = replace(world.delivery(), regions=tuple(regions))
    return Producer(world.journal, delivery, replaced)


@pytest.fixture
async def world() -> World:
    """A journal that is kept for two regions."""
    made = World()
    await made.producer().publish("acc-1", [DRAFT], OPTIONS)
    return made


async def test_a_producer_that_names_one_region_is_refused_with_both_lists(world: World) -> None:
    producer = producer_of(world, ["east"])

    for _ in range(2):
        with pytest.raises(Misconfigured, match=BOTH_NAMED):
            await producer.publish("acc-7", [DRAFT], OPTIONS)
        with pytest.raises(Misconfigured, match=BOTH_NAMED):
            await producer.send([message(0)])

    assert await world.journal.ledger("acc-7", "bank") is None
    assert [m.session for m in world.bus.messages("east", "in")] == ["acc-1"]


async def test_an_app_that_names_one_region_leaves_its_messages_in_the_queue(world: World) -> None:
    east = world.east.worker
    producer = producer_of(world, ["east"])
    narrow = build(
        world.journal,
        producer.delivery,
        world.clock,
        east.owner,
        world.handlers,
        producer,
        east.policy,
    )

    with pytest.raises(Misconfigured, match=BOTH_NAMED):
        await receive_message(narrow, delivery_of(message(0)))
    await receive_message(world.east, delivery_of(message(0)))

    assert world.amounts() == [1]


async def test_the_order_of_the_regions_may_differ(world: World) -> None:
    await producer_of(world, REGIONS[::-1]).publish("acc-7", [DRAFT], OPTIONS)

    assert [m.session for m in world.bus.messages("west", "in")] == ["acc-1", "acc-7"]


async def test_a_list_is_changed_by_naming_the_one_it_replaces(world: World) -> None:
    with pytest.raises(Misconfigured, match=r"names east, west, north, but .* for east, west"):
        await producer_of(world, THREE, ["east"]).publish("acc-7", [DRAFT], OPTIONS)

    await producer_of(world, THREE, REGIONS).publish("acc-7", [DRAFT], OPTIONS)
    await producer_of(world, THREE, REGIONS).publish("acc-8", [DRAFT], OPTIONS)
    with pytest.raises(Misconfigured, match=r"names east, west, but .* east, west, north"):
        await world.producer().publish("acc-7", [DRAFT], OPTIONS)

    assert [m.session for m in world.bus.messages("north", "in")] == ["acc-7", "acc-8"]


async def test_two_lists_at_the_same_time_agree_on_one() -> None:
    world = World()
    first, second = producer_of(world, REGIONS), producer_of(world, THREE)
    stored = world.journal.regions

    async def nothing_yet() -> None:
        return None

    world.journal.regions = nothing_yet  # type: ignore[method-assign]
    await first.readiness.require_regions()
    await second.readiness.require_regions()
    world.journal.regions = stored  # type: ignore[method-assign]

    await first.publish("acc-7", [DRAFT], OPTIONS)
    with pytest.raises(Misconfigured):
        await second.publish("acc-7", [DRAFT], OPTIONS)


async def test_it_costs_one_read_for_a_process(world: World) -> None:
    producer = world.producer()
    world.journal.fault_plan.calls.clear()

    async with asyncio.TaskGroup() as group:
        for n in range(20):
            group.create_task(producer.publish(f"s-{n}", [DRAFT], OPTIONS))

    assert world.journal.fault_plan.calls["regions"] == 1


@pytest.mark.parametrize("fault", CALL_ERRORS)
async def test_a_store_that_fails_refuses_nobody_and_is_asked_again_later(
    world: World, fault: CallFault
) -> None:
    producer = producer_of(world, ["east"])
    world.journal.fault_plan.plan("regions", fault)

    await producer.publish("acc-7", [DRAFT], OPTIONS)
    await producer.publish("acc-8", [DRAFT], OPTIONS)
    world.clock.seconds += LOOK_AGAIN_SECONDS

    with pytest.raises(Misconfigured):
        await producer.publish("acc-9", [DRAFT], OPTIONS)


async def test_a_store_that_is_silent_delays_nobody_for_long(world: World) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    readiness = Readiness(world.journal, world.delivery())
    world.journal.regions = never  # type: ignore[method-assign]

    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(2 * LOOK_SECONDS_MAX):
        await asyncio.gather(*(readiness.require_regions() for _ in range(20)))

    assert asyncio.get_running_loop().time() - began >= LOOK_SECONDS_MAX
    assert not readiness.is_agreed
