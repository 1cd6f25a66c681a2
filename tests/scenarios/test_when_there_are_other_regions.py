"""There are three regions, or both lead: each message has one effect, whoever is first."""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from shared.domain.message import weighted_region
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.engine.dispatch.deliver import Delivery
from shared.testkit.memory_bus import MemoryBus
from shared.testkit.memory_store import VirtualClock
from tests.world import DELAY_SECONDS, LAG_SECONDS, QUEUES, REGIONS, World, message, take

# When there is a third region, nothing in the engine changes.

THREE = ("east", "west", "north")
BILLS = [message(n, kind="account.bill") for n in range(4)]


class ThreeRegions(World):
    """Three namespaces over one journal."""

    def delivery(self) -> Delivery:
        return Delivery(self.bus, self.clock, THREE, DELAY_SECONDS, QUEUES)

    async def sweep(self) -> None:
        """Every region sweeps once, after the lag."""
        self.clock.seconds += LAG_SECONDS
        for region in THREE:
            await self.worker(region).recovery.sweep()


@pytest.mark.parametrize("order", list(permutations(THREE)))
async def test_each_message_has_one_effect_whoever_is_first(order: tuple[str, ...]) -> None:
    world = ThreeRegions()

    for bill in BILLS:
        first, *others = [await world.worker(region).consumer.consume(bill) for region in order]
        assert isinstance(first, Processed)
        assert others == [AlreadyDone(), AlreadyDone()]

    assert world.amounts() == [1, 2, 3, 4]
    assert world.outputs("east") == world.outputs("west") == world.outputs("north")
    assert len(world.outputs("north")) == len(BILLS)


async def test_a_copy_goes_to_every_region_and_the_preferred_one_sees_it_first() -> None:
    world = ThreeRegions()

    await world.producer().send(BILLS)

    visible = {
        region: {copy.visible_at for copy in world.bus.queues[region, "in"]} for region in THREE
    }
    assert visible == {"east": {0.0}, "west": {DELAY_SECONDS}, "north": {DELAY_SECONDS}}


@pytest.mark.parametrize("missing", THREE)
async def test_a_region_that_was_unavailable_gets_everything_in_order(missing: str) -> None:
    quiet, world = ThreeRegions(), ThreeRegions()
    with world.without(missing):
        working = next(region for region in THREE if region != missing)
        for bill in BILLS:
            await quiet.east.consumer.consume(bill)
            await world.worker(working).consumer.consume(bill)
        assert world.outputs(missing) == []

    await world.sweep()

    for region in THREE:
        assert world.outputs(region) == quiet.outputs("east")
    assert world.amounts() == [1, 2, 3, 4]


@pytest.mark.parametrize("survivor", THREE)
async def test_one_region_alone_goes_on_and_the_others_follow(survivor: str) -> None:
    world = ThreeRegions()
    lost = set(THREE) - {survivor}
    world.bus.unavailable |= lost

    published = await world.producer().send(BILLS)
    assert {type(one) for one in await take(world.worker(survivor), *BILLS)} == {Processed}

    assert (published.sent, published.pending) == (4, 8)
    world.bus.unavailable.clear()
    # What one region acknowledges is young again: the next one finds it a sweep later.
    for _ in lost:
        await world.sweep()
    for region in THREE:
        assert world.bus.messages(region, "in") == BILLS
        assert world.outputs(region) == world.outputs(survivor)


# When both regions lead, each session has a region of its own, or both are as quick.

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
    again = replace(delivery)

    leading = [delivery.preferred_region(session) for session in SESSIONS]
    assert [again.preferred_region(session) for session in SESSIONS] == leading
    assert (leading[0], leading[2]) == ("east", "west")


MANY = [f"acc-{n}" for n in range(4_000)]


def led_by(**weights: float) -> list[str]:
    return [weighted_region(session, weights) for session in MANY]


def test_weighted_sessions_are_led_by_each_region_as_often_as_its_weight_says() -> None:
    led = Counter(led_by(east=3, west=1, north=0))

    assert set(led) == {"east", "west"}
    assert led["east"] / len(MANY) == pytest.approx(0.75, abs=0.03)


def test_a_changed_weight_moves_sessions_to_or_from_its_region_only_and_few() -> None:
    before, after = led_by(east=3, west=1, north=2), led_by(east=3, west=2, north=2)
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]

    assert {new for _, new in moved} == {"west"}
    # From a sixth of all to two sevenths: no more than that difference has moved.
    assert len(moved) / len(MANY) == pytest.approx(2 / 7 - 1 / 6, abs=0.03)
    # Neither does a region that is added move sessions between the others.
    added = led_by(east=3, west=1, north=2, south=1)
    assert all(new in (old, "south") for old, new in zip(before, added, strict=True))
    assert led_by(north=2, west=1, east=3) == before


def test_who_leads_by_weights_is_the_same_in_every_process(delivery: Delivery) -> None:
    weighted = replace(delivery, weights={"east": 3.0, "west": 1.0})
    leading = [weighted.preferred_region(f"acc-{n}") for n in range(8)]

    assert leading == [weighted_region(f"acc-{n}", {"west": 1.0, "east": 3.0}) for n in range(8)]
    assert leading[:5] == ["west", "west", "east", "east", "east"]


async def test_only_the_copy_of_a_region_that_does_not_lead_is_delayed(delivery: Delivery) -> None:
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
