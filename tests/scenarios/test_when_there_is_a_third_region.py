"""A third region joins: the engine knows any number of them, and nothing in it changes."""

from itertools import permutations

import pytest

from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.engine.dispatch.deliver import Delivery
from tests.world import DELAY_SECONDS, LAG_SECONDS, QUEUES, World, message

REGIONS = ("east", "west", "north")
BILLS = [message(n, kind="account.bill") for n in range(4)]


class ThreeRegions(World):
    """Three namespaces and a worker in each region, over one journal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.by_region: dict[str, Services] = {
            "east": self.east,
            "west": self.west,
            "north": self.worker("north"),
        }

    def delivery(self) -> Delivery:
        return Delivery(self.bus, self.clock, REGIONS, DELAY_SECONDS, QUEUES)

    async def sweep(self) -> None:
        """Every region sweeps once, after the lag."""
        self.clock.seconds += LAG_SECONDS
        for worker in self.by_region.values():
            await worker.recovery.sweep()


@pytest.mark.parametrize("order", list(permutations(REGIONS)))
async def test_each_message_has_one_effect_whichever_region_is_first(
    order: tuple[str, ...],
) -> None:
    world = ThreeRegions()

    for bill in BILLS:
        first, *others = [await world.by_region[region].consumer.consume(bill) for region in order]
        assert isinstance(first, Processed)
        assert others == [AlreadyDone(), AlreadyDone()]

    assert world.amounts() == [1, 2, 3, 4]
    assert world.outputs("east") == world.outputs("west") == world.outputs("north")
    assert len(world.outputs("north")) == len(BILLS)


async def test_a_copy_goes_to_every_region_and_the_preferred_one_sees_it_first() -> None:
    world = ThreeRegions()

    await world.producer().send(BILLS)

    visible = {
        region: {copy.visible_at for copy in world.bus.queues[region, "in"]} for region in REGIONS
    }
    assert visible == {"east": {0.0}, "west": {DELAY_SECONDS}, "north": {DELAY_SECONDS}}


@pytest.mark.parametrize("missing", REGIONS)
async def test_a_region_that_was_unavailable_gets_everything_in_order(missing: str) -> None:
    quiet, world = ThreeRegions(), ThreeRegions()
    world.bus.unavailable.add(missing)
    working = next(region for region in REGIONS if region != missing)
    for bill in BILLS:
        await quiet.east.consumer.consume(bill)
        await world.by_region[working].consumer.consume(bill)
    assert world.outputs(missing) == []

    world.bus.unavailable.clear()
    await world.sweep()

    for region in REGIONS:
        assert world.outputs(region) == quiet.outputs("east")
    assert world.amounts() == [1, 2, 3, 4]


@pytest.mark.parametrize("survivor", REGIONS)
async def test_one_region_alone_goes_on_and_the_others_follow(survivor: str) -> None:
    world = ThreeRegions()
    lost = set(REGIONS) - {survivor}
    world.bus.unavailable |= lost

    published = await world.producer().send(BILLS)
    for bill in BILLS:
        assert isinstance(await world.by_region[survivor].consumer.consume(bill), Processed)

    assert (published.sent, published.pending) == (4, 8)
    world.bus.unavailable.clear()
    # What one region acknowledges is young again: the next one finds it a sweep later.
    for _ in lost:
        await world.sweep()
    for region in REGIONS:
        assert world.bus.messages(region, "in") == BILLS
        assert world.outputs(region) == world.outputs(survivor)
