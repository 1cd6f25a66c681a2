"""A producer takes over while messages of an earlier one are parked: the higher level rules."""

from itertools import permutations

import pytest

from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone, Conflicting, Parked, Processed, Refused
from shared.testkit.injected_faults import CallFault
from tests.business import LEASE_OVER, Outside, dies, payment, processed_and_died, world_of
from tests.world import REGIONS, World, message


def first(sequence: int) -> Message:
    """A message of the producer that is fenced in the end."""
    return message(sequence, amount=100 + sequence)


def second(sequence: int) -> Message:
    """A message of the one that takes over: the same numbers, other content."""
    return message(sequence, amount=200 + sequence, level=1)


def parked(world: World) -> list[str]:
    """What is left beside the journal."""
    return [d["id"] for d in world.journal.partitions["acc-7"].values() if d["kind"] == "parked"]


def reasons(world: World) -> list[str]:
    """Why entries were refused."""
    return [e["reason"] for e in world.entries() if e["status"] == "skipped"]


async def test_the_parked_one_gives_way_by_name_when_its_number_comes_again(world: World) -> None:
    assert await world.east.consumer.consume(first(1)) == Parked()
    await world.east.consumer.consume(second(0))
    assert isinstance(await world.west.consumer.consume(first(2)), Refused)

    assert isinstance(await world.west.consumer.consume(second(1)), Processed)

    assert world.amounts() == [200, 201]
    assert parked(world) == []


async def test_the_parked_one_is_refused_by_name_when_its_turn_comes(world: World) -> None:
    for sequence in (1, 2):
        assert await world.east.consumer.consume(first(sequence)) == Parked()

    await world.east.consumer.consume(second(0))

    assert world.amounts() == [200]
    assert reasons(world) == ["a producer of owner level 1 rules"]
    assert isinstance(await world.west.consumer.consume(second(1)), Processed)
    assert isinstance(await world.west.consumer.consume(second(2)), Processed)
    assert world.amounts() == [200, 201, 202]
    assert parked(world) == []


async def test_the_place_of_a_parked_one_goes_to_the_higher_level(world: World) -> None:
    assert await world.east.consumer.consume(first(1)) == Parked()

    assert await world.west.consumer.consume(second(1)) == Parked()

    assert reasons(world) == ["a producer of owner level 1 rules"]
    assert await world.west.consumer.consume(second(1)) == AlreadyDone()
    assert isinstance(await world.east.consumer.consume(second(0)), Processed)
    assert world.amounts() == [200, 201]
    assert parked(world) == []


async def test_a_parked_one_of_a_higher_level_fences_the_lower_one(world: World) -> None:
    assert await world.east.consumer.consume(second(1)) == Parked()

    assert isinstance(await world.west.consumer.consume(first(1)), Refused)
    await world.east.consumer.consume(first(0))

    assert world.amounts() == [100, 201]
    assert reasons(world) == ["a producer of owner level 1 rules"]
    assert parked(world) == []


async def test_it_fences_it_also_when_its_turn_has_come(world: World) -> None:
    assert await world.east.consumer.consume(second(1)) == Parked()
    await processed_and_died(world.worker("west"), first(0))
    assert world.amounts() == [100]

    assert isinstance(await world.west.consumer.consume(first(1)), Refused)

    assert world.amounts() == [100, 201]
    assert parked(world) == []


async def test_the_same_message_sent_again_by_the_second_producer_keeps_its_number(
    world: World,
) -> None:
    again = message(1, amount=101, level=1)
    assert await world.east.consumer.consume(first(1)) == Parked()
    assert await world.east.consumer.consume(again) == Parked()

    await world.west.consumer.consume(second(0))

    assert world.amounts() == [200, 101]
    assert parked(world) == []


async def test_the_second_producers_message_is_not_taken_for_the_refused_one(world: World) -> None:
    await world.east.consumer.consume(second(0))
    assert isinstance(await world.east.consumer.consume(first(1)), Refused)

    for region in REGIONS:
        assert await world.worker(region).consumer.consume(first(1)) == AlreadyDone()
    assert isinstance(await world.worker("west").consumer.consume(second(1)), Processed)

    assert world.amounts() == [200, 201]


@pytest.mark.parametrize("region", REGIONS)
async def test_a_worker_that_read_of_the_refused_one_takes_the_other(
    world: World, region: str
) -> None:
    await world.east.consumer.consume(second(0))
    await world.east.consumer.consume(first(1))
    reader = world.worker(region)
    assert await reader.consumer.consume(second(0)) == AlreadyDone()
    assert await reader.consumer.consume(first(1)) == AlreadyDone()

    assert isinstance(await reader.consumer.consume(second(1)), Processed)

    assert await reader.consumer.consume(second(1)) == AlreadyDone()
    assert world.amounts() == [200, 201]


async def test_beside_a_claim_the_place_goes_to_the_higher_level_when_the_claim_ends() -> None:
    world = world_of(Outside())
    await dies(world, payment(0), "append", CallFault.KILLED_AFTER)
    assert await world.west.consumer.consume(first(1)) == Parked()

    assert isinstance(await world.east.consumer.consume(second(1)), AlreadyDone | Processed)

    assert world.amounts()[-1] == 201
    assert parked(world) == []
    assert world.clock.now() >= LEASE_OVER - 1


async def test_a_claimed_message_sent_again_by_the_second_producer_is_done_once() -> None:
    outside = Outside()
    world = world_of(outside)
    again = message(0, kind="account.pay", level=1)
    await dies(world, payment(0), "append", CallFault.KILLED_AFTER)
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(again), Processed)

    assert (world.amounts(), len(outside.asked), parked(world)) == ([1], 1, [])


async def test_other_content_of_a_higher_level_under_a_claimed_number_is_refused_visibly() -> None:
    world = world_of(Outside())
    await dies(world, payment(0), "append", CallFault.KILLED_AFTER)

    assert isinstance(await world.west.consumer.consume(second(0)), Conflicting)
    world.clock.seconds += LEASE_OVER
    await world.west.recovery.sweep()

    assert (world.amounts(), parked(world)) == ([1], [])


async def test_a_faulted_message_sent_again_by_the_second_producer_waits_with_the_fault(
    world: World,
) -> None:
    await world.east.consumer.consume(message(0, kind="account.burn"))
    await world.east.consumer.consume(message(1))

    again = message(0, kind="account.burn", level=1)
    assert await world.west.consumer.consume(again) == AlreadyDone()

    assert len(parked(world)) == 1


@pytest.mark.parametrize("order", list(permutations(range(4))))
async def test_whatever_the_order_the_higher_level_loses_nothing(order: tuple[int, ...]) -> None:
    arrivals = [first(1), second(1), second(0), second(2)]
    world = World()
    for n, place in enumerate(order):
        await world.worker(REGIONS[n % 2]).consumer.consume(arrivals[place])

    assert world.amounts() == [200, 201, 202]
    assert parked(world) == []
    assert "parked" not in world.entries()[-1]
