"""What a worker remembers of sessions is bounded in bytes, whatever their number."""

import pytest

from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.engine import worker as remembering
from tests.world import World, message

STATE_BYTES = 100_000


async def head_of(world: World, session: str) -> Entry:
    """A head with a large state."""
    arriving: Message = message(0, session=session)
    await world.east.consumer.consume(arriving)
    head = await world.journal.head(session)
    assert head is not None
    return head


@pytest.mark.slow
async def test_ten_thousand_large_states_are_not_kept() -> None:
    world = World()
    east = world.east.worker
    small = await head_of(world, "acc-7")
    for number in range(10_000):
        text = f"{number:0{STATE_BYTES}d}"
        head = Entry(
            f"acc-{number}", 0, small.status, small.identities, {"text": text}, None, small.attempt
        )
        east.remember_head(head.session, head, is_ours=True)

    kept = [one.entry for one in east.heads.values()]
    assert sum(len(str((head.state or {})["text"])) for head in kept) <= remembering.HEADS_BYTES_MAX
    assert len(kept) > remembering.HEADS_BYTES_MAX / STATE_BYTES * 0.9
    assert east.remembered_head("acc-9999") is not None
    assert east.remembered_head("acc-0") is None
    assert east.head_bytes == sum(one.size for one in east.heads.values())


async def test_what_is_forgotten_is_counted_no_longer() -> None:
    world = World()
    await head_of(world, "acc-7")
    east = world.east.worker
    assert east.head_bytes > 0

    east.remember_head("acc-7", None)

    assert east.head_bytes == 0


async def test_a_head_of_its_own_knows_the_size_of_its_state() -> None:
    world = World()
    await head_of(world, "acc-7")

    own = world.east.worker.own_head("acc-7")

    assert own is not None
    assert own.state_bytes
