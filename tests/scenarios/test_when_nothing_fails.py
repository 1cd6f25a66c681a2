"""Nothing fails: each message costs one write, and nothing is sent, given back or waited for twice.

The apps of both regions run as they do in Azure, with their feeds and sweeps beside the messages.
Each message is handed out once: what a function raises would give it back to its queue, and fails
the test. Time is virtual: a second passes only while everything waits.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

from functions.triggers.receive import receive_message
from functions.triggers.recover import recover_documents, sweep_journal
from proof.simulation.world import virtual_time
from shared.domain.message import Message
from shared.domain.outbox import ERRORS
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.build import Services
from tests.deliveries import delivery_of
from tests.loop_clock import LoopClock
from tests.world import DELAY_SECONDS, GAP_SECONDS, LAG_SECONDS, POLICY, REGIONS, World

SESSION = "acc-7"
BILLS = [Draft(f"bill-{n}", "account.bill", b'{"amount":%d}' % n) for n in range(10)]
ACKNOWLEDGE_SECONDS = 1.0
# Shorter than an acknowledgement may wait, so that feed and sweep look while it does.
PAUSE_SECONDS = 0.4
# Whatever a message may write, and what is read to find out whether it is a copy.
WRITES = (
    "add_pending",
    "append",
    "replace",
    "stage_part",
    "acknowledge",
    "leave_pending",
    "decide",
)
SENDS = ("send.east", "send.west")
READS = ("head", "entry", "stored_entry", "processed", "cursor", "parked", "parked_run")


def in_two_regions(work: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """Do it while both regions' feeds and sweeps run, with ten messages published before."""

    async def run() -> None:
        world = World(LoopClock(), policy=replace(POLICY, acknowledge_seconds=ACKNOWLEDGE_SECONDS))
        await world.producer().publish(SESSION, BILLS, ProducerOptions("bank"))
        async with followed(world, world.east), followed(world, world.west):
            await work(world)
            # Whatever was left undone is found by now.
            await asyncio.sleep(DELAY_SECONDS + 2 * LAG_SECONDS)
        for region in REGIONS:
            assert world.bus.messages(region, ERRORS) == []
            assert len(world.bus.messages(region, "in")) == len(BILLS)
            sent = [(one.id, one.body) for one in world.bus.messages(region, "out")]
            assert len(sent) == len({*sent}) == len(BILLS)
        assert world.amounts() == [*range(10)]
        assert await world.pending() == []

    return lambda: virtual_time.run(run())


@asynccontextmanager
async def followed(world: World, services: Services) -> AsyncIterator[None]:
    """Inside the block the region follows the feed of the journal and sweeps, several a second."""

    async def follow(trigger: Callable[[], Awaitable[None]]) -> None:
        while True:
            await trigger()
            await asyncio.sleep(PAUSE_SECONDS / 4)

    async def recover() -> None:
        await recover_documents(services.recovery, list(world.journal.partitions[SESSION].values()))

    async def sweep() -> None:
        await sweep_journal(services.recovery)

    following = [asyncio.create_task(follow(trigger)) for trigger in (recover, sweep)]
    yield
    for one in following:
        one.cancel()
    ended = await asyncio.gather(*following, return_exceptions=True)
    assert {type(one) for one in ended} == {asyncio.CancelledError}


def visible(world: World, region: str) -> list[Message]:
    """What the region's queue hands out by now."""
    queue = world.bus.queues[region, "in"]
    return [copy.message for copy in queue if copy.visible_at <= world.clock.now()]


async def receive(services: Services, messages: Iterable[Message]) -> None:
    """Call the region's function once for each message, and begin the next call a moment later."""
    async with asyncio.TaskGroup() as calls:
        for one in messages:
            calls.create_task(receive_message(services, delivery_of(one)))
            await asyncio.sleep(PAUSE_SECONDS)


def counted(world: World, names: Iterable[str]) -> dict[str, int]:
    """How often each of these was done to the journal or the bus, as far as it was."""
    calls = world.journal.fault_plan.calls | world.bus.fault_plan.calls
    return {name: calls[name] for name in names if calls.get(name)}


@in_two_regions
async def test_a_message_costs_one_write_in_the_primary_and_its_copy_none(world: World) -> None:
    world.journal.fault_plan.calls.clear()
    assert visible(world, "west") == []

    await receive(world.east, visible(world, "east"))
    await asyncio.sleep(DELAY_SECONDS)

    # The newest entry has no next one yet that could carry its acknowledgement.
    written = {"append": len(BILLS), "leave_pending": 1}
    assert (counted(world, WRITES), counted(world, READS)) == (written, {})

    await receive(world.west, visible(world, "west"))

    # A point read for the first copy, and a page of entries for the others.
    assert (counted(world, WRITES), counted(world, READS)) == (written, {"processed": 2})


@in_two_regions
async def test_a_queue_is_sent_each_message_and_each_output_once(world: World) -> None:
    assert counted(world, SENDS) == dict.fromkeys(SENDS, 1)
    await receive(world.east, visible(world, "east"))
    await asyncio.sleep(DELAY_SECONDS)
    await receive(world.west, visible(world, "west"))
    await asyncio.sleep(LAG_SECONDS)

    # The messages together, and the output of each of them.
    assert counted(world, SENDS) == dict.fromkeys(SENDS, 1 + len(BILLS))


@in_two_regions
async def test_messages_that_come_early_wait_inside_their_first_call(world: World) -> None:
    began = virtual_time.now()
    await receive(world.east, reversed(visible(world, "east")))

    assert virtual_time.now() - began < GAP_SECONDS
    assert {entry["status"] for entry in world.entries()} == {"completed"}


@in_two_regions
async def test_messages_that_wait_in_vain_are_settled_by_their_first_call(world: World) -> None:
    first, *others = visible(world, "east")
    await receive(world.east, others)
    assert GAP_SECONDS <= virtual_time.now() < 2 * GAP_SECONDS
    assert world.amounts() == []

    await receive(world.east, [first])
