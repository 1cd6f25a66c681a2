"""Active-active: each session has a region of its own that leads, or both regions are as quick."""

import asyncio
from collections import Counter

import pytest

from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.engine.dispatch.deliver import Delivery
from shared.testkit.memory_bus import MemoryBus
from shared.testkit.memory_store import VirtualClock
from tests.world import DELAY_SECONDS, QUEUES, REGIONS, World, message

SESSIONS = [f"acc-{n}" for n in range(200)]


@pytest.fixture
def delivery() -> Delivery:
    clock = VirtualClock()
    return Delivery(MemoryBus(clock), clock, REGIONS, DELAY_SECONDS, QUEUES, affinity=True)


def test_spread_sessions_are_led_by_both_regions_about_equally(delivery: Delivery) -> None:
    led = Counter(delivery.preferred_region(session) for session in SESSIONS)

    assert set(led) == set(REGIONS)
    assert min(led.values()) > len(SESSIONS) // 3


def test_who_leads_a_session_is_the_same_in_every_process(delivery: Delivery) -> None:
    again = Delivery(delivery.bus, delivery.clock, REGIONS, DELAY_SECONDS, QUEUES, affinity=True)

    assert [again.preferred_region(s) for s in SESSIONS] == [
        delivery.preferred_region(s) for s in SESSIONS
    ]
    assert (delivery.preferred_region("acc-0"), delivery.preferred_region("acc-2")) == (
        "east",
        "west",
    )


async def test_only_the_copy_of_the_region_that_does_not_lead_is_delayed(
    delivery: Delivery,
) -> None:
    messages = [message(0, session=session) for session in ("acc-0", "acc-2")]

    await delivery.deliver(delivery.address_all("in", messages))

    assert isinstance(delivery.bus, MemoryBus)
    delays = {
        (region, queued.message.session): queued.visible_at
        for region in REGIONS
        for queued in delivery.bus.queues[region, "in"]
    }
    assert delays == {
        ("east", "acc-0"): 0.0,
        ("east", "acc-2"): DELAY_SECONDS,
        ("west", "acc-0"): DELAY_SECONDS,
        ("west", "acc-2"): 0.0,
    }


async def test_both_regions_at_once_apply_everything_once_and_in_order(world: World) -> None:
    bills = [message(n, kind="account.bill") for n in range(20)]

    async def work(region: str) -> list[type]:
        worker = world.worker(region)
        return [type(await worker.consumer.consume(bill)) for bill in bills]

    east, west = await asyncio.gather(work("east"), work("west"))

    assert set(east) | set(west) <= {Processed, AlreadyDone}
    assert [{e, w} for e, w in zip(east, west, strict=True)] == [{Processed, AlreadyDone}] * 20
    assert world.amounts() == list(range(1, 21))
    assert first_copies(world, "east") == first_copies(world, "west")


def first_copies(world: World, region: str) -> list[Message]:
    """The outputs of a region, each once, in the order in which they came."""
    found = {m.id: m for m in world.bus.messages(region, "out")}
    assert all(found[m.id] == m for m in world.bus.messages(region, "out"))
    return list(found.values())
