"""Somebody deletes a document whose outbox is not paid: what is lost is what the page says."""

from shared.engine.consume.outcomes import Parked, Processed
from shared.ports import SessionNeed
from shared.storage.documents import position_id
from tests.crashes import rest, sent
from tests.world import World, message

BILLS = [message(n, kind="account.bill") for n in range(4)]


async def unpaid(world: World, count: int) -> None:
    """So many bills, none of which the west has."""
    world.bus.unavailable = {"west"}
    for bill in BILLS[:count]:
        await world.east.consumer.consume(bill)
    world.bus.unavailable = set()
    world.east = world.worker("east")


def delete(world: World, position: int) -> None:
    """Delete an entry in the portal."""
    del world.journal.partitions["acc-7"][position_id(position)]


async def test_an_older_entrys_unpaid_outputs_are_lost_and_nothing_else(world: World) -> None:
    await unpaid(world, 3)
    delete(world, 1)

    await rest(world)
    outcome = await world.east.consumer.consume(BILLS[3])

    assert isinstance(outcome, Processed)
    assert world.amounts() == [1, 2, 3, 4]
    east = sent(world, "east")
    assert sent(world, "west") == [east[0], east[2], east[3]]


async def test_the_newest_entrys_message_is_missing_until_it_is_sent_again(world: World) -> None:
    await unpaid(world, 3)
    quiet = World()
    for bill in BILLS:
        await quiet.east.consumer.consume(bill)
    delete(world, 2)

    assert await world.east.consumer.consume(BILLS[3]) == Parked()
    assert isinstance(await world.east.consumer.consume(BILLS[2]), Processed)
    await rest(world)

    assert world.amounts() == [1, 2, 3, 4]
    assert sent(world, "east") == sent(world, "west") == quiet.outputs("east")


async def test_a_message_whose_parking_was_deleted_is_parked_again(world: World) -> None:
    await world.east.consumer.consume(BILLS[0])
    await world.east.consumer.consume(BILLS[2])
    delete(world, 1)
    world.east = world.worker("east")

    assert await world.east.consumer.consume(BILLS[2]) == Parked()
    assert isinstance(await world.east.consumer.consume(BILLS[1]), Processed)

    assert world.amounts() == [1, 2, 3]
    assert await world.journal.sessions(SessionNeed.DRAINING, limit=1) == []
