"""A region returns and gets what it misses: soon, in order, once, and without a stampede.

Time is virtual here: a second passes only while everything waits.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proof.simulation.world import virtual_time
from shared.adapters.service_bus import SENDERS_PER_QUEUE
from shared.domain.errors import OutcomeUnknown, Throttled
from shared.engine.dispatch.deliver import PAUSE_SECONDS
from shared.engine.operate.recover import SESSIONS_AT_ONCE
from shared.storage.documents import decode_pending
from tests.far_store import FarContainer
from tests.loop_clock import LoopClock, in_virtual_time
from tests.world import LAG_SECONDS, POLICY, REGIONS, World, in_place_of, message

# How long each call of the store and of the bus takes.
CALL_SECONDS = 0.01
SEND_SECONDS_MAX = 10.0
SESSIONS = 500

type Missed = Callable[[World, int, int], Awaitable[str]]


async def miss_outputs(world: World, sessions: int, each: int) -> str:
    """The east misses outputs of entries; the answer is their queue."""
    for sequence in range(each):
        for number in range(sessions):
            bill = message(sequence, session=f"acc-{number}", kind="account.bill")
            await world.west.consumer.consume(bill)
    return "out"


async def miss_copies(world: World, sessions: int, each: int) -> str:
    """The east misses the copies of a producer; the answer is their queue."""
    producer = world.producer()
    for sequence in range(each):
        for number in range(sessions):
            await producer.send([message(sequence, session=f"acc-{number}")])
    return "in"


async def returned(world: World, miss: Missed, sessions: int, each: int) -> str:
    """The queue of which the east missed so many messages until now."""
    with world.without("east"):
        queue = await miss(world, sessions, each)
        await asyncio.sleep(LAG_SECONDS + PAUSE_SECONDS)
    return queue


def put_far(world: World, seconds: float) -> FarContainer:
    """Let each call take this long from now on, and a queue take a few messages side by side."""
    container = FarContainer(world.journal.store, world.clock, seconds)
    world.journal.journal.container = container
    links: dict[tuple[str, str], asyncio.Semaphore] = defaultdict(
        lambda: asyncio.Semaphore(SENDERS_PER_QUEUE)
    )

    @in_place_of(world.bus, "send")
    async def send_far(send: Any, region: str, queue: str, *arguments: Any, **options: Any) -> None:
        async with links[region, queue]:
            await asyncio.sleep(seconds)
            await send(region, queue, *arguments, **options)

    return container


def by_session(world: World, region: str, queue: str) -> dict[str, list[tuple[str, bytes]]]:
    """Ids and bodies of what a region's queue was sent, of each session in its order."""
    messages: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for one in world.bus.messages(region, queue):
        messages[one.session].append((one.id, one.body))
    return messages


def assert_whole(world: World, queue: str, sessions: int, each: int) -> None:
    """The east has what the west has: of each session everything, once and in order."""
    east, west = (by_session(world, region, queue) for region in REGIONS)
    assert east == west
    assert [len({*sent}) for sent in east.values()] == [each] * sessions


@pytest.mark.parametrize("miss", [miss_outputs, miss_copies])
def test_when_a_region_returns_a_thousand_messages_reach_it_within_five_seconds(
    miss: Missed,
) -> None:
    @in_virtual_time
    async def scenario() -> None:
        world = World(LoopClock())
        queue = await returned(world, miss, SESSIONS, 2)
        east, far = world.worker("east"), put_far(world, CALL_SECONDS)
        began = virtual_time.now()

        await east.recovery.sweep()

        assert virtual_time.now() - began <= 5.0
        assert_whole(world, queue, SESSIONS, 2)
        assert await world.pending() == []
        # One look at each session, and a write for each outbox: nothing is read before it.
        assert (far.calls["read"], far.calls["write"]) == (0, 2 * SESSIONS)
        assert far.calls["find"] <= SESSIONS + 10

    scenario()


@pytest.mark.parametrize(
    ("sessions", "each", "seconds"),
    [(SESSIONS, 2, 0.06), pytest.param(1, 900, 0.01, marks=pytest.mark.proof)],
)
def test_when_calls_are_slow_or_a_session_is_long_one_sweep_delivers_it_in_its_whole_time(
    sessions: int, each: int, seconds: float
) -> None:
    @in_virtual_time
    async def scenario() -> None:
        world = World(LoopClock())
        queue = await returned(world, miss_outputs, sessions, each)
        east = world.worker("east")
        put_far(world, seconds)
        began = virtual_time.now()

        assert (await east.recovery.sweep()).left == 0

        assert virtual_time.now() - began <= POLICY.waits.bound_seconds + 1
        assert_whole(world, queue, sessions, each)

    scenario()


@in_virtual_time
async def test_when_there_is_more_than_a_sweep_has_time_for_it_ends_in_time() -> None:
    world = World(LoopClock())
    await returned(world, miss_outputs, SESSIONS, 1)
    east = world.worker("east")
    put_far(world, 1.0)
    began = virtual_time.now()

    recovered = await east.recovery.sweep()

    # What was begun is brought to its end: a look, a send when its turn has come, and a write.
    longest = 2 + SESSIONS_AT_ONCE / SENDERS_PER_QUEUE
    assert virtual_time.now() - began <= POLICY.waits.bound_seconds + longest
    assert 0 < recovered.helped < SESSIONS == recovered.helped + recovered.left


@in_virtual_time
async def test_when_one_session_shows_that_it_is_back_the_others_follow_at_once() -> None:
    world = World(LoopClock())
    with world.without("east"):
        await miss_outputs(world, 40, 2)
        await asyncio.sleep(LAG_SECONDS)
        await world.east.recovery.sweep()
        await asyncio.sleep(PAUSE_SECONDS)
    put_far(world, CALL_SECONDS)

    assert (await world.east.recovery.sweep()).left == 0

    assert_whole(world, "out", 40, 2)


@in_virtual_time
async def test_when_it_is_silent_after_all_a_sweep_asks_it_once_and_no_session_twice() -> None:
    world = World(LoopClock())
    await returned(world, miss_outputs, SESSIONS, 2)
    world.bus.silent = {"east"}

    @in_place_of(world.bus, "send")
    async def limited(send: Any, *arguments: Any, **options: Any) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS_MAX):
                await send(*arguments, **options)
        except TimeoutError as error:
            raise OutcomeUnknown("no answer") from error

    await world.east.recovery.sweep()
    await asyncio.sleep(PAUSE_SECONDS)
    tried = world.bus.fault_plan.calls["silent.east"]
    far = put_far(world, CALL_SECONDS)
    began = virtual_time.now()

    assert (await world.east.recovery.sweep()).helped == 0

    assert world.bus.fault_plan.calls["silent.east"] == tried + 1
    assert virtual_time.now() - began <= SEND_SECONDS_MAX + 1
    assert far.calls["find"] <= SESSIONS + 10


@in_virtual_time
async def test_when_the_store_throttles_it_is_asked_for_each_session_once_and_by_few() -> None:
    world = World(LoopClock())
    await returned(world, miss_outputs, SESSIONS, 2)
    asked: list[str] = []
    asking = most = 0

    @in_place_of(world.journal, "pending")
    async def throttled(_: Any, session: str, *__: Any, **___: Any) -> None:
        nonlocal asking, most
        asked.append(session)
        asking += 1
        most = max(most, asking)
        await asyncio.sleep(CALL_SECONDS)
        asking -= 1
        raise Throttled("request rate is large", 1.0)

    recovered = await world.worker("east").recovery.sweep()

    assert (recovered.helped, recovered.left) == (0, SESSIONS)
    assert len(asked) == len({*asked}) == SESSIONS
    assert most == SESSIONS_AT_ONCE


@in_virtual_time
async def test_when_both_regions_missed_some_and_sweep_at_once_beside_their_feeds() -> None:
    world = World(LoopClock())
    with world.without("east"):
        await miss_outputs(world, 100, 2)
    with world.without("west"):
        for number in range(100):
            bill = message(2, session=f"acc-{number}", kind="account.bill")
            await world.east.consumer.consume(bill)
    await asyncio.sleep(LAG_SECONDS + PAUSE_SECONDS)
    documents = [d for p in world.journal.partitions.values() for d in p.values()]
    shown = [pending for document in documents if (pending := decode_pending(document))]
    workers = [world.worker(region) for region in REGIONS]
    put_far(world, CALL_SECONDS)

    await asyncio.gather(
        *(worker.recovery.sweep() for worker in workers),
        *(worker.recovery.recover(shown) for worker in workers),
    )

    assert_whole(world, "out", 100, 3)
    assert await world.pending() == []
