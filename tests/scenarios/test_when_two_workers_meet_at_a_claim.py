"""Every interleaving of two workers over the store, where a handler calls the outside."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import pytest

from shared.domain.message import Message
from shared.engine.consume.outcomes import Outcome, Processed
from shared.testkit.injected_faults import CallFault
from tests.business import LEASE_OVER, Outside, dies, payment, swept, world_of
from tests.crashes import sent
from tests.schedules import Schedule, race
from tests.world import REGIONS, World, message

# The calls that matter are the first ones: claim, read, end, and what the other does meanwhile.
STEPS = 7
SCHEDULES: Sequence[Schedule] = list(product((0, 1), repeat=STEPS))

PAY = payment(0)
BILL = message(1, kind="account.bill")
TIME = "2026-05-28T20:26:40Z"


def unnumbered(arriving: Message) -> Message:
    """The message as a sender without numbers sends it."""
    return replace(arriving, number=None, time=TIME)


async def healthy(*arrivals: Message) -> World:
    """What should have happened."""
    world = world_of(Outside())
    for arriving in arrivals:
        await world.east.consumer.consume(arriving)
    return world


def assert_same(world: World, quiet: World, case: object) -> None:
    """Both have the same effects, and the same outputs in both regions, byte for byte."""
    assert world.amounts() == quiet.amounts(), case
    for region in REGIONS:
        assert sent(world, region) == quiet.outputs(region) != [], (region, case)


def processed(outcomes: Sequence[Outcome]) -> int:
    """CallFault many workers said that they did it."""
    return sum(isinstance(outcome, Processed) for outcome in outcomes)


@pytest.mark.parametrize("form", [lambda m: m, unnumbered], ids=["numbered", "un-numbered"])
async def test_both_have_the_same_message(form: Callable[[Message], Message]) -> None:
    quiet = await healthy(form(PAY))
    for schedule in SCHEDULES:
        outside = Outside()
        world = world_of(outside)

        outcomes = await race(world, schedule, [form(PAY)], [form(PAY)])

        assert processed(outcomes) == 1, schedule
        assert len(outside.asked) == 1, schedule
        assert_same(world, quiet, schedule)


@pytest.mark.parametrize("form", [lambda m: m, unnumbered], ids=["numbered", "un-numbered"])
async def test_both_take_over_from_a_dead_owner(form: Callable[[Message], Message]) -> None:
    quiet = await healthy(form(PAY))
    for schedule in SCHEDULES:
        outside = Outside()
        world = world_of(outside)
        await dies(world, form(PAY), "append", CallFault.KILLED_AFTER)
        world.clock.seconds += LEASE_OVER

        outcomes = await race(world, schedule, [form(PAY)], [form(PAY)])

        assert processed(outcomes) == 1, schedule
        assert len(outside.asked) == 1, schedule
        assert_same(world, quiet, schedule)


@pytest.mark.parametrize("arrivals", [([PAY], [BILL]), ([BILL], [PAY])], ids=["east", "west"])
async def test_one_has_the_next_pure_message(arrivals: tuple[list[Message], list[Message]]) -> None:
    quiet = await healthy(PAY, BILL)
    for schedule in SCHEDULES:
        outside = Outside()
        world = world_of(outside)

        await race(world, schedule, *arrivals)
        await swept(world)

        assert len(outside.asked) == 1, schedule
        assert_same(world, quiet, schedule)
        assert "parked" not in world.entries()[-1], schedule


async def test_both_have_both() -> None:
    quiet = await healthy(PAY, BILL)
    for schedule in SCHEDULES:
        outside = Outside()
        world = world_of(outside)

        await race(world, schedule, [PAY, BILL], [PAY, BILL])

        assert len(outside.asked) == 1, schedule
        assert_same(world, quiet, schedule)


async def test_each_has_an_unnumbered_one_and_neither_is_lost() -> None:
    first, second = unnumbered(PAY), unnumbered(BILL)
    keys: set[str] = set()
    for schedule in SCHEDULES:
        outside = Outside()
        world = world_of(outside)

        await race(world, schedule, [first], [second])
        await swept(world)

        assert sorted(world.amounts()) == [1, 2], schedule
        assert len(sent(world, "east")) == 2, schedule
        assert sent(world, "east") == sent(world, "west"), schedule
        keys |= outside.keys[1]
        assert "parked" not in world.entries()[-1], schedule
    assert len(keys) == 1
