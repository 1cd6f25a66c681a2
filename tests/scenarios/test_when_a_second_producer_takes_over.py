"""A producer of a higher owner level takes over: the older one has no effect any more."""

from itertools import permutations

import pytest

from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone, Conflicting, Parked, Processed, Refused
from shared.testkit.injected_faults import CallFault
from tests.business import LEASE_OVER, BusinessWorld, claimed, dies, payment, processed_and_died
from tests.world import REGIONS, World, message, take

# When a second producer takes over with a higher owner level, the older one has no more effects.


async def test_the_older_producers_late_message_is_refused_and_named(world: World) -> None:
    await take(world.east, message(0), message(1, level=1))

    assert isinstance(await world.west.consumer.consume(message(2, amount=99)), Refused)

    assert world.amounts() == [1, 2]
    newest = world.entries()[-1]
    assert newest["reason"] == "a producer of owner level 1 rules"
    assert newest["identities"][0]["id"] == message(2).id


async def test_the_new_producer_goes_on_after_a_refusal(world: World) -> None:
    new, old = (message(n, level=1) for n in range(2)), message(1, level=0, amount=99)
    await take(world.east, next(new), old, next(new))

    assert world.amounts() == [1, 2]


# When a fenced producer's messages are parked, the higher level rules.


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
    assert set(await take(world.east, first(1), first(2))) == {Parked()}

    await world.east.consumer.consume(second(0))

    assert world.amounts() == [200]
    assert reasons(world) == ["a producer of owner level 1 rules"]
    assert {type(one) for one in await take(world.west, second(1), second(2))} == {Processed}
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


async def test_the_same_message_sent_again_by_the_second_keeps_its_number(world: World) -> None:
    again = message(1, amount=101, level=1)
    assert await take(world.east, first(1), again) == [Parked(), Parked()]

    await world.west.consumer.consume(second(0))

    assert world.amounts() == [200, 101]
    assert parked(world) == []


@pytest.mark.parametrize("region", REGIONS)
async def test_the_seconds_message_is_not_taken_for_the_firsts(world: World, region: str) -> None:
    outcomes = await take(world.east, second(0), first(1))
    assert isinstance(outcomes[1], Refused)
    reader = world.worker(region)
    assert await take(reader, second(0), first(1)) == [AlreadyDone(), AlreadyDone()]

    # Whoever read of the refused one takes the other.
    assert isinstance(await reader.consumer.consume(second(1)), Processed)

    assert await reader.consumer.consume(second(1)) == AlreadyDone()
    assert world.amounts() == [200, 201]


async def test_beside_a_claim_the_place_goes_to_the_higher_level_when_the_claim_ends() -> None:
    world = await claimed()
    assert await world.west.consumer.consume(first(1)) == Parked()

    assert isinstance(await world.east.consumer.consume(second(1)), AlreadyDone | Processed)

    assert world.amounts()[-1] == 201
    assert parked(world) == []
    assert world.clock.now() >= LEASE_OVER - 1


async def test_a_claimed_message_sent_again_by_the_second_producer_is_done_once() -> None:
    world = BusinessWorld()
    again = message(0, kind="account.pay", level=1)
    await dies(world, payment(0), "append", CallFault.KILLED_AFTER)
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(again), Processed)

    assert (world.amounts(), len(world.outside.asked), parked(world)) == ([1], 1, [])


async def test_other_content_of_a_higher_level_under_a_claimed_number_is_refused_visibly() -> None:
    world = await claimed()

    assert isinstance(await world.west.consumer.consume(second(0)), Conflicting)
    world.clock.seconds += LEASE_OVER
    await world.west.recovery.sweep()

    assert (world.amounts(), parked(world)) == ([1], [])


async def test_a_faulted_message_sent_again_by_the_second_waits_with_it(world: World) -> None:
    await take(world.east, message(0, kind="account.burn"), message(1))

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
