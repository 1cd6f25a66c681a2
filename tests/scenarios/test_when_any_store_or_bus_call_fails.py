"""Every call that consuming makes goes wrong in every way, one at a time and two at a time."""

from itertools import combinations, product

import pytest

from shared.adapters.memory import Mishap
from shared.domain.errors import LockstepError
from tests.world import LAG_SECONDS, World, message

MESSAGES = [message(n, kind="account.bill") for n in range(3)]
STORE_CALLS = ("head", "entry", "append", "acknowledge")
BUS_CALLS = ("send.east", "send.west")
CRASH_POINTS = [*product(STORE_CALLS + BUS_CALLS, Mishap, (0, 1, 2))]


async def consume_until_settled(world: World, sequence: int) -> None:
    """Redeliver to a new worker, east and west in turn, until one settles."""
    for attempt in range(4):
        region = world.worker(("east", "west")[attempt % 2])
        try:
            await region.consumer.consume(MESSAGES[sequence])
        except LockstepError:
            world.clock.seconds += 3
            continue
        return
    pytest.fail(f"message {sequence} was never settled")


async def run(world: World, *faults: tuple[str, Mishap, int]) -> None:
    """Process three messages, arming each fault before the message it strikes; then sweep."""
    for sequence in range(len(MESSAGES)):
        for call, mishap, strikes_at in faults:
            if strikes_at == sequence:
                mishaps = world.bus.mishaps if call in BUS_CALLS else world.journal.mishaps
                mishaps.plan(call, mishap)
        await consume_until_settled(world, sequence)
        world.clock.seconds += 3
    for _ in range(2):
        world.clock.seconds += LAG_SECONDS
        await world.worker("east").rescuer.sweep()
        await world.worker("west").rescuer.sweep()


async def test_each_effect_once_and_each_output_the_same_in_both_regions() -> None:
    quiet = World()
    await run(quiet)
    expected = quiet.outputs("east")
    assert len(expected) == len(MESSAGES)

    singles = [(fault,) for fault in CRASH_POINTS]
    for faults in [*singles, *combinations(CRASH_POINTS, 2)]:
        world = World()
        await run(world, *faults)

        assert world.amounts() == [1, 2, 3], faults
        for region in ("east", "west"):
            assert list(dict.fromkeys(world.outputs(region))) == expected, (region, faults)
        assert await world.journal.sessions_owing(older_than_seconds=0, limit=10) == [], faults
