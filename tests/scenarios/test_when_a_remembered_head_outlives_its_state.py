"""A worker remembers a head, the other region goes on, and compaction removes the head's state."""

import pytest

from shared.domain.errors import OutcomeUnknown
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.storage.documents import position_id
from tests.world import World, message


async def test_a_copy_is_recognised_at_its_next_delivery(world: World) -> None:
    await world.east.consumer.consume(message(0))
    await world.east.consumer.consume(message(2))
    assert isinstance(await world.west.consumer.consume(message(1)), Processed)
    for position in range(2):
        del world.journal.partitions["acc-7"][position_id(position)]

    with pytest.raises(OutcomeUnknown):
        await world.east.consumer.consume(message(1))

    assert isinstance(await world.east.consumer.consume(message(1)), AlreadyDone)
    assert world.amounts() == [1, 2, 3]
