"""A hundred copies of one message and more of another, over both regions, all at the same time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from shared.domain.message import Message
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Claimed,
    Conflicting,
    Outcome,
    Parked,
    Processed,
)
from tests.business import OrderedClock, Outside, payment, swept, world_of
from tests.crashes import sent
from tests.world import REGIONS, World, message

TIME = "2026-05-28T20:26:40Z"
WORKERS = 10


def plain(of: Message) -> Message:
    """The message without its number."""
    return replace(of, number=None, time=TIME)


def form(of: str) -> Callable[[Message], Message]:
    """With or without a number."""
    return plain if of == "un-numbered" else lambda m: m


async def flood(world: World, *flows: tuple[Message, int]) -> list[Outcome]:
    """Every copy at once, each at one of many workers of both regions."""
    workers = [world.worker(REGIONS[n % 2]) for n in range(WORKERS)]
    copies = [arriving for arriving, count in flows for _ in range(count)]
    # Copies of different messages meet at every worker.
    mixed = sorted(enumerate(copies), key=lambda pair: pair[0] * 7 % len(copies))
    return await asyncio.gather(
        *(workers[n % WORKERS].consumer.consume(arriving) for n, (_, arriving) in enumerate(mixed))
    )


async def healthy(*arrivals: Message) -> World:
    """What should have happened."""
    world = world_of(Outside(), OrderedClock())
    for arriving in arrivals:
        await world.east.consumer.consume(arriving)
    return world


def bodies(world: World, region: str) -> list[bytes]:
    """What a region was sent, each once, whatever the order."""
    return sorted(body for _, body in sent(world, region))


@pytest.mark.parametrize("numbering", ["numbered", "un-numbered"])
@pytest.mark.parametrize("kind", ["account.bill", "account.pay"])
async def test_there_are_exactly_two_effects(kind: str, numbering: str) -> None:
    one, other = (form(numbering)(message(n, kind=kind)) for n in (0, 1))
    outside = Outside()
    world = world_of(outside, OrderedClock())

    outcomes = await flood(world, (one, 100), (other, 120))
    await swept(world)

    assert sorted(world.amounts()) == [1, 2]
    assert len(outside.asked) == (2 if kind == "account.pay" else 0)
    expected = [await healthy(one, other), await healthy(other, one)]
    assert bodies(world, "east") in [bodies(quiet, "east") for quiet in expected]
    assert bodies(world, "east") == bodies(world, "west")
    assert {type(outcome) for outcome in outcomes} <= {Processed, AlreadyDone, Parked, Claimed}
    assert await world.pending() == []


async def test_numbered_ones_are_done_in_the_order_of_their_numbers() -> None:
    world = world_of(Outside(), OrderedClock())
    flows = [(message(n, kind="account.bill"), 40) for n in (4, 2, 0, 3, 1)]

    await flood(world, *flows)

    quiet = await healthy(*(message(n, kind="account.bill") for n in range(5)))
    assert world.amounts() == [1, 2, 3, 4, 5]
    for region in REGIONS:
        assert sent(world, region) == quiet.outputs(region)


@pytest.mark.parametrize("numbering", ["numbered", "un-numbered"])
async def test_of_two_contents_under_one_name_one_stands_and_all_others_are_told(
    numbering: str,
) -> None:
    one = form(numbering)(message(0, kind="account.bill"))
    two = replace(one, body=b'{"amount":99}')
    world = world_of(Outside(), OrderedClock())

    outcomes = await flood(world, (one, 50), (two, 50))

    assert world.amounts() in ([1], [99])
    assert sum(isinstance(outcome, Processed) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, Conflicting) for outcome in outcomes) == 50
    assert len(sent(world, "east")) == len(sent(world, "west")) == 1


async def test_two_first_ever_messages_of_two_groups_are_both_done() -> None:
    one = message(0, kind="account.bill", group="one")
    other = message(0, 7, kind="account.bill", group="other")
    world = world_of(Outside(), OrderedClock())

    outcomes = await flood(world, (one, 50), (other, 50))

    assert sorted(world.amounts()) == [1, 7]
    assert sum(isinstance(outcome, Processed) for outcome in outcomes) == 2
    expected = [await healthy(one, other), await healthy(other, one)]
    assert sent(world, "east") in [quiet.outputs("east") for quiet in expected]
    assert sent(world, "east") == sent(world, "west")


async def test_two_first_ever_messages_without_numbers_are_both_done() -> None:
    one, other = plain(payment(0)), plain(message(1, kind="account.bill"))
    outside = Outside()
    world = world_of(outside, OrderedClock())

    await flood(world, (one, 50), (other, 50))
    await swept(world)

    assert sorted(world.amounts()) == [1, 2]
    assert len(outside.asked) == 1
    expected = [await healthy(one, other), await healthy(other, one)]
    assert sent(world, "east") in [quiet.outputs("east") for quiet in expected]
