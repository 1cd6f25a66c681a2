"""The entry is in the journal; the process dies before it dispatches, or before it settles."""

from shared.domain import next_entry
from shared.domain.handler import HandlerInput
from shared.engine.consume.outcomes import AlreadyDone
from shared.ports import WriteResult
from shared.storage.documents import decode_pending
from shared.testkit.injected_faults import CallFault
from tests.world import LAG_SECONDS, World, message

BILL = message(0, kind="account.bill")


async def commit_and_die(world: World) -> list[tuple[str, bytes]]:
    """Commit a bill without dispatching it; the answer is what should have been sent."""
    healthy = World()
    await healthy.east.consumer.consume(BILL)
    consumer = world.east.consumer
    opened = next_entry.open_entry(await consumer.committer.prepare(None, BILL))
    ending = await consumer.runner.run(opened, HandlerInput())
    assert await consumer.committer.commit(None, ending.entry) is WriteResult.CREATED
    world.east = world.worker("east")
    assert world.outputs("east") == world.outputs("west") == []
    return healthy.outputs("east")


async def test_the_redelivered_message_is_done_already(world: World) -> None:
    await world.east.consumer.consume(message(0))

    assert await world.worker("east").consumer.consume(message(0)) == AlreadyDone()

    assert world.amounts() == [1]


async def test_the_redelivery_sends_the_outputs(world: World) -> None:
    expected = await commit_and_die(world)

    assert await world.east.consumer.consume(BILL) == AlreadyDone()

    assert world.outputs("east") == world.outputs("west") == expected


async def test_the_copy_in_the_other_region_leaves_the_outputs_to_the_rescue(
    world: World,
) -> None:
    await commit_and_die(world)

    assert await world.west.consumer.consume(BILL) == AlreadyDone()

    assert world.outputs("east") == world.outputs("west") == []
    assert await world.pending() == ["acc-7"]


async def test_the_next_message_sends_the_outputs_before_its_own(world: World) -> None:
    expected = await commit_and_die(world)

    await world.west.consumer.consume(message(1, kind="account.bill"))

    assert world.outputs("west")[:1] == expected
    assert len(world.outputs("west")) == 2
    assert world.outputs("east") == world.outputs("west")


async def test_the_change_feed_sends_the_outputs_after_the_lag(world: World) -> None:
    expected = await commit_and_die(world)
    seen = [pending for entry in world.entries() if (pending := decode_pending(entry))]

    await world.east.recovery.recover(seen)
    await world.west.recovery.recover(seen)

    assert world.clock.now() >= LAG_SECONDS
    assert world.outputs("east") == world.outputs("west") == expected


async def test_the_change_feed_finds_nothing_to_do_when_the_outputs_went_out(world: World) -> None:
    await world.east.consumer.consume(BILL)
    world.journal.fault_plan.plan("leave_pending", CallFault.LOST)
    await world.east.consumer.consume(message(1, kind="account.bill"))
    seen = [pending for entry in world.entries() if (pending := decode_pending(entry))]
    assert [pending.position for pending in seen] == [1]

    await world.east.consumer.consume(message(1, kind="account.bill"))
    sent_before = world.outputs("east")
    await world.east.recovery.recover(seen)

    assert world.outputs("east") == sent_before


async def test_the_sweep_alone_sends_the_outputs(world: World) -> None:
    expected = await commit_and_die(world)
    world.clock.seconds += LAG_SECONDS

    assert (await world.east.recovery.sweep()).helped == 1
    world.clock.seconds += LAG_SECONDS
    assert (await world.west.recovery.sweep()).helped == 1

    assert world.outputs("east") == world.outputs("west") == expected
    assert await world.pending() == []
