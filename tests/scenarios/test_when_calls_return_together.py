"""Calls of a session return together and are replaced one by one: the next entry waits for them.

Time is virtual here: a second passes only while everything waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from proof.simulation.world import virtual_time
from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone, Outcome, Processed
from shared.engine.consume.turns import LINGER_SECONDS_MAX, LINGER_SECONDS_MIN
from shared.ports import NOTHING_CARRIED, Carried, WriteResult
from shared.testkit.intercepted import InterceptedJournal
from tests.loop_clock import LoopClock
from tests.world import World, message

WRITE_SECONDS, SETTLE_SECONDS = 0.06, 0.01
CALLS = 16
# Two copies of one moment may differ by what floating point loses.
ROUNDING = 1e-6


class FarJournal(InterceptedJournal):
    """A journal in which each write takes its time."""

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> WriteResult:
        await asyncio.sleep(WRITE_SECONDS)
        return await super().append(entry, carried)


def far_away(work: Callable[[World], Awaitable[None]]) -> None:
    """Do it in virtual time, with a journal that is far away from the eastern region."""

    async def run() -> None:
        world = World(LoopClock())
        world.east.worker.journal = FarJournal(world.journal)
        await work(world)

    virtual_time.run(run())


async def serve(
    world: World, messages: Sequence[Message], begin_at: Sequence[float] = (0.0,) * CALLS
) -> None:
    """A host whose calls of one session begin at these times; settling a message takes a while."""
    waiting = list(enumerate(messages))

    async def take_turns(begin_after: float) -> None:
        await asyncio.sleep(begin_after)
        while waiting:
            arrival, one = waiting.pop(0)
            assert isinstance(await world.east.consumer.consume(one, arrival), Processed)
            await asyncio.sleep(SETTLE_SECONDS)

    await asyncio.gather(*map(take_turns, begin_at))


async def serve_in_rounds(world: World, messages: Sequence[Message], rounds: int) -> None:
    """A busy host: it comes to this session once a second, and needs 20 ms to begin each call."""
    waiting, calls = list(enumerate(messages)), set[asyncio.Task[Outcome]]()
    for _ in range(rounds):
        await asyncio.sleep(1.0)
        for _ in range(CALLS - sum(not call.done() for call in calls)):
            arrival, one = waiting.pop(0)
            calls.add(asyncio.create_task(world.east.consumer.consume(one, arrival)))
            await asyncio.sleep(0.02)
    await asyncio.gather(*calls)


def covered(world: World) -> list[int]:
    """How many messages each entry covers."""
    return [len(entry["identities"]) for entry in world.entries()]


def test_each_entry_of_a_deep_session_takes_the_messages_of_all_calls() -> None:
    async def work(world: World) -> None:
        await serve(world, [message(n) for n in range(20 * CALLS)])

        assert covered(world) == [CALLS] * 20
        assert world.amounts() == list(range(1, 20 * CALLS + 1))
        turn_seconds = WRITE_SECONDS + SETTLE_SECONDS
        assert virtual_time.now() <= 20 * turn_seconds + ROUNDING

    far_away(work)


def test_two_halves_of_the_calls_become_one_again() -> None:
    async def work(world: World) -> None:
        half = CALLS // 2
        # The second half arrives while the first one is being written.
        begin_at = [*[0.0] * half, *[WRITE_SECONDS / 2] * half]
        await serve(world, [message(n) for n in range(20 * CALLS)], begin_at)

        assert covered(world) == [half, *[CALLS] * 19, half]
        assert world.amounts() == list(range(1, 20 * CALLS + 1))

    far_away(work)


def test_a_busy_host_that_hands_over_one_by_one_gets_one_entry_for_each_round() -> None:
    async def work(world: World) -> None:
        await serve_in_rounds(world, [message(n) for n in range(10 * CALLS)], 10)

        # In the first rounds it is learnt how long the pauses are, and how many calls there are.
        assert covered(world)[-4:] == [CALLS] * 4
        assert world.amounts() == list(range(1, 10 * CALLS + 1))

    far_away(work)


def test_messages_that_come_one_after_the_other_wait_for_nobody() -> None:
    async def work(world: World) -> None:
        for n in range(10):
            assert isinstance(await world.east.consumer.consume(message(n), n), Processed)

        assert virtual_time.now() <= 10 * WRITE_SECONDS + ROUNDING

    far_away(work)


def test_the_message_after_the_last_of_many_waits_in_vain_for_moments() -> None:
    async def work(world: World) -> None:
        await serve(world, [message(n) for n in range(CALLS)])
        began = virtual_time.now()
        await world.east.consumer.consume(message(CALLS), CALLS)
        waited = virtual_time.now() - began - WRITE_SECONDS
        assert 0 < waited <= LINGER_SECONDS_MAX + ROUNDING

        began = virtual_time.now()
        await world.east.consumer.consume(message(CALLS + 1), CALLS + 1)
        assert virtual_time.now() - began <= WRITE_SECONDS + ROUNDING

    far_away(work)


def test_a_new_session_whose_calls_begin_in_no_order_reads_nothing() -> None:
    async def work(world: World) -> None:
        calls = []
        for n in (5, 2, 1, 4, 3, 0):
            calls.append(asyncio.create_task(world.east.consumer.consume(message(n), n)))
            await asyncio.sleep(LINGER_SECONDS_MIN / 10)
        await asyncio.gather(*calls)

        assert covered(world) == [6]
        assert world.amounts() == [1, 2, 3, 4, 5, 6]
        assert world.journal.fault_plan.calls["head"] == 0

    far_away(work)


def test_calls_behind_a_gap_that_come_one_after_the_other_ask_the_store_together() -> None:
    async def work(world: World) -> None:
        calls = []
        for n in range(1, 9):
            calls.append(asyncio.create_task(world.east.consumer.consume(message(n), n)))
            await asyncio.sleep(8 * LINGER_SECONDS_MIN)
        reads = world.journal.fault_plan.calls["head"]
        await world.east.consumer.consume(message(0), 0)
        await asyncio.gather(*calls)

        assert reads <= 2
        assert world.amounts() == list(range(1, 10))

    far_away(work)


def test_a_region_that_comes_second_does_not_wait_for_more_copies() -> None:
    async def work(world: World) -> None:
        await serve(world, [message(n) for n in range(CALLS)])
        began = virtual_time.now()
        for n in range(1, CALLS):
            assert await world.west.consumer.consume(message(n), n) == AlreadyDone()
        assert virtual_time.now() == began

    far_away(work)
